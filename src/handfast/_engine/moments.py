"""Moments of the server's clock: microseconds since 1970 to scripts, datetimes to users. Both ways keep each microsecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["microseconds", "moment"]


def moment(us: float) -> datetime:
    """Return a time of the server in UTC."""
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    """Return the time of the server that `moment` has made."""
    from datetime import UTC, datetime, timedelta

    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
