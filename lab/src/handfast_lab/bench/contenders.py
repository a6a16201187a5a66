"""The contenders of each benchmark, by their names in its table, and one client of a contender for a measurement.

A client is created once, as in a program that keeps its lock in a variable. Rivals run with their defaults except for
the lease.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from handfast_lab.bench.baseline import BASELINE
from handfast_lab.bench.figures import CLASSIC, FLOOR, REDIS
from handfast_lab.rivals import OURS, OURS_AIO, coredis, listings, py_redis_semaphore, python_redis_lock, redis_py
from handfast_lab.rivals import redis_fifo_lock as fifo
from handfast_lab.rivals.contender import Contender

__all__ = ["FAIR", "HANDFAST", "LEASE", "LENIENT", "LOCKS", "SEMAPHORES", "TASK_LOCKS", "Contended", "installed"]

LEASE = 30.0
"""Lease in seconds of all contenders that allow one to be set: Handfast's default."""

HANDFAST = "handfast"

FAIR = "classic-fair"
"""The first form of the listings' fair semaphore, with a counter and a lock."""

LENIENT = frozenset({"classic-first", FAIR})
"""Contenders that are known to exceed the limit."""

LOCKS: Mapping[str, Contender] = {
    "classic-first": listings.FIRST,
    CLASSIC: listings.LUA,
    REDIS: redis_py.SYNC,
    "redis-py-1ms": redis_py.SYNC_FAST,
    "python-redis-lock": python_redis_lock.SYNC,
    HANDFAST: OURS,
    FLOOR: BASELINE,
}
"""Locks shared by processes."""

SEMAPHORES: Mapping[str, Contender] = {
    "classic-first": listings.FIRST,
    FAIR: listings.FAIR,
    CLASSIC: listings.LUA,
    "py-redis-semaphore": py_redis_semaphore.SYNC,
    HANDFAST: OURS,
    FLOOR: BASELINE,
}
"""Semaphores shared by processes."""

TASK_LOCKS: Mapping[str, Contender] = {
    REDIS: redis_py.AIO,
    "redis-py-1ms": redis_py.AIO_FAST,
    "coredis": coredis.AIO,
    "redis-fifo-lock": fifo.AIO,
    "py-redis-semaphore": py_redis_semaphore.AIO,
    HANDFAST: OURS_AIO,
}
"""Locks shared by the tasks of an event loop. The baseline is measured after them and is not a client."""


def installed(contenders: Mapping[str, Contender]) -> list[str]:
    """Return the names of the installed contenders."""
    return [name for name, contender in contenders.items() if contender.version is not None]


class Contended:
    """One client of one lock, or of one semaphore if ``limit`` is given; open until `close`."""

    acquire: Callable[[], object]
    release: Callable[[], object]

    def __init__(self, contender: Contender, url: str, name: str, limit: int | None = None) -> None:
        if contender.sync is None:
            raise TypeError(f"{contender.name} has no sync API")
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(contender.sync(url))
            self._lock: Any = client.lock(name, LEASE) if limit is None else client.semaphore(name, limit, LEASE)
            self.acquire, self.release = self._lock.acquire, self._lock.release
            self.close = stack.pop_all().close

    @property
    def tries(self) -> int:
        """Number of requests for the lock so far."""
        return int(self._lock.tries)

    @property
    def retries(self) -> int:
        """Number of WatchErrors so far."""
        return int(getattr(self._lock, "retries", 0))
