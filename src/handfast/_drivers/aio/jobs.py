"""Functions that run beside their caller: tasks, stopped by a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

__all__ = ["AsyncJob", "AsyncMailbox"]

AsyncMailbox = asyncio.Queue
"""What jobs leave something in for their caller."""


class AsyncJob:
    """A coroutine function that runs as a task. It gets the job as its first argument."""

    __slots__ = ("_task", "stopping")

    apart: ClassVar[bool] = False
    """Whether an interrupt of its function ends nothing else: asyncio ends the event loop with one."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, object]], *args: Any) -> None:
        self.stopping = False
        """Whether it was told to stop."""
        self._task = asyncio.get_running_loop().create_task(function(self, *args))

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def ask(self) -> None:
        """Tell it to stop, without a cancellation."""
        self.stopping = True

    def stop(self) -> None:
        """Tell it to stop, and cancel the task."""
        self.stopping = True
        self._task.cancel()

    async def sleep(self, seconds: float) -> None:
        """Wait for so long, or until the job is to stop."""
        await asyncio.sleep(seconds)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, for so long at most. Return whether it has."""
        await asyncio.wait((self._task,), timeout=seconds)
        return self._task.done()
