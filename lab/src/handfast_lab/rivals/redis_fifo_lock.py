"""redis-fifo-lock, where each waiter has its own list and a connection that blocks in BLPOP."""

from __future__ import annotations

import importlib
from typing import Any

import redis

from handfast_lab.rivals.base import OverAioRedis, OverClient
from handfast_lab.rivals.contender import Contender, Wire, digests, keys
from handfast_lab.rivals.verbs import LEASE

__all__ = ["AIO", "CONTENDERS"]


class _FifoLock:
    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._lease: Any = None

    async def acquire(self, timeout: float | None = None) -> bool:
        try:
            self._lease = await self._lock.acquire(timeout=timeout)
        except TimeoutError:
            return False
        return True

    async def release(self) -> bool:
        await self._lock.release(self._lease)
        return True

    async def waiting(self) -> int:
        """Return the number of waiters."""
        return int((await self._lock.stats())["waiting"])

    async def extend(self, seconds: float) -> None:
        raise NotImplementedError(f"not by {seconds:g} s: it renews by itself")


class _Fifo(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it always renews
        library = importlib.import_module("redis_fifo_lock")
        return _FifoLock(library.FifoLock(self._redis, name, lease_ms=round(ttl * 1000)))


def _fifo_wire() -> Wire:
    scripts = importlib.import_module("redis_fifo_lock.scripts")
    return Wire(digests(scripts.ACQUIRE), digests(scripts.RELEASE), digests(scripts.BEAT))


def _fifo_left(admin: redis.Redis) -> list[str]:
    """Return the keys of the holder and the queue.

    Its counters never expire, and its record of a release expires after ten leases; neither is reported.
    """
    return [key for key in keys(admin) if key.endswith(("}:h", "}:q"))]


def _fifo_remaining(admin: redis.Redis, name: str) -> float:
    return max(0.0, float(admin.pttl(f"{{{name}}}:h")))


AIO = Contender(
    "redis-fifo-lock (asyncio)",
    "redis-fifo-lock",
    _fifo_wire,
    _fifo_left,
    _fifo_remaining,
    aio=OverAioRedis(_Fifo),
    has=frozenset({"renewal", "fence"}),
    remarks=(
        "It renews by itself, and has no call to extend a lease.",
        "It remembers each release for ten leases, in a key of its own; its counters never expire.",
    ),
)

CONTENDERS = (AIO,)
