"""Handfast's limiter, in both APIs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from handfast import AsyncHandfast, Handfast, RateLimited
from handfast import Rate as OurRate
from handfast_lab.checker.windows import Admitted
from handfast_lab.rivals.limiters.contender import LimiterContender, MakeLimiter, Rate

__all__ = ["CONTENDERS"]


class _OurLimiter:
    """A limiter of either API; ``settled`` returns the result of its calls."""

    def __init__(self, limiter: Any, settled: Callable[[Any], Any]) -> None:
        self._limiter, self._settled = limiter, settled

    def try_acquire(self, cost: int = 1) -> bool:
        return bool(self._settled(self._limiter.try_acquire(cost=cost)))

    def acquire(self, cost: int, timeout: float) -> bool:
        try:
            return bool(self._settled(self._limiter.acquire(cost=cost, timeout=timeout)))
        except RateLimited:
            return False

    def used(self) -> int:
        return int(self._settled(self._limiter.status()).rates[0].used)


def _maker(hf: Any, settled: Callable[[Any], Any]) -> MakeLimiter:
    def make(name: str, rates: Sequence[Rate]) -> _OurLimiter:
        return _OurLimiter(hf.limiter(name, [OurRate(*rate) for rate in rates]), settled)

    return make


@contextlib.contextmanager
def _ours(url: str) -> Iterator[MakeLimiter]:
    with Handfast(url) as hf:
        yield _maker(hf, lambda answer: answer)


@contextlib.contextmanager
def _ours_aio(url: str) -> Iterator[MakeLimiter]:
    async def settle(answer: Any) -> Any:
        return await answer

    with asyncio.Runner() as runner:
        hf = AsyncHandfast(url)
        try:
            yield _maker(hf, lambda answer: runner.run(settle(answer)))
        finally:
            runner.run(hf.aclose())


def _admission(call: Sequence[str], command: Sequence[str], _at: float) -> Admitted | None:
    """One command adds an admission to a window and sets its sum. It counts in the first window that the call names.

    The time is the score.
    """
    if command[0] == "ZADD" and command[3] == "=" and len(command) == 7:
        first = next(word for word in call if ":window:" in word)
        return Admitted(float(command[4]) / 1e6, int(command[6])) if command[1] == first else None
    return None


CONTENDERS = tuple(
    LimiterContender(name, "handfast", opened, _admission, most_rates=4, shortest_period=0.001)
    for name, opened in (("handfast", _ours), ("handfast (asyncio)", _ours_aio))
)
