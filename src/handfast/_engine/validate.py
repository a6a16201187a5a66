"""Validation of what callers pass: names, durations, counts and scores. The one place where each is checked.

Every function returns the checked value in the form that the engine uses. It raises TypeError for a value of the wrong
type and ValueError for one out of range; the message names the argument, its bounds and the value.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import get_args
from urllib.parse import quote

from handfast.arguments import Duration, OnBusy, OnLost

__all__ = [
    "MAX_DURATION_S",
    "MAX_ITEMS",
    "MAX_LABEL_BYTES",
    "MAX_NAME_BYTES",
    "check_int",
    "check_limit",
    "check_on_busy",
    "check_on_lost",
    "check_score",
    "encode_name",
    "milliseconds",
    "utf8",
    "wait_seconds",
]

MAX_DURATION_S = 366 * 24 * 3600
"""Upper bound of every duration: a leap year."""

MAX_ITEMS = 10_000
"""Upper bound of ``limit`` where it bounds the items of one reply."""

MAX_NAME_BYTES = 16 * 1024
"""Upper bound of a name, in bytes of UTF-8."""

MAX_LABEL_BYTES = 200
"""Upper bound of a label, in bytes of UTF-8: every waiter and every holder has it in its record."""

_ON_BUSY = get_args(OnBusy)
_ON_LOST = get_args(OnLost)


def milliseconds(value: Duration, what: str) -> int:
    """Convert a duration to whole milliseconds, rounded up, so that a lease is never shorter than requested.

    The bounds are 0.001 s and 366 days.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} must be seconds (a number) or a timedelta, not {value!r}")
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise ValueError(f"{what} must be finite, not {value!r}")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{what} must be at most 366 days, not {value!r}")
    if seconds < 0.001:
        raise ValueError(f"{what} must be at least a millisecond (0.001), not {value!r}")
    # Rounded first: 0.003 * 1000 may be slightly above 3, and ceil() would make 4 of it.
    return math.ceil(round(seconds * 1000, 6))


def wait_seconds(timeout: Duration | None) -> float | None:
    """Convert how long a caller waits to seconds: None without a limit, 0 not at all.

    Nothing that can be waited for lasts longer than 366 days, so more than that is no limit.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"timeout must be seconds (a number), a timedelta or None, not {timeout!r}")
    if math.isnan(seconds):
        raise ValueError("timeout must be a number of seconds, not nan")
    return None if seconds > MAX_DURATION_S else max(0.0, float(seconds))


def encode_name(name: str, what: str, *, safe: str = "") -> str:
    """Percent-encode every byte of a name except letters, digits, ``_.-~`` and those in ``safe``.

    The result is ASCII without braces, blanks and control characters, so a name can't break the hash tag of its keys.
    Different names stay different; ``urllib.parse.unquote`` restores the name.
    """
    return quote(utf8(name, what), safe=safe)


def utf8(text: str, what: str, most: int = MAX_NAME_BYTES) -> bytes:
    """Encode a name: not empty, and of at most so many bytes of UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {text!r}")
    if not text:
        raise ValueError(f"{what} must not be empty")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, not {text!r}") from None
    if len(data) > most:
        raise ValueError(f"{what} must be at most {most} bytes of UTF-8, not {len(data)}")
    return data


def check_limit(limit: int) -> int:
    """Check how many items a reply may have: 1 to 10,000."""
    return check_int(limit, "limit", MAX_ITEMS)


def check_int(value: int, what: str, most: int) -> int:
    """Check a count: 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{what} must be from 1 to {most:,}, not {value!r}")
    return value


def check_score(value: float, what: str) -> float:
    """Check a score: finite, and exactly a double, which is how the server stores it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the score of {what!r} must be a number, not {value!r}")
    try:
        score = float(value)
    except OverflowError:
        score = math.inf  # an int above every double
    if isinstance(value, int) and score != value:
        raise ValueError(f"the score of {what!r} is {value!r}, which a double cannot hold: use a coarser unit")
    if not math.isfinite(score):
        raise ValueError(f"the score of {what!r} must be finite, not {value!r}")
    return score


def check_on_busy(on_busy: OnBusy) -> OnBusy:
    """Check what a decorated function does if its lock is not acquired in time."""
    if on_busy not in _ON_BUSY:
        raise ValueError(f"on_busy must be {' or '.join(map(repr, _ON_BUSY))}, not {on_busy!r}")
    return on_busy


def check_on_lost(on_lost: OnLost) -> OnLost:
    """Check what a lost lease does to its ``with`` block."""
    if on_lost not in _ON_LOST:
        raise ValueError(f"on_lost must be {' or '.join(map(repr, _ON_LOST))}, not {on_lost!r}")
    return on_lost
