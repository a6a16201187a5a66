"""The contenders of each benchmark, by their names in its table.

Rivals run with their defaults except for the lease.
"""

from __future__ import annotations

from collections.abc import Mapping

from handfast_lab.bench.baseline import BASELINE
from handfast_lab.bench.figures import FIRST, FLOOR, LUA, REDIS
from handfast_lab.rivals import OURS, OURS_AIO, coredis, listings, py_redis_semaphore, python_redis_lock, redis_py
from handfast_lab.rivals import redis_fifo_lock as fifo
from handfast_lab.rivals.contender import Contender

__all__ = ["FAIR", "HANDFAST", "LEASE", "LENIENT", "LOCKS", "SEMAPHORES", "TASK_LOCKS", "installed"]

LEASE = 30.0
"""Lease in seconds of all contenders that allow one to be set: Handfast's default."""

HANDFAST = "handfast"

FAIR = "classic-fair"
"""The first form of the listings' fair semaphore, with a counter and a lock."""

LENIENT = frozenset({FIRST, FAIR})
"""Contenders that are known to exceed the limit."""

LOCKS: Mapping[str, Contender] = {
    FIRST: listings.FIRST,
    LUA: listings.LUA,
    REDIS: redis_py.SYNC,
    "redis-py-1ms": redis_py.SYNC_FAST,
    "python-redis-lock": python_redis_lock.SYNC,
    HANDFAST: OURS,
    FLOOR: BASELINE,
}
"""Locks shared by processes."""

SEMAPHORES: Mapping[str, Contender] = {
    FIRST: listings.FIRST,
    FAIR: listings.FAIR,
    LUA: listings.LUA,
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
