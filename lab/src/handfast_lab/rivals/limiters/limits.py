"""limits, with the strategy that is exact: a moving window. It has no call that waits."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from handfast_lab.checker.windows import Admitted
from handfast_lab.rivals.limiters.contender import LimiterContender, MakeLimiter, Rate

__all__ = ["CONTENDERS"]


class _LimitsLimiter:
    def __init__(self, strategy: Any, name: str, rate: Rate) -> None:
        self._strategy, self._name = strategy, name
        self._item = importlib.import_module("limits").RateLimitItemPerSecond(rate.limit, int(rate.per))

    def try_acquire(self, cost: int = 1) -> bool:
        return bool(self._strategy.hit(self._item, self._name, cost=cost))

    def acquire(self, cost: int, timeout: float) -> bool:
        raise NotImplementedError(f"limits does not wait for {cost} in {timeout:g} s")

    def used(self) -> int:
        return int(self._item.amount - self._strategy.get_window_stats(self._item, self._name).remaining)


@contextlib.contextmanager
def _limits(url: str) -> Iterator[MakeLimiter]:
    storage = importlib.import_module("limits.storage").storage_from_string(url.replace("unix://", "redis+unix://", 1))
    strategy = importlib.import_module("limits.strategies").MovingWindowRateLimiter(storage)

    def make(name: str, rates: Sequence[Rate]) -> _LimitsLimiter:
        (rate,) = rates
        return _LimitsLimiter(strategy, name, rate)

    try:
        yield make
    finally:
        storage.storage.close()


def _admission(_call: Sequence[str], command: Sequence[str], at: float) -> Admitted | None:
    """It pushes one entry for each unit of the cost."""
    return Admitted(at, len(command) - 2) if command[0].lower() == "lpush" else None


CONTENDERS = (LimiterContender("limits", "limits", _limits, _admission, waits=False),)
