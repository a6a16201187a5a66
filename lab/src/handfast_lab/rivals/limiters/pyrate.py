"""pyrate-limiter, with its Redis bucket.

Without its thread, which removes old entries every ten seconds and may fail when it is closed at once.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from handfast_lab.checker.windows import Admitted
from handfast_lab.rivals.base import place
from handfast_lab.rivals.limiters.contender import LimiterContender, MakeLimiter, Rate

__all__ = ["CONTENDERS"]


class _PyrateLimiter:
    def __init__(self, connection: Any, name: str, rates: Sequence[Rate]) -> None:
        library = importlib.import_module("pyrate_limiter")
        kept = [library.Rate(rate.limit, round(rate.per * 1000)) for rate in rates]
        self._name = name
        self._bucket = library.RedisBucket.init(kept, connection, f"pyrate:{name}")
        self._limiter = library.Limiter(library.SingleBucketFactory(self._bucket, schedule_leak=False))

    def try_acquire(self, cost: int = 1) -> bool:
        return bool(self._limiter.try_acquire(self._name, cost, blocking=False))

    def acquire(self, cost: int, timeout: float) -> bool:
        return bool(self._limiter.try_acquire(self._name, cost, timeout=timeout))

    def used(self) -> int:
        return int(self._bucket.count())


@contextlib.contextmanager
def _pyrate(url: str) -> Iterator[MakeLimiter]:
    with redis.Redis(**place(url)) as connection:
        yield lambda name, rates: _PyrateLimiter(connection, name, rates)


def _admission(_call: Sequence[str], command: Sequence[str], at: float) -> Admitted | None:
    """It adds one member for each unit of the cost."""
    return Admitted(at, len(command) // 2 - 1) if command[0].upper() == "ZADD" else None


CONTENDERS = (
    LimiterContender("pyrate-limiter", "pyrate-limiter", _pyrate, _admission, most_rates=4, shortest_period=0.001),
)
