"""The header ``Retry-After`` of an answer such as 429: seconds, or a date (RFC 9110, 10.2.3), as servers send it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["UNKNOWN_S", "retry_after"]

UNKNOWN_S = 1.0
"""What a header stands for that is missing, empty or can't be read, in seconds: the other side has had enough, and does
not say for how long."""


def retry_after(header: str | None, now: datetime) -> float:
    """Return for how many seconds a header asks: the longest time, if there are several, and 0 for a past time."""
    text = (header or "").strip()
    if re.fullmatch(r"[\d.,\s]+", text):
        seconds = [float(one) for one in re.split(r"[,\s]+", text) if re.fullmatch(r"\d+(\.\d*)?|\.\d+", one)]
        return max(seconds, default=UNKNOWN_S)
    if re.fullmatch(r"-\d+(\.\d*)?", text):
        return 0.0
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return UNKNOWN_S
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
