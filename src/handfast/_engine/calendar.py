"""Periods of the calendar: when a budget begins anew, by the clock on the wall of a time zone.

A script knows two moments alone. This module makes them: of a day, a week, a month, a quarter, a year, or of all time.
A month that begins on the 31st begins on the last day of a shorter month. Where the hour after midnight is left out or
repeated, the period begins with the first moment of the day.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from handfast._engine.moments import microseconds, moment

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from handfast._engine.money import Amount

__all__ = ["END_US", "PERIODS", "Calendar", "read_budget"]

END_US = 2**53 - 1
"""The end of ``total``, in microseconds since 1970: in the year 2255."""

LAST_BEGIN = {"day": 0, "week": 7, "month": 31, "quarter": 31, "year": 12, "total": 0}
"""Upper bound of ``begins`` by the period; 0 where there is nothing to choose."""

PERIODS = tuple(LAST_BEGIN)

MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""How many months a period has."""

BUDGET = r"\s*([0-9.]{1,40})\s*(?:/|per\s)?\s*([a-z]+)\s*"
"""A limit and a period in a text, in lower case."""


@cache
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


class Calendar(NamedTuple):
    """The periods of a budget."""

    period: str
    zone: str
    begins: int
    """Of a week the weekday from 1, Monday, to 7; of a month or a quarter the day; of a year the month."""

    @classmethod
    def checked(cls, period: str, zone: str, begins: int) -> Calendar:
        """Return the periods. Raises TypeError or ValueError."""
        if not isinstance(zone, str):
            raise TypeError(f"zone must be the name of a time zone such as 'Europe/Berlin', not {zone!r}")
        if isinstance(begins, bool) or not isinstance(begins, int):
            raise TypeError(f"begins must be an int, not {begins!r}")
        most = LAST_BEGIN[period]
        if not 1 <= begins <= max(1, most):
            asked = f"begins must be from 1 to {most} for a {period}" if most else f"a {period} has no begins"
            raise ValueError(f"{asked}, not {begins}")
        try:
            _zone(zone)
        except (ValueError, OSError, LookupError):
            raise ValueError(
                f"{zone!r} is no time zone that this machine knows; write a name such as 'Europe/Berlin', and install "
                "the package tzdata where the system has no time zones"
            ) from None
        return cls(period, zone, begins)

    def __str__(self) -> str:
        """Return the definition that is stored: ``month Europe/Berlin 15``."""
        return f"{self.period} {self.zone} {self.begins}"

    @classmethod
    def read(cls, text: str) -> Calendar:
        """Read a definition. Raises ValueError if it is none."""
        words = text.split(" ")
        if len(words) != 3 or words[0] not in PERIODS or not words[2].isdecimal():
            raise ValueError(f"{text!r} is no period")
        return cls.checked(words[0], words[1], int(words[2]))

    def at(self, now_us: int) -> tuple[int, int]:
        """Return begin and end of the period of a moment, in microseconds since 1970."""
        if self.period == "total":
            return 0, END_US
        first = self._first(moment(now_us).astimezone(_zone(self.zone)).date())
        # The date of a moment may be that of the day before: a clock that is set back at midnight shows a day twice.
        while self._instant(first) > now_us:
            first = self._first(first - timedelta(days=1))
        while (end_us := self._instant(following := self._following(first))) <= now_us:
            first = following
        return self._instant(first), end_us

    def _instant(self, day: date) -> int:
        """Return the first moment of a day there."""
        return microseconds(datetime.combine(day, time(), tzinfo=_zone(self.zone)))

    def _first(self, day: date) -> date:
        """Return the first day of the period that has this day."""
        if self.period == "day":
            return day
        if self.period == "week":
            return day - timedelta(days=(day.isoweekday() - self.begins) % 7)
        first = self._in_month(*self._aligned(day.year, day.month))
        return first if first <= day else self._in_month(*_months_later(first, -MONTHS[self.period]))

    def _following(self, first: date) -> date:
        """Return the first day of the next period."""
        if self.period in MONTHS:
            return self._in_month(*_months_later(first, MONTHS[self.period]))
        return first + timedelta(days=1 if self.period == "day" else 7)

    def _aligned(self, year: int, month: int) -> tuple[int, int]:
        """Return the month in which a period begins: this one, or one before."""
        start = self.begins if self.period == "year" else 1
        return _month_of(12 * year + month - 1 - (month - start) % MONTHS[self.period])

    def _in_month(self, year: int, month: int) -> date:
        day = 1 if self.period == "year" else self.begins
        return date(year, month, min(day, monthrange(year, month)[1]))


def _months_later(day: date, months: int) -> tuple[int, int]:
    return _month_of(12 * day.year + day.month - 1 + months)


def _month_of(months: int) -> tuple[int, int]:
    return months // 12, months % 12 + 1


def read_budget(budget: str | tuple[Amount, str]) -> tuple[Amount, str]:
    """Read a limit and a period, such as ``100.00/month``. Raises TypeError or ValueError."""
    if isinstance(budget, tuple) and len(budget) == 2 and budget[1] in PERIODS:
        return budget
    if not isinstance(budget, str):
        raise TypeError(f"a budget must be a text such as '100.00/month', or a limit and a period, not {budget!r}")
    text = budget
    found = re.fullmatch(BUDGET, text.lower())
    if found is None or found[2] not in PERIODS:
        raise ValueError(f"{text!r} is no budget; write '100.00/month', with one of {', '.join(PERIODS)}")
    return found[1], found[2]
