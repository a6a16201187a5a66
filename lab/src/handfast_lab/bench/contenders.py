"""Who is measured: the classic listings, the locks that people use today, ours, and the floor under it.

Each is one client of one lock and made once, as a program would that keeps its lock in a variable. Rivals run with their
defaults but for a lease, which all have here. A class may only count tries where the contender itself polls.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import redis
import redis.lock

from handfast import Handfast
from handfast.classic import acquire_lock_with_timeout, release_lock, watch
from handfast_lab.bench.counting import WatchCounted
from handfast_lab.bench.figures import CLASSIC, FLOOR
from handfast_lab.bench.floor import Floor

__all__ = ["CONTENDERS", "Contender", "available"]

LEASE = 30
"""Seconds, for all contenders that leave the choice to the caller: what Handfast has by default."""

RETRY_FOR = 3600
"""Seconds, where a contender must be told how long to wait: for ever."""


class Contender(Protocol):
    """One client of one lock."""

    @property
    def tries(self) -> int:
        """How often it has asked for the lock so far."""

    def acquire(self) -> object:
        """Wait for the lock."""

    def release(self) -> object:
        """Give it up."""

    def close(self) -> object:
        """Close the connections."""


class _SetnxCounted(WatchCounted):
    tries = 0

    def setnx(self, *args: Any, **options: Any) -> Any:
        self.tries += 1
        return super().setnx(*args, **options)


class _EvalshaCounted(redis.Redis):
    calls = 0

    def evalsha(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return super().evalsha(*args, **options)


class ClassicFirst:
    """The classic listing, first form: SETNX and EXPIRE, WATCH and MULTI."""

    def __init__(self, url: str, name: str) -> None:
        self._conn: Any = _SetnxCounted.from_url(url)  # typed as redis.Redis there
        self._name = name

    @property
    def tries(self) -> int:
        return int(self._conn.tries)

    @property
    def retries(self) -> int:
        """How often a release had to start over."""
        return int(self._conn.retries)

    def acquire(self) -> None:
        self._identifier = watch.acquire_lock_with_timeout(self._conn, self._name, RETRY_FOR, LEASE) or ""

    def release(self) -> None:
        watch.release_lock(self._conn, self._name, self._identifier)

    def close(self) -> None:
        self._conn.close()


class ClassicLua:
    """The classic listing, Lua form. Every script call but the releases is a try."""

    def __init__(self, url: str, name: str) -> None:
        self._conn: Any = _EvalshaCounted.from_url(url)  # typed as redis.Redis there
        self._name = name
        self._releases = 0

    @property
    def tries(self) -> int:
        return int(self._conn.calls) - self._releases

    def acquire(self) -> None:
        self._identifier = acquire_lock_with_timeout(self._conn, self._name, RETRY_FOR, LEASE) or ""

    def release(self) -> None:
        self._releases += 1
        release_lock(self._conn, self._name, self._identifier)

    def close(self) -> None:
        self._conn.close()


class RedisPy(redis.lock.Lock):
    """The lock of redis-py, asking every 100 ms, which is its default."""

    PAUSE = 0.1

    def __init__(self, url: str, name: str) -> None:
        self.tries = 0
        super().__init__(redis.Redis.from_url(url), name, timeout=LEASE, sleep=self.PAUSE)

    def do_acquire(self, token: str) -> bool:
        self.tries += 1
        return super().do_acquire(token)

    def close(self) -> None:
        self.redis.close()


class RedisPyFast(RedisPy):
    """The lock of redis-py, asking every millisecond."""

    PAUSE = 0.001


class PythonRedisLock:
    """python-redis-lock, which sleeps in BLPOP."""

    def __init__(self, url: str, name: str) -> None:
        self.tries = 0
        self._conn = redis.Redis.from_url(url)
        self._lock = importlib.import_module("redis_lock").Lock(self._conn, name, expire=LEASE)
        self.release = self._lock.release

    def acquire(self) -> None:
        self.tries += 1
        self._lock.acquire()

    def close(self) -> None:
        self._conn.close()


class Ours:
    """``with hf.lock(name)``, and no option more."""

    def __init__(self, url: str, name: str) -> None:
        self.tries = 0
        self._client = Handfast(url)
        self._lock = self._client.lock(name)

    def acquire(self) -> None:
        self.tries += 1
        self._lock.__enter__()

    def release(self) -> None:
        self._lock.__exit__(None, None, None)

    def close(self) -> None:
        self._client.close()


CONTENDERS: dict[str, Callable[[str, str], Contender]] = {
    "classic-first": ClassicFirst,
    CLASSIC: ClassicLua,
    "redis-py": RedisPy,
    "redis-py-1ms": RedisPyFast,
    "python-redis-lock": PythonRedisLock,
    "handfast": Ours,
    FLOOR: Floor,
}
"""By name, in the order of the table: makes one from a URL and the name of the lock."""


def available() -> list[str]:
    """The names of those that can run here: what is not installed is left out."""
    missing = set() if importlib.util.find_spec("redis_lock") else {"python-redis-lock"}
    return [name for name in CONTENDERS if name not in missing]
