"""Threads which `threading` did not start: those of a C library, for example, calling back into Python.

`threading.current_thread` finds such a thread by the ident. The system gives the ident of an ended thread to another
thread. This would then be taken for the first, and be given the first thread's reentrant locks.
"""

from __future__ import annotations

import threading

__all__ = ["ForeignThread"]

_local = threading.local()


class ForeignThread:
    """Stands for a thread, as long as something refers to it."""

    def __init__(self) -> None:
        self._alive = True

    @staticmethod
    def current() -> ForeignThread:
        """Return the stand-in for the calling thread."""
        end: _End | None = getattr(_local, "end", None)
        if end is None:
            end = _local.end = _End(ForeignThread())
        return end.thread

    def is_alive(self) -> bool:
        """Return whether the thread has not ended."""
        return self._alive

    def end(self) -> None:
        self._alive = False


class _End:
    """Lives in the local storage of a thread, and goes with it."""

    def __init__(self, thread: ForeignThread) -> None:
        self.thread = thread

    def __del__(self) -> None:
        self.thread.end()
