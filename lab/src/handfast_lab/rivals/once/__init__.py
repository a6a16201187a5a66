"""Adapters for the `once` of Handfast and for its rivals, each used as its documentation shows.

`RUNNERS` holds those that the trial attacks and the benchmark measures. The library of a rival is imported on first
use.
"""

from __future__ import annotations

from collections.abc import Iterable

from handfast_lab.rivals.once import cashews, dogpile, handfast
from handfast_lab.rivals.once.contender import OnceContender

__all__ = ["RUNNERS", "installed"]

RUNNERS: dict[str, OnceContender] = {
    contender.name: contender for module in (handfast, dogpile, cashews) for contender in module.CONTENDERS
}
"""By name, in the order of the tables."""


def installed(names: Iterable[str] = RUNNERS) -> list[str]:
    """Return those of the contenders whose library is installed."""
    return [name for name in names if RUNNERS[name].version is not None]
