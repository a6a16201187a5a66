"""A blocking front end for an asyncio client, whose event loop keeps running in a thread between the calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from typing import Any, Self, TypeVar

from handfast_lab.rivals.verbs import LEASE, AioClient, AioLock, Lock

__all__ = ["LIMIT", "OnLoop"]

T = TypeVar("T")

LIMIT = 120.0
"""Seconds after which a call raises TimeoutError, so that the trial continues and reports it."""


class OnLoop:
    """An event loop in a thread of its own, and the client that runs on it."""

    def __init__(self, opening: AbstractAsyncContextManager[AioClient]) -> None:
        self._opening = opening
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="torture-loop", daemon=True)
        self._context = copy_context()  # one for all calls: some rivals keep their token in it

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._client: AioClient = self.call(self._enter(), self._context)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.call(self._leave(), self._context)
        finally:
            self._end()

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Lock:
        """See `Client`."""
        return Called(self, lambda: self._client.lock(name, ttl, renew=renew))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Lock:
        """See `Client`."""
        return Called(self, lambda: self._client.semaphore(name, limit, ttl))

    def call(self, doing: Coroutine[Any, Any, T] | Any, context: Context) -> T:
        """Run a coroutine on the loop and return its result."""
        done = threading.Event()
        made: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(_await(doing), context=context)
            made.append(task)
            task.add_done_callback(lambda _: done.set())

        self._loop.call_soon_threadsafe(begin)
        try:
            if not done.wait(LIMIT):
                raise TimeoutError(f"it did not end within {LIMIT:g} s")
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in made])
            raise
        return made[0].result()

    async def _enter(self) -> AioClient:
        """Open the client in a task that also closes it, which some rivals require."""
        self._over = asyncio.Event()
        opened: asyncio.Future[AioClient] = self._loop.create_future()

        async def live() -> None:
            try:
                async with self._opening as client:
                    opened.set_result(client)
                    await self._over.wait()
            except Exception as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        self._life = asyncio.create_task(live())
        return await opened

    async def _leave(self) -> None:
        self._over.set()
        await self._life

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end(self) -> None:
        async def stragglers() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        with contextlib.suppress(TimeoutError):
            self.call(stragglers(), copy_context())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()


class Called:
    """A blocking front end for an asyncio lock."""

    def __init__(self, home: OnLoop, make: Callable[[], AioLock]) -> None:
        self._home = home
        self._context = copy_context()

        async def made() -> AioLock:
            return make()

        self._lock: AioLock = home.call(made(), self._context)

    def acquire(self, timeout: float | None = None) -> bool:
        return self._home.call(self._lock.acquire(timeout), self._context)

    def release(self) -> bool:
        return self._home.call(self._lock.release(), self._context)

    def extend(self, seconds: float) -> None:
        self._home.call(self._lock.extend(seconds), self._context)


async def _await(doing: Any) -> Any:
    return await doing
