"""Numbers that callers give: how many of something they want, and scores. The one place where they are checked."""

from __future__ import annotations

from math import inf, isfinite

__all__ = ["MAX_ITEMS", "check_int", "check_limit", "check_score"]

MAX_ITEMS = 10_000
"""The largest number of things that one reply may be asked for."""


def check_limit(limit: int) -> int:
    """How many at most. Raises TypeError for what is no int, and ValueError for one below 1 or above 10,000."""
    return check_int(limit, "limit", MAX_ITEMS)


def check_int(value: int, what: str, most: int) -> int:
    """A number of things, 1 at least. Raises TypeError for what is no int, and ValueError for one out of range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{what} must be from 1 to {most:,}, not {value!r}")
    return value


def check_score(value: float, what: str) -> float:
    """The score, as the server keeps it: a double.

    Raises TypeError for what is no number, and ValueError for one that is not finite or that a double cannot hold.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the score of {what!r} must be a number, not {value!r}")
    try:
        score = float(value)
    except OverflowError:
        score = inf  # an int above every double
    if isinstance(value, int) and score != value:
        raise ValueError(f"the score of {what!r} is {value!r}, which a double cannot hold: use a coarser unit")
    if not isfinite(score):
        raise ValueError(f"the score of {what!r} must be finite, not {value!r}")
    return score
