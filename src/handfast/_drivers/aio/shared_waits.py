"""Share the answer to a question among the tasks of an event loop.

`ask` is for answers that may be for a single task, such as the right to run. The tasks take turns: the first task
waits in the server's queue, the others wait here. A task takes only the answer of a turn begun after the task came, so
no answer is older than the call. Of a thousand tasks wanting a result, three or four ask the server.

`share` is for answers good for every task. The first task asks and the others wait here: a thousand tasks waiting for a
latch are a single waiter on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import Any

from redis.exceptions import RedisError

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import copy_exception
from handfast._engine.effects import Answer, Found
from handfast._protocol.lease import LeaseState
from handfast.errors import ClientClosed, KeyReused, QueueFull, ServerRefused

__all__ = ["SharedWaits"]

ANSWERS = (KeyReused, QueueFull, ServerRefused, ClientClosed, RedisError)
"""What is one for all that ask the same. Time that is over, a deadlock, or a request that an operator has ended are the
caller's own."""


class _Turns:
    """The tasks with the same question."""

    __slots__ = ("answer", "began_at", "lock", "tasks")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tasks = 0
        self.began_at = -inf
        """When the last turn began."""
        self.answer: Exception | Found | None = None
        """The end of that turn, if it is an answer for others as well."""


class SharedWaits:
    """All questions that the tasks of one event loop ask in turns."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, _Turns] = {}
        self._shared: dict[Hashable, list[asyncio.Future[Answer | Exception | None]]] = {}
        """The tasks that wait here while another task asks the server, by question."""

    async def ask(
        self,
        question: Hashable,
        came_at: float,
        until: float,
        before_waiting: Callable[[], object],
        ask: Callable[[], Awaitable[LeaseState | Found]],
    ) -> LeaseState | Found | None:
        """Ask in turn, or return or raise the answer that another task got. A lease is for the caller alone.

        None if the turn of the caller has not come by the moment ``until``. Raises the exceptions of ``before_waiting``
        and ``ask``.
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
                answer = turns.answer
            finally:
                turns.lock.release()
            if isinstance(answer, Exception):
                raise copy_exception(answer)
            return answer
        finally:
            turns.tasks -= 1
            if not turns.tasks:
                del self._turns[question]

    async def share(
        self, question: Hashable, came_at: float, until: float, ask: Callable[[float], Awaitable[Answer]]
    ) -> Answer:
        """Return an answer to a question, not older than this call.

        The first task asks the server until its own timeout. The others wait here, and ask themselves if the first task
        ends without an answer. Raises the exceptions of ``ask``.
        """
        while True:
            others = self._shared.get(question)
            if others is None:
                return await self._ask_for_all(question, until, ask)
            answer = await _answered(others, until)
            if isinstance(answer, Exception):
                raise copy_exception(answer)
            if answer is not None and answer.sent_at >= came_at:
                return answer
            if monotonic() >= until:
                return await self.share(("last", question), monotonic(), inf, lambda _: ask(-inf))

    async def _ask_for_all(self, question: Hashable, until: float, ask: Callable[[float], Awaitable[Answer]]) -> Answer:
        others: list[asyncio.Future[Answer | Exception | None]] = []
        self._shared[question] = others
        result: Answer | Exception | None = None
        try:
            result = answer = await ask(until)
            if monotonic() >= until:
                result = None  # others may have more time
            return answer
        except ANSWERS as error:
            result = copy_exception(error)
            raise
        finally:
            del self._shared[question]
            for other in others:
                if not other.done():
                    other.set_result(result)


async def _answered(others: list[asyncio.Future[Answer | Exception | None]], until: float) -> Answer | Exception | None:
    """Return the answer another task gets. None at ``until``, or if the other task ends without an answer."""
    loop = asyncio.get_running_loop()
    mine: asyncio.Future[Answer | Exception | None] = loop.create_future()
    others.append(mine)
    alarm = None if until == inf else loop.call_later(until - monotonic(), _end, mine)
    try:
        return await mine
    finally:
        if alarm is not None:
            alarm.cancel()


def _end(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


async def _asked(turns: _Turns, ask: Callable[[], Awaitable[LeaseState | Found]]) -> LeaseState | Found:
    try:
        answer = await ask()
        if isinstance(answer, Found):
            turns.answer = answer
        return answer
    except ANSWERS as answer:
        turns.answer = copy_exception(answer)  # without a traceback, which leads back here
        raise


async def _acquired(lock: asyncio.Lock, until: float) -> bool:
    try:
        async with asyncio.timeout(None if until == inf else until - monotonic()):
            return await lock.acquire()
    except TimeoutError:
        return False
