"""throttled-py, with the algorithm that it recommends for a steady rate, and with its sliding window."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from handfast_lab.checker.windows import Admitted
from handfast_lab.rivals.limiters.contender import LimiterContender, MakeLimiter, Rate

__all__ = ["CONTENDERS"]


class _ThrottledLimiter:
    def __init__(self, made: Any, name: str) -> None:
        self._made, self._name = made, name

    def try_acquire(self, cost: int = 1) -> bool:
        return not self._made.limit(self._name, cost).limited

    def acquire(self, cost: int, timeout: float) -> bool:
        return not self._made.limit(self._name, cost, timeout).limited

    def used(self) -> int:
        state = self._made.peek(self._name)
        return int(state.limit - state.remaining)


def _opener(algorithm: str) -> Callable[[str], AbstractContextManager[MakeLimiter]]:
    @contextlib.contextmanager
    def opened(url: str) -> Iterator[MakeLimiter]:
        library = importlib.import_module("throttled")
        store = library.RedisStore(server=url)

        def make(name: str, rates: Sequence[Rate]) -> _ThrottledLimiter:
            (rate,) = rates
            quota = library.per_duration(timedelta(seconds=rate.per), rate.limit)
            return _ThrottledLimiter(library.Throttled(using=algorithm, quota=quota, store=store), name)

        yield make

    return opened


def _admission(call: Sequence[str], command: Sequence[str], at: float) -> Admitted | None:
    """A script writes only if it admits. The cost is its third argument."""
    if command[0].upper() not in ("SET", "INCRBY"):
        return None
    keys = int(call[2])
    return Admitted(at, int(call[3 + keys + 2]))


CONTENDERS = tuple(
    LimiterContender(f"throttled-py ({shown})", "throttled-py", _opener(algorithm), _admission, is_exact=False)
    for shown, algorithm in (("GCRA", "gcra"), ("sliding window", "sliding_window"))
)
