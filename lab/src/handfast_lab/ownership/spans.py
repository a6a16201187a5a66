"""Spans of ownership: when a thing was whose, and what overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from statistics import quantiles
from typing import Any, NamedTuple

from handfast_lab.children import ChildProcess, Report

__all__ = ["Ledger", "Span", "doubles", "idle", "spread"]


class Span(NamedTuple):
    """A time for which an owner had a thing."""

    thing: str
    owner: str
    fence: int
    began: float
    ended: float


class Ledger:
    """The spans that child processes report: ``began`` with thing and fence, ``ended`` with thing, fence and time."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._open: dict[tuple[str, str, int], float] = {}

    def note(self, child: ChildProcess, report: Report) -> None:
        """Take a report."""
        if report.word == "began":
            thing, fence, *at = report.value
            self._open[child.name, thing, fence] = at[0] if at else report.at
        elif report.word == "ended":
            thing, fence, ended = report.value
            self._close(child.name, thing, fence, ended)

    def died(self, child: ChildProcess, at: float) -> None:
        """End all spans of a process."""
        for name, thing, fence in [one for one in self._open if one[0] == child.name]:
            self._close(name, thing, fence, at)

    def owned(self, child: ChildProcess) -> list[str]:
        """Return what a process owns now."""
        return [thing for name, thing, _ in self._open if name == child.name]

    def owners(self) -> dict[str, str]:
        """Return who owns each thing now."""
        return {thing: name for name, thing, _ in self._open}

    def so_far(self) -> list[Span]:
        """Return all spans; an open span ends never."""
        return [*self.spans, *(Span(thing, name, fence, at, inf) for (name, thing, fence), at in self._open.items())]

    def close(self, at: float) -> list[Span]:
        """End all spans, and return them."""
        for name, thing, fence in list(self._open):
            self._close(name, thing, fence, at)
        return self.spans

    def _close(self, name: str, thing: str, fence: int, at: float) -> None:
        began = self._open.pop((name, thing, fence), None)
        if began is not None:
            self.spans.append(Span(thing, name, fence, began, max(began, at)))


def doubles(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """Return each span that begins before another of the same thing has ended, with this other span."""
    return [(last, span) for last, span in _neighbours(spans) if last is not None and last.ended > span.began]


def idle(spans: Iterable[Span], after: float, things: Iterable[str]) -> list[float]:
    """Return for how long each of these things had no owner after a moment."""
    first: dict[str, float] = {}
    for span in spans:
        if span.began > after:
            first[span.thing] = min(first.get(span.thing, span.began), span.began)
    return [first[thing] - after for thing in things if thing in first]


def _neighbours(spans: Iterable[Span]) -> Iterator[tuple[Span | None, Span]]:
    last: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: span.began):
        before = last.get(span.thing)
        yield before, span
        if before is None or span.ended > before.ended:
            last[span.thing] = span


def spread(values: Sequence[float], scale: float = 1000.0) -> dict[str, Any]:
    """Return number, median, 99th percentile and maximum, by default in milliseconds."""
    if len(values) < 2:
        return {"n": len(values), "p50": None, "p99": None, "max": max(values, default=None)}
    cuts = quantiles(values, n=100, method="inclusive")
    return {
        "n": len(values),
        **{
            name: round(scale * value, 1)
            for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))
        },
    }
