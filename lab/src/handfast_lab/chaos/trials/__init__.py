"""The trials, by name: one experiment each, and all of the same shape.

A trial's module is imported when it is asked for, so that a list of them costs nothing. Every one of them starts its own
servers, is bounded by its ``count``, ends whatever it started, and can be interrupted at any time. A bad result is counted,
never raised.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from handfast_lab.chaos.figures import Figure

if TYPE_CHECKING:
    from handfast_lab.rivals.contender import Contender

__all__ = ["TRIALS", "Tell", "Trial", "load"]

Tell = Callable[[int], object]
"""Called with the number of tries that are done, so that somebody who watches sees it go on."""


class Trial(Protocol):
    """What the module of a trial has."""

    ROWS: tuple[str, ...]
    """Rows of the scoreboard that it fills, such as ``("R4", "R5")``."""
    COUNT: int
    """How often it tries by default."""

    def applies(self, contender: Contender) -> bool:
        """Whether the contender has what the trial is about."""

    def trial(self, contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
        """Try it so often with this contender."""


_HERE = "handfast_lab.chaos.trials"

TRIALS: dict[str, str] = {
    name: f"{_HERE}.{name}"
    for name in (
        "lost_replies",
        "cancellations",
        "interrupts",
        "leaks",
        "keys_without_ttl",
        "renewals",
        "forks",
        "deaths",
        "wakeups",
        "fences",
        "memory",
        "flushed_scripts",
        "crowd",
        "stalls",
        "clocks",
        "names",
        "privileges",
    )
}
"""From the name of a trial to its module."""


def load(name: str) -> Trial:
    """The trial of that name. KeyError for one that does not exist, ImportError for one whose extra is not installed."""
    return cast("Trial", importlib.import_module(TRIALS[name]))
