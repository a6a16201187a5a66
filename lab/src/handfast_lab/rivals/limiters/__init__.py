"""Adapters for the rate limiters of Handfast and its rivals, each used as its documentation shows.

`LIMITERS` holds those that the benchmark measures and the trial attacks. The library of a rival is imported on first
use.
"""

from __future__ import annotations

from collections.abc import Iterable

from handfast_lab.rivals.limiters import handfast, limits, pyrate, throttled
from handfast_lab.rivals.limiters.contender import LimiterContender

__all__ = ["LIMITERS", "installed"]

LIMITERS: dict[str, LimiterContender] = {
    contender.name: contender for module in (handfast, limits, throttled, pyrate) for contender in module.CONTENDERS
}
"""By name, in the order of the tables."""


def installed(names: Iterable[str] = LIMITERS) -> list[str]:
    """Return those of the contenders whose library is installed."""
    return [name for name in names if LIMITERS[name].version is not None]
