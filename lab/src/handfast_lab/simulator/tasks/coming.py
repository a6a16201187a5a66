"""What a future is to asyncio: something to come."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, cast

from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast_lab.simulator.world import Process, Steps, Task

__all__ = ["Coming"]


class Coming:
    """What a future is: a result to come, and who is to be told. They are told in a turn of their own."""

    __slots__ = ("_told", "done", "error", "process", "value", "withdrawn")

    def __init__(self, process: Process) -> None:
        self.process = process
        self.done = self.withdrawn = False
        self.value: Any = None
        self.error: Exception | None = None
        self._told: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def tell(self, action: Callable[..., object], *args: Any) -> None:
        """Do this when it is done."""
        if self.done:
            self._soon(action, args)
        else:
            self._told.append((action, args))

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Here it is."""
        if not self.done:
            self.done, self.value, self.error = True, value, error
            for action, args in self._told:
                self._soon(action, args)

    def withdraw(self) -> None:
        """Nobody wants it any more."""
        self.withdrawn = not self.done
        self.settle()

    def wait(self, until: float = inf) -> Steps[Any]:
        """Wait for it; RedisTimeoutError if it did not come by that moment."""
        if not self.done:
            task = cast("Task", self.process.world.current)
            self.tell(task.wake, task.turn, None)
            try:
                yield until
            except BaseException:
                self.withdraw()
                raise
            if not self.done:
                self.withdraw()
                raise RedisTimeoutError("the server did not answer in time")
        if self.error is not None:
            raise self.error
        return self.value

    def _soon(self, action: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.process.world.at(self.process.world.now, self.process.meet, action, *args)
