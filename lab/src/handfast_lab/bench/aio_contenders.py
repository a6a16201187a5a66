"""Who is measured among the tasks of an event loop: the asyncio locks that people use today, and ours.

Each is one client, entered for as long as it is used, that gives the verbs of one lock to each task that wants one.
Rivals run with their defaults but for a lease, which all have here, and for a pool that may have as many connections as
they ask for: redis-py's own limit of 100 would fail the 101st task that waits.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import redis.asyncio
from redis.asyncio.lock import Lock

from handfast import AsyncHandfast
from handfast_lab.bench.contenders import LEASE
from handfast_lab.bench.figures import FLOOR, REDIS

__all__ = ["AIO_CONTENDERS", "OURS", "Verbs", "available"]

OURS = "handfast"


class Verbs(NamedTuple):
    """One task's lock."""

    acquire: Callable[[], Awaitable[object]]
    release: Callable[[], Awaitable[object]]
    waiting: Callable[[], Awaitable[int]] | None = None
    """How many wait for it, where the contender can tell."""


Client = Callable[[str], Verbs]
"""Gives the lock of that name to one task."""


@asynccontextmanager
async def _redis_client(url: str, tasks: int) -> AsyncIterator[Any]:
    """A client of redis-py; each task may need one connection to wait on and one to release with."""
    client: Any = redis.asyncio.Redis.from_url(url, max_connections=2 * tasks + 10)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def redis_py(url: str, tasks: int, *, pause: float = 0.1) -> AsyncIterator[Client]:
    """The lock of redis-py, asking every 100 ms, which is its default."""
    async with _redis_client(url, tasks) as client:

        def lock(name: str) -> Verbs:
            own = Lock(client, name, timeout=LEASE, sleep=pause)
            return Verbs(own.acquire, own.release)

        yield lock


@asynccontextmanager
async def coredis(url: str, tasks: int) -> AsyncIterator[Client]:
    """coredis, asking every 100 ms, which is its default; its pool lets tasks wait for a connection."""
    library, patterns = importlib.import_module("coredis"), importlib.import_module("coredis.patterns.lock")
    async with library.Redis.from_url(url, max_connections=2 * tasks + 10) as client:

        def lock(name: str) -> Verbs:
            own = patterns.Lock(client, name, timeout=float(LEASE))
            return Verbs(own.acquire, own.release)

        yield lock


@asynccontextmanager
async def redis_fifo_lock(url: str, tasks: int) -> AsyncIterator[Client]:
    """redis-fifo-lock, where each task that waits keeps a connection in BLPOP."""
    library = importlib.import_module("redis_fifo_lock")
    async with _redis_client(url, tasks) as client:

        def lock(name: str) -> Verbs:
            own = library.FifoLock(client, name, lease_ms=LEASE * 1000)
            hold = own.hold()

            async def waiting() -> int:
                return int((await own.stats())["waiting"])

            return Verbs(hold.__aenter__, partial(hold.__aexit__, None, None, None), waiting)

        yield lock


@asynccontextmanager
async def py_redis_semaphore(url: str, tasks: int) -> AsyncIterator[Client]:
    """py-redis-semaphore's mutex, where each task that waits keeps a connection in BLPOP."""
    library = importlib.import_module("redis_semaphore")
    async with _redis_client(url, tasks) as client:

        def lock(name: str) -> Verbs:
            own = library.Mutex(client, name, lock_timeout=float(LEASE))
            return Verbs(own.aacquire, own.arelease)

        yield lock


@asynccontextmanager
async def ours(url: str, tasks: int) -> AsyncIterator[Client]:  # noqa: ARG001 -- one connection does for any number
    """``async with hf.lock(name)``, and no option more."""
    async with AsyncHandfast(url) as client:

        def lock(name: str) -> Verbs:
            own = client.lock(name)

            async def waiting() -> int:
                return (await own.status()).waiting

            return Verbs(own.__aenter__, partial(own.__aexit__, None, None, None), waiting)

        yield lock


AIO_CONTENDERS: dict[str, Callable[[str, int], AbstractAsyncContextManager[Client]]] = {
    REDIS: redis_py,
    "redis-py-1ms": partial(redis_py, pause=0.001),
    "coredis": coredis,
    "redis-fifo-lock": redis_fifo_lock,
    "py-redis-semaphore": py_redis_semaphore,
    OURS: ours,
}
"""By name, in the order of the table: a client for so many tasks. The floor comes after them and is none."""

PACKAGES = {"coredis": "coredis", "redis-fifo-lock": "redis_fifo_lock", "py-redis-semaphore": "redis_semaphore"}


def available() -> list[str]:
    """The names of those that can run here, and the floor: what is not installed is left out."""
    missing = {name for name, package in PACKAGES.items() if not importlib.util.find_spec(package)}
    return [name for name in (*AIO_CONTENDERS, FLOOR) if name not in missing]
