"""py-redis-semaphore: its semaphore, and its mutex, a semaphore with one permit."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import redis

from handfast_lab.rivals.base import Asked, OverAioRedis, OverRedis
from handfast_lab.rivals.contender import Contender, Wire, digests, keys, microseconds
from handfast_lab.rivals.verbs import LEASE, AioClient, Client

__all__ = ["AIO", "CONTENDERS", "SYNC"]


class _SemaphoreLock(Asked):
    def __init__(self, make: Callable[[float | None], Any]) -> None:
        self._make = make
        self._held: Any = None

    def acquire(self, timeout: float | None = None) -> bool:
        self.tries += 1
        self._held = self._make(timeout or None)
        try:
            return bool(self._held.acquire(blocking=timeout != 0).success)
        except importlib.import_module("redis_semaphore").AcquireTimeoutError:
            return False

    def release(self) -> bool:
        return bool(self._held.release())

    def extend(self, seconds: float) -> None:  # noqa: ARG002 -- it knows how long a lease is
        if not self._held.refresh():
            raise RuntimeError("it was told that the lease is lost")


class _SemaphoreAioLock:
    def __init__(self, make: Callable[[float | None], Any]) -> None:
        self._make = make
        self._held: Any = None

    async def acquire(self, timeout: float | None = None) -> bool:
        self._held = self._make(timeout or None)
        try:
            return bool((await self._held.aacquire(blocking=timeout != 0)).success)
        except importlib.import_module("redis_semaphore").AcquireTimeoutError:
            return False

    async def release(self) -> bool:
        return bool(await self._held.arelease())

    async def extend(self, seconds: float) -> None:  # noqa: ARG002 -- it knows how long a lease is
        if not await self._held.arefresh():
            raise RuntimeError("it was told that the lease is lost")


@dataclass(frozen=True)
class _Semaphores:
    """A client, and the class of its locks. The timeout is part of a semaphore, so one is created for each timeout."""

    redis: Any
    kind: Callable[[Callable[[float | None], Any]], Any]

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it always renews
        library = importlib.import_module("redis_semaphore")
        return self.kind(cache(lambda wait: library.Mutex(self.redis, name, lock_timeout=ttl, acquire_timeout=wait)))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Any:
        library = importlib.import_module("redis_semaphore")

        @cache
        def make(wait: float | None) -> Any:
            config = library.SemaphoreConfig(name=name, limit=limit, lock_timeout=ttl, acquire_timeout=wait)
            return library.Semaphore(self.redis, config)

        return self.kind(make)


def _semaphores(connection: Any) -> Client:
    return _Semaphores(connection, _SemaphoreLock)


def _semaphores_aio(connection: Any) -> AioClient:
    return _Semaphores(connection, _SemaphoreAioLock)


def _semaphores_wire() -> Wire:
    scripts = importlib.import_module("redis_semaphore.lua_scripts")
    takes = digests(scripts.ACQUIRE_SCRIPT)
    return Wire(takes, digests(scripts.RELEASE_SCRIPT), digests(scripts.REFRESH_SCRIPT), takes)


def _semaphores_left(admin: redis.Redis) -> list[str]:
    now = microseconds(admin) // 1000
    return [key for key in keys(admin) if key.endswith(":owners") and admin.zcount(key, f"({now}", "+inf")]


def _semaphores_remaining(admin: redis.Redis, name: str) -> float:
    held: Any = admin.zrange(f"mutex:{name}:owners", -1, -1, withscores=True)
    return max(0.0, held[0][1] - microseconds(admin) / 1000) if held else 0.0


_common = partial(
    Contender,
    distribution="py-redis-semaphore",
    wire=_semaphores_wire,
    left=_semaphores_left,
    remaining=_semaphores_remaining,
    extends="again",
    has=frozenset({"semaphore", "renewal", "fence"}),
)

SYNC = _common("py-redis-semaphore", sync=OverRedis(_semaphores))
AIO = _common("py-redis-semaphore (asyncio)", aio=OverAioRedis(_semaphores_aio))

CONTENDERS = SYNC, AIO
