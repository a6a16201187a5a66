"""Windows of rate limiters: within any period, admissions cost at most the limit.

A window is half open: an admission has lapsed when exactly one period has passed. Independent of servers and clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Admitted", "largest_window", "windows_above"]


class Admitted(NamedTuple):
    """One admission."""

    at: float
    """When the server decided it, in seconds of its clock."""
    cost: int = 1


def windows_above(admissions: Iterable[Admitted], limit: int, per: float) -> list[int]:
    """Return the sum of every window above the limit, of those that end with an admission."""
    return [used for used in _windows(admissions, per) if used > limit]


def largest_window(admissions: Iterable[Admitted], per: float) -> int:
    """Return the largest sum of any window; 0 without admissions."""
    return max(_windows(admissions, per), default=0)


def _windows(admissions: Iterable[Admitted], per: float) -> Iterable[int]:
    """Yield the sum of each window that ends with an admission."""
    window: deque[Admitted] = deque()
    used = 0
    for one in sorted(admissions):
        while window and window[0].at <= one.at - per:
            used -= window.popleft().cost
        window.append(one)
        used += one.cost
        yield used
