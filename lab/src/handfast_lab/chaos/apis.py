"""Write a trial of Handfast once for both APIs: as a coroutine that passes each call through `settled`.

In the sync API such a coroutine runs in a thread and never suspends, because calls block; concurrent parts have a
thread each. In asyncio it is a task. `Api.start` returns a future in both.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import redis
import redis.asyncio

from handfast import AsyncHandfast, Handfast
from handfast_lab.rivals.contender import Contender

__all__ = ["APIS", "Api", "Started", "api_of", "is_renewed", "log_silenced", "opened", "settled"]

T = TypeVar("T")

Started: TypeAlias = Any
"""A future of `concurrent.futures` or of asyncio. Both have ``done``, ``result`` and ``exception``."""

LOOK = 0.002
"""Seconds between two polls of a condition."""


async def settled(value: Any) -> Any:
    """Return the value, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


@contextmanager
def log_silenced() -> Iterator[None]:
    """Suppress Handfast's log of lost leases, which are expected in a trial."""
    logger = logging.getLogger("handfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Api(ABC):
    """How a trial uses one of the two APIs."""

    name: str
    client_class: Callable[..., Any]
    library: Any
    """``redis`` or ``redis.asyncio``."""

    @abstractmethod
    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine to its end and return its result."""

    @abstractmethod
    def start(self, body: Callable[[], Coroutine[Any, Any, T]]) -> Started:
        """Start the coroutine concurrently and return a future."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Sleep for that many seconds."""

    @abstractmethod
    async def late(self, started: Iterable[Started], within: float) -> list[Started]:
        """Wait for all futures, at most `within` seconds; return those that are not done."""

    async def failures(self, started: Iterable[Started], within: float) -> list[str]:
        """Wait for all futures, and describe those that raised or were not done in time."""
        futures = list(started)
        late = await self.late(futures, within)
        raised = [repr(one.exception()) for one in futures if one not in late and one.exception() is not None]
        return [*(f"{one!r} did not end in {within:g} s" for one in late), *raised]

    @asynccontextmanager
    async def client(self, server: Any, **options: Any) -> AsyncIterator[Any]:
        """Open a Handfast client and close it at the end."""
        client = self.client_class(server, **options)
        try:
            yield client
        finally:
            await settled(client.close())

    async def eventually(self, condition: Callable[[], Any], within: float = 10.0) -> bool:
        """Poll until the condition is true, at most `within` seconds; return whether it became true."""
        until = time.monotonic() + within
        while not await settled(condition()):
            if time.monotonic() >= until:
                return False
            await self.sleep(LOOK)
        return True


class _Sync(Api):
    name = "sync"
    client_class = Handfast
    library = redis

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        try:
            body.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        body.close()
        raise RuntimeError("a trial in the sync API awaited something that was not there yet")

    def start(self, body: Callable[[], Coroutine[Any, Any, T]]) -> Started:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def live() -> None:
            try:
                future.set_result(self.run(body()))
            except BaseException as error:  # noqa: BLE001 -- the future passes it on
                future.set_exception(error)

        threading.Thread(target=live, daemon=True).start()
        return future

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 -- the caller has a thread of its own

    async def late(self, started: Iterable[Started], within: float) -> list[Started]:
        return list(concurrent.futures.wait(started, within).not_done)


class _Asyncio(Api):
    name = "asyncio"
    client_class = AsyncHandfast
    library = redis.asyncio

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(body)

    def start(self, body: Callable[[], Coroutine[Any, Any, T]]) -> Started:
        return asyncio.get_running_loop().create_task(body())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def late(self, started: Iterable[Started], within: float) -> list[Started]:
        waited_for = list(started)
        return list((await asyncio.wait(waited_for, timeout=within))[1]) if waited_for else []


APIS: dict[str, Api] = {api.name: api for api in (_Sync(), _Asyncio())}
"""The two APIs, by name."""


def api_of(contender: Contender) -> Api:
    """Return the API of the contender."""
    return APIS[contender.api]


@asynccontextmanager
async def opened(contender: Contender, url: str) -> AsyncIterator[Any]:
    """Open the contender's client, in its own API."""
    if contender.sync is not None:
        with contender.sync(url) as client:
            yield client
    elif contender.aio is not None:
        async with contender.aio(url) as client:
            yield client


def is_renewed(contender: Contender, admin: redis.Redis, name: str) -> Callable[[], bool]:
    """Return a function that tells whether the lease of that name was renewed since its last call."""
    remaining = math.inf

    def is_longer() -> bool:
        nonlocal remaining
        before, remaining = remaining, contender.remaining(admin, name)
        return remaining > before

    return is_longer
