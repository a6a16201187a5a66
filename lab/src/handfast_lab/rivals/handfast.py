"""Adapters for Handfast, in both APIs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import redis

from handfast import AcquireTimeout, AsyncHandfast, Handfast
from handfast._engine.script import load
from handfast_lab.rivals.base import Asked
from handfast_lab.rivals.contender import Contender, Wire, keys
from handfast_lab.rivals.verbs import LEASE, AioClient, AioLock, Client, Lock
from handfast_lab.stored import PARTS, read_stored

__all__ = ["OURS", "OURS_AIO", "held_or_wanted"]


class _OurLock(Asked):
    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self._lease: Any = None

    def acquire(self, timeout: float | None = None) -> bool:
        self.tries += 1
        if timeout == 0:
            self._lease = self._thing.try_acquire()
            return self._lease is not None
        try:
            self._lease = self._thing.acquire(timeout=timeout)
        except AcquireTimeout:
            return False
        return True

    def release(self) -> bool:
        return bool(self._lease.release())

    def extend(self, seconds: float) -> None:
        self._lease.extend(seconds)


class _OurAioLock:
    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self._lease: Any = None

    async def acquire(self, timeout: float | None = None) -> bool:
        if timeout == 0:
            self._lease = await self._thing.try_acquire()
            return self._lease is not None
        try:
            self._lease = await self._thing.acquire(timeout=timeout)
        except AcquireTimeout:
            return False
        return True

    async def release(self) -> bool:
        return bool(await self._lease.release())

    async def waiting(self) -> int:
        """Return the number of waiters."""
        return int((await self._thing.status()).waiting)

    async def extend(self, seconds: float) -> None:
        await self._lease.extend(seconds)


class _Ours:
    def __init__(self, hf: Handfast) -> None:
        self._hf = hf

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Lock:  # noqa: ARG002 -- it always renews
        return _OurLock(self._hf.lock(name, ttl=ttl))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Lock:
        return _OurLock(self._hf.semaphore(name, limit, ttl=ttl))


class _OursAio:
    def __init__(self, hf: AsyncHandfast) -> None:
        self._hf = hf

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> AioLock:  # noqa: ARG002 -- it always renews
        return _OurAioLock(self._hf.lock(name, ttl=ttl))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> AioLock:
        return _OurAioLock(self._hf.semaphore(name, limit, ttl=ttl))


@contextlib.contextmanager
def _ours(url: str) -> Iterator[Client]:
    with Handfast(url) as hf:
        yield _Ours(hf)


@contextlib.asynccontextmanager
async def _ours_aio(url: str, _connections: int | None = None) -> AsyncIterator[AioClient]:
    async with AsyncHandfast(url) as hf:
        yield _OursAio(hf)


def _our_wire() -> Wire:
    def scripts(verb: str, *nouns: str) -> frozenset[str]:
        return frozenset(load(f"{noun}_{verb}").digest for noun in ("permit", *nouns))

    acquires = scripts("acquire", "multi")
    return Wire(acquires, scripts("release"), scripts("renew"), acquires)


def _our_left(admin: redis.Redis) -> list[str]:
    """Return the names with waiters or unexpired leases.

    Their keys remain for a while by design and have a TTL, so they are not reported.
    """
    tags = {tag for tag, _, part in (key.rpartition(":") for key in keys(admin)) if part in PARTS}
    return [tag for tag in sorted(tags) if read_stored(admin, tag).is_busy]


def held_or_wanted(admin: redis.Redis, name: str) -> bool:
    """Return whether a lock, semaphore or read-write lock of this name has a holder or a waiter."""
    return any(read_stored(admin, f"{{hf:{kind}:{name}}}").is_busy for kind in ("lock", "semaphore", "rwlock"))


def _our_remaining(admin: redis.Redis, name: str) -> float:
    stored = read_stored(admin, f"{{hf:lock:{name}}}")
    return max([0.0, *((its_end - stored.now) / 1000 for its_end in stored.holders.values())])


OURS = Contender(
    "handfast",
    "handfast",
    _our_wire,
    _our_left,
    _our_remaining,
    sync=_ours,
    extends="to",
    has=frozenset({"semaphore", "renewal", "fence", "rwlock", "lock_all"}),
)
"""Handfast's sync API."""

OURS_AIO = Contender(
    "handfast (asyncio)",
    "handfast",
    _our_wire,
    _our_left,
    _our_remaining,
    aio=_ours_aio,
    extends="to",
    has=OURS.has,
)
"""Handfast's asyncio API."""
