"""Names without leases as text for people: limiters, debounced names and latches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from handfast.cli.durations import limit, period, span
from handfast.cli.operate.table import fitted, lines, printable
from handfast.cli.operate.words import action
from handfast.records import DebounceStatus, LatchStatus, LimiterStatus, NameStatus, RateStatus

__all__ = ["described", "fullness", "summary", "used"]

HEADS: dict[str, tuple[str, ...]] = {
    "limiter": ("LIMITER", "USED", "QUEUE", "WAITED", "PAUSED"),
    "debounce": ("DEBOUNCE", "RUNS IN", "CALLS FOR", "ITEMS"),
    "latch": ("LATCH", "DONE", "WAITING"),
}
"""The head of the table of each kind."""

PARTS_SHOWN = 10
"""Parts of a latch that `described` lists."""


def fullness(status: LimiterStatus) -> float:
    """Return how full a limiter is under its tightest rate: 1 if nothing more fits."""
    return max((rate.used / rate.limit for rate in status.rates if rate.limit), default=0.0)


def summary(found: Sequence[NameStatus], most: int | None) -> Iterator[str]:
    """Yield a table for each kind, with a line for each name."""
    is_first = True
    for kind, head in HEADS.items():
        rows = [_row(one) for one in found if one.kind == kind]
        if rows:
            if not is_first:
                yield ""
            is_first = False
            flexible = (0, 1) if kind == "limiter" else (0,)
            yield from lines([head, *rows], most, flexible=flexible, right=range(len(flexible), len(head)))


def described(found: NameStatus, most: int | None) -> Iterator[str]:
    """Yield all that is known of a name."""
    yield fitted(f"{found.kind} {printable(found.name)}", most)
    match found.status:
        case LimiterStatus() as status:
            for rate in status.rates:
                reset = f"; all free in {span(rate.reset_after)}" if rate.used else ""
                yield f"  {_used(rate)}{reset}"
            if not all(rate.limit for rate in status.rates):
                yield "  the limit is not known here: each client brings its own"
            longest = "" if status.longest_wait is None else f", the first one for {span(status.longest_wait)}"
            yield f"  {status.waiting:,} waiting{longest}"
            if status.paused_for:
                yield f"  paused for {span(status.paused_for)}"
            if status.last is not None:
                yield ""
                yield from (f"  {line}" for line in action(status.last))
        case DebounceStatus() as status:
            if status.due_in is None:
                yield "  no call waits"
            else:
                yield f"  runs in {limit(status.due_in)}; calls for {span(status.burst_for or 0)}"
            yield f"  {status.items:,} item{'s' * (status.items != 1)} that no run has done"
        case LatchStatus() as status:
            shown = ", ".join(map(printable, status.done[:PARTS_SHOWN]))
            more = f" and {status.number - PARTS_SHOWN:,} more" if status.number > PARTS_SHOWN else ""
            yield fitted(f"  {status.number:,} done{f': {shown}{more}' if shown else ''}", most)
            yield f"  {status.waiting:,} waiting"


def used(status: LimiterStatus) -> str:
    """Say in a cell how much is used: ``480/500 in 1m``."""
    return ", ".join(map(_used, status.rates))


def _used(rate: RateStatus) -> str:
    return f"{rate.used:,}{f'/{rate.limit:,}' if rate.limit else ''} in {period(rate.per)}"


def _row(found: NameStatus) -> tuple[str, ...]:
    name = printable(found.name)
    match found.status:
        case LimiterStatus() as status:
            longest = "" if status.longest_wait is None else span(status.longest_wait)
            paused = span(status.paused_for) if status.paused_for else ""
            return name, used(status), _number(status.waiting), longest, paused
        case DebounceStatus() as status:
            due, since = ("" if one is None else span(one) for one in (status.due_in, status.burst_for))
            return name, due, since, _number(status.items)
        case LatchStatus() as status:
            return name, _number(status.number), _number(status.waiting)
    raise TypeError(found)


def _number(count: int) -> str:
    return f"{count:,}" if count else ""
