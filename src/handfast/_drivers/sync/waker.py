"""Wake a thread that waits for a socket."""

from __future__ import annotations

import contextlib
import os

__all__ = ["Waker"]


class Waker:
    """A self-pipe: wakes a thread from its poll."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def fileno(self) -> int:
        """Return the end to poll."""
        return self._reading

    def wake(self) -> None:
        """Wake the thread. A full pipe wakes it already; a closed one has no thread any more."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b"!")

    def clear(self) -> None:
        """Take note of all wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)

    def close(self) -> None:
        ends, self._reading, self._writing = (self._reading, self._writing), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)
