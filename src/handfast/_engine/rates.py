"""Rates as callers write them: a text such as ``"10/s; 500/min"``, a `Rate`, or several of these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from handfast._engine.limits import Limit
from handfast._engine.validate import check_int, milliseconds
from handfast._kinds import MAX_PERMITS

if TYPE_CHECKING:
    from handfast.records import Rate

__all__ = ["MAX_RATES", "rates_text", "read_rates"]

MAX_RATES = 4
"""Upper bound of the rates of one limiter."""

MAX_PERIOD_MS = 31 * 24 * 3600 * 1000
"""Upper bound of a period: 31 days."""

UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond"), 1),
    **dict.fromkeys(("s", "sec", "second"), 1_000),
    **dict.fromkeys(("min", "minute"), 60_000),
    **dict.fromkeys(("h", "hour"), 3_600_000),
    **dict.fromkeys(("d", "day"), 86_400_000),
    "month": 30 * 86_400_000,
}
"""The units in milliseconds. Those that are words may have an ``s``. The package ``limits`` has months of 30 days,
too."""

RATE = r"\s*([0-9]{1,10})\s*(?:/|per)\s*([0-9]{1,10})?\s*([a-z]+)\s*"
"""A rate in a text, in lower case."""


def read_rates(rates: str | Rate | Iterable[str | Rate]) -> tuple[Limit, ...]:
    """Read 1 to 4 rates with different periods, and return them in the order of these.

    Raises TypeError for what are no rates, and ValueError for bad ones.
    """
    found: dict[int, Limit] = {}
    for rate in _each(rates):
        if rate.per_ms in found:
            raise ValueError(f"rates has two rates with a period of {rate.per_ms / 1000:g} s; use the smaller one")
        found[rate.per_ms] = rate
    check_int(len(found), "the number of rates", MAX_RATES)
    return tuple(found[per_ms] for per_ms in sorted(found))


def rates_text(rates: Iterable[Limit]) -> str:
    """Write rates as `read_rates` reads them: ``10/s; 500/min; 1/100ms``."""
    return "; ".join(f"{limit}/{_period_text(per_ms)}" for limit, per_ms in rates)


def _period_text(per_ms: int) -> str:
    unit = next(unit for unit in ("d", "h", "min", "s", "ms") if per_ms % UNITS_MS[unit] == 0)
    return f"{per_ms // UNITS_MS[unit]}{unit}".removeprefix("1" if per_ms == UNITS_MS[unit] else "")


def _each(rates: str | Rate | Iterable[str | Rate]) -> Iterable[Limit]:
    from handfast.records import Rate

    if isinstance(rates, str):
        for text in re.split("[;,|]", rates):
            yield _read(text)
    elif isinstance(rates, Rate):
        yield Limit(check_int(rates.limit, "limit", MAX_PERMITS), _check_period(milliseconds(rates.per, "per"), rates))
    elif isinstance(rates, Iterable) and not isinstance(rates, bytes):
        for rate in rates:
            if not isinstance(rate, str | Rate):
                raise TypeError(f"rates must be texts such as '10/s' or Rates, not {rate!r}")
            yield from _each(rate)
    else:
        raise TypeError(f"rates must be a text such as '10/s; 500/min', a Rate, or several of these, not {rates!r}")


def _read(text: str) -> Limit:
    found = re.fullmatch(RATE, text.lower())
    unit = found and (found[3] if found[3] in UNITS_MS else found[3].removesuffix("s"))
    if found is None or unit not in UNITS_MS:
        raise ValueError(f"{text.strip()!r} is no rate; write '10/s', '500/min', '1/100ms' or '10 per 2 hours'")
    per_ms = int(found[2] or 1) * UNITS_MS[unit]
    return Limit(check_int(int(found[1]), "the limit of a rate", MAX_PERMITS), _check_period(per_ms, text.strip()))


def _check_period(per_ms: int, rate: object) -> int:
    if not 1 <= per_ms <= MAX_PERIOD_MS:
        raise ValueError(f"the period of a rate must be from 1 ms to 31 days, and that of {rate!r} is not")
    return per_ms
