"""Tasks of one event loop that ask for the same thing, and for which the same answer will do: they take turns to ask.

One asks at a time, and waits in the server's queue for all; the others wait here. An answer is for all who came before
the turn in which it was asked for, so none is older than the call that gets it. Of a thousand tasks that want one
result, three or four ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import TypeVar

from redis.exceptions import RedisError

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import copy_exception
from handfast._engine.once import Recorded
from handfast.errors import ClientClosed, KeyReused, QueueFull, ServerRefused

__all__ = ["SharedWaits"]

T = TypeVar("T")

ANSWERS = (Recorded, KeyReused, QueueFull, ServerRefused, ClientClosed, RedisError)
"""What is one for all that ask the same. Time that is over, a deadlock, or a request that an operator has ended are the
caller's own."""


class _Turns:
    """The tasks that ask for one thing."""

    __slots__ = ("answer", "began_at", "lock", "tasks")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tasks = 0
        self.began_at = -inf
        """When the last turn began."""
        self.answer: Exception | None = None
        """What that turn ended with, if it is an answer for others as well."""


class SharedWaits:
    """All that the tasks of one event loop ask for in turns."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, _Turns] = {}

    async def ask(
        self,
        question: Hashable,
        came_at: float,
        until: float,
        before_waiting: Callable[[], object],
        ask: Callable[[], Awaitable[T]],
    ) -> T | None:
        """Ask in turn, or raise the answer that another task got. What it returns is for the caller alone.

        None if its turn has not come by the moment ``until``. Raises what ``before_waiting`` and ``ask`` raise.
        """
        turns = self._turns.setdefault(question, _Turns())
        turns.tasks += 1
        try:
            if turns.lock.locked():
                before_waiting()
            if not await _acquired(turns.lock, until):
                return None
            try:
                if turns.answer is None or came_at > turns.began_at:
                    turns.began_at, turns.answer = monotonic(), None
                    return await _asked(turns, ask)
                answer = copy_exception(turns.answer)
            finally:
                turns.lock.release()
            raise answer
        finally:
            turns.tasks -= 1
            if not turns.tasks:
                del self._turns[question]


async def _asked(turns: _Turns, ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except ANSWERS as answer:
        turns.answer = copy_exception(answer)  # without a traceback, which leads back here
        raise


async def _acquired(lock: asyncio.Lock, until: float) -> bool:
    try:
        async with asyncio.timeout(None if until == inf else until - monotonic()):
            return await lock.acquire()
    except TimeoutError:
        return False
