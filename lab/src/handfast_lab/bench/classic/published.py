"""The figures that the measured ones are held against.

The first table was published with the listings: tries and acquires of 10 s, by clients that were processes. The second,
from a later article, names no duration and no machine, so only its shape says anything: how successes change with the
number of requests in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from handfast_lab.bench.classic.client import FIRST, LUA

__all__ = ["PUBLISHED", "SECONDS", "Figure", "Published"]

SECONDS = 10.0
"""Of the published measurements of locks."""


class Figure(NamedTuple):
    """What one cell of a published table says."""

    successes: int
    tries: int | None = None


class Published(NamedTuple):
    """One published table."""

    figures: Mapping[tuple[str, int], Figure]
    """By contender and clients."""
    timed: bool
    """Whether it says for how long it was measured."""


PUBLISHED: Mapping[str, Published] = {
    "locks": Published(
        {
            (FIRST, 1): Figure(31_359, 31_359),
            (FIRST, 2): Figure(22_507, 30_085),
            (FIRST, 5): Figure(19_695, 47_694),
            (FIRST, 10): Figure(14_361, 71_917),
            (LUA, 1): Figure(44_494, 44_494),
            (LUA, 2): Figure(42_199, 50_404),
            (LUA, 5): Figure(40_826, 70_807),
            (LUA, 10): Figure(33_990, 96_871),
        },
        timed=True,
    ),
    "autocomplete": Published(
        {
            (FIRST, 1): Figure(1000),
            (FIRST, 2): Figure(800),
            (FIRST, 5): Figure(400),
            (FIRST, 10): Figure(200),
            (LUA, 1): Figure(1500),
            (LUA, 2): Figure(2800),
            (LUA, 5): Figure(6000),
            (LUA, 10): Figure(10_000),
        },
        timed=False,
    ),
}
"""By table."""
