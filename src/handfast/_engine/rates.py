"""Rates as callers write them: a text such as ``"10/s; 500/min"``, a `Rate`, or several of these; and of several metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from handfast._engine.limits import MAX_WINDOWS, Limit
from handfast._engine.validate import check_int, milliseconds
from handfast._kinds import MAX_PERMITS

if TYPE_CHECKING:
    from handfast.records import Rate

__all__ = ["MAX_METRICS", "MAX_RATES", "check_costs", "merged", "rates_text", "read_metrics", "read_rates", "read_text"]

MAX_RATES = 4
"""Upper bound of the rates of one limiter without metrics."""

MAX_METRICS = 4
"""Upper bound of the metrics of one limiter."""

METRIC = r"[a-z_][a-z0-9_]{0,19}"
"""The name of a metric: it is a parameter of `MetricAdmission.settle`, and a part of a key."""

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

Rates: TypeAlias = "str | Rate | Iterable[str | Rate]"

RATE = r"\s*([0-9]{1,10})\s*(?:/|per)\s*([0-9]{1,10})?\s*([a-z]+)\s*"
"""A rate in a text, in lower case."""


def read_rates(rates: Rates) -> tuple[Limit, ...]:
    """Read 1 to 4 rates with different periods, and return them in the order of the periods.

    Raises TypeError for anything other than rates, and ValueError for bad ones.
    """
    found: dict[int, Limit] = {}
    for rate in _each(rates):
        if rate.per_ms in found:
            raise ValueError(f"rates has two rates with a period of {rate.per_ms / 1000:g} s; use the smaller one")
        found[rate.per_ms] = rate
    check_int(len(found), "the number of rates", MAX_RATES)
    return tuple(found[per_ms] for per_ms in sorted(found))


def read_metrics(rates: Mapping[str, Rates]) -> tuple[Limit, ...]:
    """Read the rates of 1 to 4 metrics, 8 at most, and return them by metric in the order of their periods.

    Raises TypeError for anything other than rates, and ValueError for bad ones.
    """
    if not isinstance(rates, Mapping):
        raise TypeError(f"rates must be a mapping such as {{'tokens': '200000/min'}}, not {rates!r}")
    check_int(len(rates), "the number of metrics", MAX_METRICS)
    for metric in rates:
        if not isinstance(metric, str):
            raise TypeError(f"the name of a metric must be a str, not {metric!r}")
        if not re.fullmatch(METRIC, metric):
            raise ValueError(
                f"the name of a metric has 1 to 20 characters of a-z, 0-9 and _, and no digit first; not {metric!r}"
            )
    found = [Limit(*rate[:2], metric) for metric in sorted(rates) for rate in read_rates(rates[metric])]
    check_int(len(found), "the number of rates", MAX_WINDOWS)
    return tuple(found)


def merged(own: Iterable[Limit], rates: Mapping[str, Rates]) -> tuple[Limit, ...]:
    """Read the rates of some metrics, and return them with those of the others. Raises as `read_metrics`."""
    others, metrics = read_metrics(rates), {rate.metric for rate in own}
    if unknown := set(rates) - metrics:
        raise ValueError(f"{min(unknown)!r} is no metric of this limiter; it has {', '.join(sorted(metrics))}")
    found = sorted([*others, *(rate for rate in own if rate.metric not in rates)], key=lambda rate: rate.window)
    check_int(len(found), "the number of rates", MAX_WINDOWS)
    return tuple(found)


def read_text(text: str) -> Rates | dict[str, Rates]:
    """Read the rates of a command: as they are, or with metrics: ``requests: 500/min; tokens: 200000/min; 20000000/d``."""
    if ":" not in text:
        return text
    found, metric = dict[str, list[str]](), None
    for part in text.split(";"):
        before, colon, rate = part.rpartition(":")
        metric = before.strip() if colon else metric
        if metric is None:
            raise ValueError(
                f"the rate {part.strip()!r} stands before the first metric; write 'tokens: {part.strip()}'"
            )
        found.setdefault(metric, []).append(rate)
    return {metric: ";".join(some) for metric, some in found.items()}


def check_costs(costs: Mapping[str, int], rates: Iterable[Limit]) -> dict[str, int]:
    """Return the cost of a call by metric.

    Raises TypeError for anything other than costs; ValueError for an unknown metric, or a number out of range.
    """
    if not isinstance(costs, Mapping):
        raise TypeError(f"this limiter has metrics, so cost must be a mapping such as {{'tokens': 500}}, not {costs!r}")
    metrics = {rate.metric for rate in rates}
    if unknown := set(costs) - metrics:
        raise ValueError(
            f"{min(unknown, key=repr)!r} is no metric of this limiter; it has {', '.join(sorted(metrics))}"
        )
    return {metric: check_int(cost, f"the cost in {metric}", MAX_PERMITS, least=0) for metric, cost in costs.items()}


def rates_text(rates: Iterable[Limit]) -> str:
    """Write rates as `read_text` reads them: ``10/s; 500/min``, ``requests: 500/min; tokens: 200000/min; 20000000/d``."""
    words, metric = [], ""
    for rate in rates:
        words.append(f"{f'{rate.metric}: ' if rate.metric != metric else ''}{rate.limit}/{_period_text(rate.per_ms)}")
        metric = rate.metric
    return "; ".join(words)


def _period_text(per_ms: int) -> str:
    unit = next(unit for unit in ("d", "h", "min", "s", "ms") if per_ms % UNITS_MS[unit] == 0)
    return f"{per_ms // UNITS_MS[unit]}{unit}".removeprefix("1" if per_ms == UNITS_MS[unit] else "")


def _each(rates: Rates) -> Iterable[Limit]:
    from handfast.records import Rate

    if isinstance(rates, Mapping):
        raise TypeError(f"rates with metrics stand alone, and not among others: {rates!r}")
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
        forms = "'10/s', '500/min', '1/100ms' or '10 per 2 hours'"
        forms = "metrics as a mapping: {'tokens': '200000/min'}" if ":" in text else forms
        raise ValueError(f"{text.strip()!r} is no rate; write {forms}")
    per_ms = int(found[2] or 1) * UNITS_MS[unit]
    return Limit(check_int(int(found[1]), "the limit of a rate", MAX_PERMITS), _check_period(per_ms, text.strip()))


def _check_period(per_ms: int, rate: object) -> int:
    if not 1 <= per_ms <= MAX_PERIOD_MS:
        raise ValueError(f"the period of a rate must be from 1 ms to 31 days, and that of {rate!r} is not")
    return per_ms
