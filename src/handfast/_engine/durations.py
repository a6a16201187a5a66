"""Durations: seconds in, whole milliseconds out. The one place where a duration is checked and rounded."""

from __future__ import annotations

import math
from datetime import timedelta

__all__ = ["Duration", "milliseconds"]

Duration = float | timedelta
"""Seconds, as a number or a timedelta."""

LONGEST = 366 * 24 * 3600


def milliseconds(value: Duration, what: str) -> int:
    """Whole milliseconds, rounded up, so that a lease is never shorter than asked for.

    Raises TypeError for what is no duration, and ValueError for one below a millisecond (zero and
    negative ones among them), above 366 days, infinite or not a number.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} must be seconds (a number) or a timedelta, not {value!r}")
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise ValueError(f"{what} must be finite, not {value!r}")
    if seconds > LONGEST:
        raise ValueError(f"{what} must be at most 366 days, not {value!r}")
    if seconds < 0.001:
        raise ValueError(f"{what} must be at least a millisecond (0.001), not {value!r}")
    # A float such as 0.003 * 1000 may come out a hair above 3: that hair is no millisecond.
    return math.ceil(round(seconds * 1000, 6))
