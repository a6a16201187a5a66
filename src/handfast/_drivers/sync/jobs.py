"""Functions that run beside their caller: threads, which look whether they are to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ClassVar

__all__ = ["Job", "Mailbox"]

Mailbox = SimpleQueue
"""What jobs leave something in for their caller."""


class Job:
    """A function running in a thread, with the job as its first argument. The thread keeps no program from ending."""

    __slots__ = ("_thread", "stopped")

    apart: ClassVar[bool] = True
    """Whether an interrupt of its function ends nothing else: a thread can't end the program."""

    def __init__(self, function: Callable[..., object], *args: Any) -> None:
        self.stopped = threading.Event()
        """Set when it was told to stop."""
        self._thread = threading.Thread(target=function, args=(self, *args), name="handfast-partition", daemon=True)
        self._thread.start()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self.stopped.is_set()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Tell it to stop."""
        self.stopped.set()

    ask = stop

    def sleep(self, seconds: float) -> None:
        """Wait for so long, or until the job is to stop."""
        self.stopped.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, for so long at most. Return whether it has."""
        self._thread.join(seconds)
        return self.done
