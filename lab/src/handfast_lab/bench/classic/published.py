"""The published figures, for comparison with the measured ones.

The first table was published with the listings: tries and acquires in 10 s, by client processes. The second, from a
later article, states neither duration nor machine, so only its shape can be compared: how successes change with the
number of parallel requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from handfast_lab.bench.figures import FIRST, LUA

__all__ = ["PUBLISHED", "SECONDS", "Figure", "Published"]

SECONDS = 10.0
"""Duration of the published measurements of locks."""


class Figure(NamedTuple):
    """One cell of a published table."""

    successes: int
    tries: int | None = None


class Published(NamedTuple):
    """One published table."""

    figures: Mapping[tuple[str, int], Figure]
    """By contender and number of clients."""
    timed: bool
    """Whether the publication states the duration."""


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
