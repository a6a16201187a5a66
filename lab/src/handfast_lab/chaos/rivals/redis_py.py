"""The lock of redis-py, which asks every 100 ms."""

from __future__ import annotations

import importlib
from typing import Any

from handfast_lab.chaos.contender import LEASE, Contender, Wire, digests
from handfast_lab.chaos.rivals.over import OneKey, OverAioRedis, OverClient, OverRedis, waiting

__all__ = ["CONTENDERS"]


class _RedisPyLock:
    def __init__(self, lock: Any) -> None:
        self._lock = self.native = lock

    def acquire(self, timeout: float | None = None) -> bool:
        return bool(self._lock.acquire(**waiting(timeout)))

    def release(self) -> bool:
        self._lock.release()
        return True

    def extend(self, seconds: float) -> None:
        self._lock.extend(seconds)


class _RedisPyAioLock:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def acquire(self, timeout: float | None = None) -> bool:
        return bool(await self._lock.acquire(**waiting(timeout)))

    async def release(self) -> bool:
        await self._lock.release()
        return True

    async def extend(self, seconds: float) -> None:
        await self._lock.extend(seconds)


class _RedisPy(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _RedisPyLock(self._redis.lock(name, timeout=ttl))


class _RedisPyAio(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _RedisPyAioLock(self._redis.lock(name, timeout=ttl))


def _redis_py_wire() -> Wire:
    lock = importlib.import_module("redis.lock").Lock
    return Wire(frozenset({"SET"}), digests(lock.LUA_RELEASE_SCRIPT), digests(lock.LUA_EXTEND_SCRIPT))


_KEY = OneKey()


CONTENDERS: tuple[Contender, ...] = (
    Contender(
        "redis-py",
        "redis",
        _redis_py_wire,
        _KEY.left,
        _KEY.remaining,
        sync=OverRedis(_RedisPy),
        extends="by",
    ),
    Contender(
        "redis-py (asyncio)",
        "redis",
        _redis_py_wire,
        _KEY.left,
        _KEY.remaining,
        aio=OverAioRedis(_RedisPyAio),
        extends="by",
    ),
)
"""In both colours, where it has both."""
