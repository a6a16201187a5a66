"""A trial of Handfast written once, for both APIs: as a coroutine that awaits only what is to be awaited.

In the sync API such a coroutine runs in a thread and never suspends: calls block there, so whoever goes on side by side
with others has a thread of its own. In asyncio it is a task. Started ones are futures in both, with the same `result`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
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

__all__ = ["APIS", "Api", "Started", "api_of", "hushed", "settled"]

T = TypeVar("T")

Started: TypeAlias = Any
"""A future of `concurrent.futures` or of asyncio: ``done``, ``result`` and ``exception`` are what they have in common."""

LOOK = 0.002
"""Seconds between two looks at something that is to come true."""


async def settled(value: Any) -> Any:
    """What was given, awaited if it can be."""
    return await value if inspect.isawaitable(value) else value


@contextmanager
def hushed() -> Iterator[None]:
    """Within the block no lost lease is logged: they are lost by design."""
    logger = logging.getLogger("handfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Api(ABC):
    """How one API is used."""

    name: str
    client_class: Callable[..., Any]
    library: Any
    """``redis`` or ``redis.asyncio``."""

    @abstractmethod
    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """Go through it to its end."""

    @abstractmethod
    def start(self, body: Callable[[], Coroutine[Any, Any, T]]) -> Started:
        """Let it go on side by side with what comes."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    async def late(self, started: Iterable[Started], within: float) -> list[Started]:
        """Wait until all of them are over, but no longer than that many seconds; those that are not."""

    @asynccontextmanager
    async def client(self, server: Any, **options: Any) -> AsyncIterator[Any]:
        """A client of ours, closed at the end."""
        client = self.client_class(server, **options)
        try:
            yield client
        finally:
            await settled(client.close())

    async def eventually(self, condition: Callable[[], Any], within: float = 10.0) -> bool:
        """Wait until it comes true, but no longer than that many seconds; whether it has."""
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
            except BaseException as error:  # noqa: BLE001 -- it is whoever asks for the result that hears of it
                future.set_exception(error)

        threading.Thread(target=live, daemon=True).start()
        return future

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 -- whoever awaits it has a thread of its own

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
"""By name."""


def api_of(contender: Contender) -> Api:
    """The API that it has."""
    return APIS[contender.api]
