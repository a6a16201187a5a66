"""The trials by name: one experiment each, all with the same interface.

A trial's module is imported on request, so that listing the trials is cheap. Each trial starts its own servers, is
bounded by ``count``, ends all processes it started, and can be interrupted at any time. A failure is counted and never
raised.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from handfast_lab.chaos.figures import Figure

if TYPE_CHECKING:
    from handfast_lab.rivals.contender import Contender

__all__ = ["OF_OTHERS", "TRIALS", "Progress", "Tick", "Trial", "load", "one_by_one"]

Progress = Callable[[int], object]
"""Called with the number of tries done so far, to show progress."""


Tick = Callable[[], object]
"""Reports one more try."""


def one_by_one(progress: Progress) -> Tick:
    """Return a function that counts the tries and reports their number."""
    numbers = itertools.count(1)
    return lambda: progress(next(numbers))


class Trial(Protocol):
    """The interface of a trial's module."""

    ROWS: tuple[str, ...]
    """Rows of the scoreboard that the trial fills, such as ``("R4", "R5")``."""
    COUNT: int
    """Number of tries by default."""

    def applies(self, contender: Contender) -> bool:
        """Return whether the contender has the feature that the trial tests."""

    def trial(self, contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
        """Try `count` times with this contender and return the figures."""


_HERE = "handfast_lab.chaos.trials"

TRIALS: dict[str, str] = {
    name: f"{_HERE}.{name}"
    for name in (
        "lost_replies",
        "cancellations",
        "leaks",
        "deaths",
        "wakeups",
        "failovers",
        "cutoffs",
        "clusters",
        "stalls",
        "limiters",
        "once",
    )
}
"""Module of each trial, by name."""

OF_OTHERS = {"limiters": "limiters", "once": "once"}
"""The trials whose contenders are no locks, and what they are: the name of their package in `handfast_lab.rivals`."""


def load(name: str) -> Trial:
    """Import a trial by name. Raises KeyError for an unknown name and ImportError if its extra is not installed."""
    return cast("Trial", importlib.import_module(TRIALS[name]))
