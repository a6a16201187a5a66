"""The face of a limiter: how much of each rate is used, and whether it is paused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import inf
from typing import Any, ClassVar

from handfast._engine.moments import microseconds
from handfast._watch.faces.face import Act, Face, action_object
from handfast._watch.facts import Column, Facts, Label, Moment, Period, Seen, Sentence, Stop, joined, waits
from handfast.records import LimiterStatus, RateStatus

__all__ = ["FACE", "LimiterFace", "pause_version"]

IN_SECONDS = re.compile(r"[0-9.]+").fullmatch
"""Matches the words in place of a reason where a pause has none."""


class LimiterFace(Face[LimiterStatus]):
    """A limiter."""

    acts: ClassVar[tuple[Act, ...]] = ("pause",)
    has_rates: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("LIMITER", is_flexible=True, shows="name"),
        Column("USED", is_flexible=True),
        *map(Column, ("QUEUE", "WAITED", "PAUSED")),
    )

    def facts(self, found: Seen[LimiterStatus]) -> Facts:
        status, stop = found.status, None
        if status.paused_for:
            # The last change may be another one, made during the
            # pause: then no one knows who paused the limiter.
            pause = status.last if status.last is not None and status.last.what == "pause" else None
            clock = "" if status.paused_until is None else f"{status.paused_until:%Y-%m-%d %H:%M:%S} UTC"
            by, why = ("", "") if pause is None else (pause.by, "" if IN_SECONDS(pause.why) else pause.why)
            stop = Stop("paused", by, why, found.at + status.paused_for, clock, pause_version(status))
        return Facts(
            waiting=status.waiting,
            waits_since=None if status.longest_wait is None else found.at - status.longest_wait,
            stop=stop,
            rates=status.rates,
            is_idle=not (status.waiting or status.paused_for or any(rate.used for rate in status.rates)),
            # A pause is worth a sentence at any age, so it is looked at in each step.
            doubtful_at=-inf if status.paused_for else None,
            last=status.last,
        )

    def who(self, found: Seen[LimiterStatus], facts: Facts) -> Sentence:
        return _used(facts.rates)

    def cells(self, found: Seen[LimiterStatus], facts: Facts) -> tuple[Sentence, ...]:
        return (
            (Label(found.name),),
            self.who(found, facts),
            (f"{facts.waiting:,}",) if facts.waiting else (),
            () if facts.waits_since is None else (Moment(facts.waits_since),),
            () if facts.stop is None else (Moment(facts.stop.until),),
        )

    def says(self, found: Seen[LimiterStatus], facts: Facts) -> Sentence:
        return joined((*_used(facts.rates), " used") if facts.rates else (), waits(facts))

    def notes(self, found: Seen[LimiterStatus], facts: Facts) -> Iterator[Sentence]:
        if facts.stop is not None:
            by = (" by ", Label(facts.stop.by)) if facts.stop.by else ()
            why = (": ", Label(facts.stop.why)) if facts.stop.why else ()
            yield "paused for ", Moment(facts.stop.until), *by, *why
        for rate in facts.rates:
            if rate.used and not facts.waiting:
                yield *_share(rate), " are all free in ", Moment(found.at + rate.reset_after)
        if not all(rate.limit for rate in facts.rates):
            yield ("the limit is not known here: each client brings its own",)

    def summary(self, found: Seen[LimiterStatus]) -> dict[str, Any]:
        status = found.status
        rates = [asdict(rate) | {"limit": rate.limit or None, "metric": rate.metric or None} for rate in status.rates]
        for rate in rates:
            rate["remaining"] = rate["remaining"] if rate["limit"] else None
        queue = {"waiting": status.waiting, "longest_wait": status.longest_wait}
        return {"rates": rates, **queue, "paused_for": status.paused_for}

    def description(self, found: Seen[LimiterStatus]) -> dict[str, Any]:
        return {"last": action_object(found.status.last)}


def pause_version(status: LimiterStatus) -> str:
    """Return the version of a pause; empty without a pause."""
    return str(microseconds(status.paused_until)) if status.paused_until else ""


def _used(rates: Sequence[RateStatus]) -> Sentence:
    """Return how much is used: ``480/500 in 1m, 90/1,000 in 1h``, ``90/1,000 tokens in 1m``."""
    found: Sentence = ()
    for rate in rates:
        found = (*found, *((", ",) if found else ()), *_share(rate))
    return found


def _share(rate: RateStatus) -> Sentence:
    of, what = f"/{rate.limit:,}" if rate.limit else "", f" {rate.metric}" if rate.metric else ""
    return f"{rate.used:,}{of}{what} in ", Period(rate.per)


FACE = LimiterFace()
