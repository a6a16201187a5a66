"""Wake a thread waiting for a socket."""

from __future__ import annotations

import contextlib
import os
import select

from handfast._drivers.descriptors import identity

__all__ = ["Waker"]


BLIND_S = 0.05
"""How long a poll may last that cannot be woken, in seconds."""


class Waker:
    """A self-pipe: wakes a thread from its poll.

    There is none before the thread begins: a program may close all files in between, as daemons do, and give the
    numbers to files of its own. A number now belonging to another file is neither written to, nor read, nor closed.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, int, tuple[int, int] | None]] = {}
        """Under "pipe", both ends and what tells the pipe from other files."""

    def open(self) -> None:
        """Make the pipe; and again later if it is gone, or could not be made.

        Called from the thread to be woken, before it looks for work.
        """
        if self._mine() is None:
            with contextlib.suppress(OSError):  # the process has too many files
                reading, writing = os.pipe()
                os.set_blocking(reading, False)
                os.set_blocking(writing, False)
                self._ends["pipe"] = reading, writing, identity(reading)

    def end(self, poll: select.poll, seconds: float) -> float:
        """Have wake-ups end a poll. Return for how long it may last at most: not for long if it cannot be woken."""
        self.open()
        ends = self._mine()
        if ends is None:
            return min(seconds, BLIND_S)
        poll.register(ends[0], select.POLLIN)
        return seconds

    def wake(self) -> None:
        """Wake the thread. A full pipe wakes it already; without a pipe it looks for work in any case."""
        if (ends := self._mine()) is not None:
            with contextlib.suppress(OSError):
                os.write(ends[1], b"!")

    def clear(self, ready: list[int]) -> None:
        """Take note of all wake-ups so far, if these descriptors are ready."""
        if (ends := self._mine()) is not None and ends[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ends[0], 4096)

    def close(self) -> None:
        ends = self._mine()
        self._ends.clear()
        for fd in ends or ():
            os.close(fd)

    def _mine(self) -> tuple[int, int] | None:
        """Return both ends, if there is a pipe and the numbers still belong to it."""
        reading, writing, itself = self._ends.get("pipe", (-1, -1, None))
        return (reading, writing) if itself is not None and identity(reading) == identity(writing) == itself else None
