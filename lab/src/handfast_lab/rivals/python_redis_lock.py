"""python-redis-lock, whose waiters block in BLPOP."""

from __future__ import annotations

import importlib
import math
from typing import Any

from handfast_lab.rivals.base import Asked, OneKey, OverClient, OverRedis
from handfast_lab.rivals.contender import Contender, Wire, digests
from handfast_lab.rivals.verbs import LEASE

__all__ = ["CONTENDERS", "SYNC"]


class _PythonRedisLock(Asked):
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float | None = None) -> bool:
        self.tries += 1
        if timeout == 0:
            return bool(self._lock.acquire(blocking=False))
        return bool(self._lock.acquire(timeout=None if timeout is None else math.ceil(timeout)))

    def release(self) -> bool:
        self._lock.release()
        return True

    def extend(self, seconds: float) -> None:
        self._lock.extend(expire=math.ceil(seconds))


class _PythonRedis(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:
        made = importlib.import_module("redis_lock").Lock(self._redis, name, expire=math.ceil(ttl), auto_renewal=renew)
        return _PythonRedisLock(made)


def _python_redis_wire() -> Wire:
    library = importlib.import_module("redis_lock")
    return Wire(frozenset({"SET"}), digests(library.UNLOCK_SCRIPT), digests(library.EXTEND_SCRIPT))


_KEY = OneKey("lock:")


SYNC = Contender(
    "python-redis-lock",
    "python-redis-lock",
    _python_redis_wire,
    _KEY.left,
    _KEY.remaining,
    sync=OverRedis(_PythonRedis),
    extends="to",
    has=frozenset({"renewal"}),
    shortest_wait=1.0,
    shortest_ttl=1.0,
    remarks=("It counts leases and waits in whole seconds.",),
)

CONTENDERS = (SYNC,)
