"""A bell that one thread rings to wake another from a select."""

from __future__ import annotations

import contextlib
import os

__all__ = ["Waker"]


class Waker:
    """A pipe with one meaning: somebody rang."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def fileno(self) -> int:
        """What to select on."""
        return self._reading

    def ring(self) -> None:
        """Wake whoever sleeps. One ring among many is enough, and nobody may be there any more."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b"!")

    def answer(self) -> None:
        """Be ready for the next ring."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)

    def close(self) -> None:
        """Take the bell down."""
        ends, self._reading, self._writing = (self._reading, self._writing), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)
