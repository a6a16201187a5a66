"""The soak test that several trials share: workers repeat operations under a fault, and violations are counted.

A trial starts the fault and the observer that it needs, runs workers that claim operations from a `Soak` until all are
done, and declares what the resulting figure counts. A worker is a coroutine that serves both APIs: see `apis`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import count as counting
from math import inf
from time import monotonic
from typing import Any

from handfast_lab.chaos.apis import api_of
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals.contender import Contender

__all__ = ["Soak"]


@dataclass
class Soak:
    """One soak test of one contender."""

    contender: Contender
    count: int
    """Number of operations."""
    seed: int
    progress: Progress
    seconds: float = inf
    """Time after which no further operation starts."""
    done: int = 0
    wrong: list[str] = field(default_factory=list)
    """The violations."""

    def __post_init__(self) -> None:
        self.api = api_of(self.contender)
        self._until = monotonic() + self.seconds
        self._numbers = counting()
        self._lock = threading.Lock()

    def chance(self, worker: int | None = None) -> random.Random:
        """Return the random numbers of one worker, or of the trial itself."""
        return random.Random(self.seed if worker is None else f"{self.seed}/{worker}")  # noqa: S311 -- test data

    @property
    def remaining(self) -> float:
        """Seconds within which operations may still start."""
        return max(0.0, self._until - monotonic())

    @property
    def goes_on(self) -> bool:
        """Whether operations and time are left."""
        return self.done < self.count and self.remaining > 0

    def claim(self) -> int | None:
        """Return the number of the next operation, or None if none is left."""
        return number if self.remaining and (number := next(self._numbers)) < self.count else None

    def step(self, wrong: str = "") -> None:
        """Count an operation, and record what was wrong with it."""
        with self._lock:
            self.done += 1
        if wrong:
            self.wrong.append(wrong)
        self.progress(self.done)

    async def run(self, workers: Iterable[Callable[[], Coroutine[Any, Any, object]]], within: float) -> None:
        """Run the workers concurrently. Those that raise, or have not ended in `within` seconds, are violations."""
        self.wrong += await self.api.failures([self.api.start(worker) for worker in workers], within)

    def figure(
        self,
        row: str,
        what: str,
        unit: str,
        measured: dict[str, float | str],
        *,
        tried: int | None = None,
        bad: int | None = None,
    ) -> Figure:
        """Return the figure. By default it compares the violations with the operations done."""
        return Figure(
            row,
            what,
            self.contender.name,
            self.done if tried is None else tried,
            len(self.wrong) if bad is None else bad,
            unit,
            measured,
            self.seed,
            examples_of(self.wrong),
        )
