"""The lock of redis-py, which polls every 100 ms by default."""

from __future__ import annotations

from functools import partial
from typing import Any

import redis.asyncio.lock
import redis.lock

from handfast_lab.rivals.base import OneKey, OverAioRedis, OverClient, OverRedis, waiting
from handfast_lab.rivals.contender import Contender, Wire, digests
from handfast_lab.rivals.verbs import LEASE

__all__ = ["AIO", "AIO_FAST", "CONTENDERS", "SYNC", "SYNC_FAST"]

PAUSE, SHORT_PAUSE = 0.1, 0.001
"""Seconds between two attempts: redis-py's default, and the polling period of the listings."""


class _Counted(redis.lock.Lock):
    tries = 0

    def do_acquire(self, token: str) -> bool:
        self.tries += 1
        return super().do_acquire(token)


class _RedisPyLock:
    def __init__(self, lock: _Counted) -> None:
        self._lock = lock

    @property
    def tries(self) -> int:
        return self._lock.tries

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
    def __init__(self, connection: Any, pause: float = PAUSE) -> None:
        super().__init__(connection)
        self._pause = pause

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _RedisPyLock(_Counted(self._redis, name, timeout=ttl, sleep=self._pause))


class _RedisPyAio(_RedisPy):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _RedisPyAioLock(redis.asyncio.lock.Lock(self._redis, name, timeout=ttl, sleep=self._pause))


def _wire() -> Wire:
    lock = redis.lock.Lock
    return Wire(frozenset({"SET"}), digests(lock.LUA_RELEASE_SCRIPT), digests(lock.LUA_EXTEND_SCRIPT))


_KEY = OneKey()
_common = partial(Contender, distribution="redis", wire=_wire, left=_KEY.left, remaining=_KEY.remaining, extends="by")

SYNC = _common("redis-py", sync=OverRedis(_RedisPy))
AIO = _common("redis-py (asyncio)", aio=OverAioRedis(_RedisPyAio))
SYNC_FAST = _common("redis-py-1ms", sync=OverRedis(partial(_RedisPy, pause=SHORT_PAUSE)))
AIO_FAST = _common("redis-py-1ms (asyncio)", aio=OverAioRedis(partial(_RedisPyAio, pause=SHORT_PAUSE)))

CONTENDERS = SYNC, AIO
"""The contenders that the trials attack."""
