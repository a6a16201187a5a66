"""Loops of tasks: see `handfast._protocol.loops`."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from handfast._drivers.aio.context import NO_LOOP, current_task
from handfast._drivers.clock import monotonic
from handfast._drivers.loops import BaseLoop, Client

__all__ = ["AsyncLoop"]

T = TypeVar("T")


class AsyncLoop(BaseLoop):
    """A loop of the running task."""

    def __init__(self, driver: Client, kind: str, name: str, function: str = "", **options: bool) -> None:
        super().__init__(driver, kind, name, function, **options)
        try:
            task = asyncio.current_task()
        except RuntimeError:
            raise RuntimeError(NO_LOOP) from None
        self._began_in = None if task is None else weakref.ref(task)
        self._cancellations = 0 if task is None else task.cancelling()
        """Requests to cancel that the task had got before."""

    async def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call the user's function. The loop can then tell the function's errors from the server's."""
        self._begin()
        try:
            result = await function(*args)
        except BaseException as error:
            self._raised = error
            raise
        self._pauses.succeed()
        return result

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask the server until it answers."""
        while True:
            self.check()
            try:
                return await question()
            except BaseException as error:
                pause = self.after(error)
                if pause is None:
                    raise
            await self.rest(pause)

    async def rest(self, seconds: float) -> None:
        """Wait for so long. Raises ClientClosed as soon as the client is closed."""
        until = monotonic() + seconds
        while not self.is_over and (left := until - monotonic()) > 0:  # noqa: ASYNC110 -- few loops rest, and a client has no event
            await asyncio.sleep(min(left, 0.5))
        self.check()

    def _is_cancelled(self) -> bool:
        task = current_task()
        if task is None:
            return True
        is_other = self._began_in is None or task is not self._began_in()  # as of an asynchronous generator
        return task.cancelling() > (0 if is_other else self._cancellations)
