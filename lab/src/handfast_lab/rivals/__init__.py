"""Adapters for Handfast and its rivals, each used as its documentation shows, with defaults except for the lease.

`CONTENDERS` holds the libraries that the trials attack; `handfast_lab.bench.contenders` lists those that each benchmark
measures. The library of a rival is imported on first use: a library that is not installed costs nothing and is reported
as missing (see `Contender.version`).
"""

from __future__ import annotations

import redis

from handfast_lab.rivals import coredis, pottery, py_redis_semaphore, python_redis_lock, redis_fifo_lock, redis_py
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.handfast import OURS, OURS_AIO, held_or_wanted

__all__ = ["CONTENDERS", "OURS", "OURS_AIO", "is_left"]

_MODULES = redis_py, python_redis_lock, pottery, coredis, redis_fifo_lock, py_redis_semaphore

CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (OURS, OURS_AIO, *(contender for module in _MODULES for contender in module.CONTENDERS))
}
"""By name, in the order of the tables."""


def is_left(contender: Contender, admin: redis.Redis, name: str) -> bool:
    """Return whether a holder or a waiter of this name remains on the server."""
    if contender.is_ours:
        return held_or_wanted(admin, name)
    return any(name in key for key in contender.left(admin))
