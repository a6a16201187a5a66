"""Problems in sentences, for a person: the worst comes first.

A sentence about a lease that ends soon needs a row of the same step: nothing old raises an alarm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from handfast._watch.held import SILENT_S
from handfast._watch.live import Key, Row, View
from handfast._watch.results import Result, Results, State
from handfast.records import Holder, LimiterStatus, LockStatus, ServerFinding

__all__ = ["Label", "Level", "Moment", "Part", "Problem", "Sentence", "find_problems"]

HELD_LONG_S, WAITED_LONG_S, WAITED_TOO_LONG_S = 1800.0, 60.0, 600.0
"""From when on a hold, or a wait without a grant, is worth a sentence."""

GROWN, GROWN_FROM = 5, 8
"""By how much a queue has grown within a minute, and how long it is, if that is worth a sentence."""

FULL, FULL_FROM_S = 0.9, 10.0
"""How full a limiter is, and how long the period of its rate, if that is worth a sentence: shorter ones are full by design."""

RENEWED = 1.25
"""Of how many ttls the time from the grant to the end of a lease is, at least, if it was renewed: a lease is renewed after a
third of its ttl, and a grant is confirmed some time after it was made."""

OVERDUE = 1 / 2
"""Below which part of its ttl a lease was not renewed when it should have been: two thirds are left before each renewal."""

FRESH_S = 1.5
"""How old a row may be for a sentence about a lease that ends soon."""


class Label(NamedTuple):
    """A part of a sentence: the text of another program, such as a name or the label of a client."""

    text: str


class Moment(NamedTuple):
    """A part of a sentence: how long it is since a moment, or until then, in seconds of `time.monotonic`."""

    at: float


Part: TypeAlias = str | Label | Moment

Sentence: TypeAlias = tuple[Part, ...]

Level: TypeAlias = Literal["urgent", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence and its explanation."""

    level: Level
    weight: float
    """Sorts the problems of a level, the largest first."""
    id: str
    """The kind of the problem and its name: constant while the problem lasts."""
    says: Sentence
    means: Sentence
    where: Key | None = None
    """The name that it is about; None if it is about the server."""


LEVELS = get_args(Level)


def find_problems(view: View) -> list[Problem]:
    """Return the problems, the worst first. Their order is stable."""
    found = [*_of_server(view.findings)]
    for row in view.rows:
        if isinstance(row.status, LockStatus):
            found += _of_leases(row, row.status, view.at)
        elif isinstance(row.status, LimiterStatus):
            found += _of_limiter(row, row.status)
    found += _of_results(view.results)
    if view.passed_over:
        found.append(_of_keys(view.passed_over))
    return sorted(found, key=lambda one: (LEVELS.index(one.level), -one.weight, one.id))


def _of_leases(row: Row, status: LockStatus, now: float) -> Iterator[Problem]:
    held, waits = row.held_since, None if row.stands_by else row.waits_since
    age, wait = now - (held or now), now - (waits or now)
    silent = sum(one.silent_for > SILENT_S for one in status.waiters)
    says: Sentence
    means: Sentence
    is_stuck = waits is not None and age > HELD_LONG_S
    oldest = max(status.holders, key=lambda one: one.held_for, default=None)
    if status.hold is not None:
        says = Label(row.name), " is on hold for ", Moment(row.at + status.hold.remaining), " more"
        means = Label(status.hold.by), ": ", Label(status.hold.reason), f". {_waiting(status.waiting)}."
        level: Level = "warning" if status.waiting else "note"
        yield Problem(level, 30.0 + status.waiting, f"hold {row.kind} {row.name}", says, means, row.key)
    elif is_stuck and oldest is not None and held is not None and waits is not None:
        says = Label(row.name), " has been held for ", Moment(held), f", and {_waiting(status.waiting)}"
        means = (*_of_holder(oldest, row.at), " The first waits for ", Moment(waits), _silence(silent))
        weight = 1000 + min(900, wait / 60) + status.waiting
        yield Problem("urgent", weight, f"stuck {row.kind} {row.name}", says, means, row.key)
    elif wait > WAITED_LONG_S and waits is not None and (status.granted_ago or wait) > WAITED_LONG_S / 2:
        says = "The first in the queue of ", Label(row.name), " has waited for ", Moment(waits)
        by: Sentence = (" It is free.",)
        if oldest is not None and held is not None:
            by = " It is held by ", Label(oldest.label), " for ", Moment(held), "."
        level = "urgent" if wait > WAITED_TOO_LONG_S else "warning"
        means = f"{_waiting(status.waiting)}.", *by
        yield Problem(level, 400 + min(300, wait / 10), f"waits {row.kind} {row.name}", says, means, row.key)
    if silent and not is_stuck:
        says = (
            f"{silent:,} of {status.waiting:,} waiters of ",
            Label(row.name),
            f" {'is' if silent == 1 else 'are'} silent",
        )
        means = ("Their processes have ended or are frozen. They are passed over when their turn comes.",)
        yield Problem("warning", 300 + silent, f"silent {row.kind} {row.name}", says, means, row.key)
    for one in status.holders:
        # A lease that is older than its ttl was renewed, three times in each ttl.
        if (
            one.held_for > one.ttl > one.remaining * 3
            and one.wanted is None
            and not one.released
            and now < row.at + FRESH_S
        ):
            says = (
                "The lease of ",
                Label(row.name),
                " ends in ",
                Moment(row.at + one.remaining),
                " unless it is renewed",
            )
            means = Label(one.label), " has missed at least one renewal."
            yield Problem("warning", 350, f"unrenewed {row.kind} {row.name}", says, means, row.key)
            break
    if waits is not None and row.before is not None and status.waiting >= max(GROWN_FROM, row.before + GROWN):
        says = "The queue of ", Label(row.name), f" grows: {row.before:,} a minute ago, {status.waiting:,} now"
        mean = "" if row.mean is None else f", after a mean wait of {row.mean:.1f} s"
        yield Problem(
            "warning",
            250 + status.waiting,
            f"grows {row.kind} {row.name}",
            says,
            (f"{row.rate:.1f} grants a second{mean}.",),
            row.key,
        )


def _of_holder(one: Holder, at: float) -> Sentence:
    """Return whether the process of a holder lives, by its lease: one that was never renewed ends a ttl after its grant."""
    if one.released:
        return (
            Label(one.label),
            " has released it, and it stays taken for ",
            Moment(at + one.remaining),
            " more: at_least.",
        )
    if one.held_for + one.remaining < one.ttl * RENEWED:
        says = " has not renewed its lease since the grant, so its process may have ended. The lease ends in "
        return Label(one.label), says, Moment(at + one.remaining), "."
    if one.wanted is None and one.remaining < one.ttl * OVERDUE:
        says = " has missed a renewal, so its process may have ended. The lease ends in "
        return Label(one.label), says, Moment(at + one.remaining), "."
    return Label(one.label), " renews its lease, so its process lives: it hangs, or its work is long."


def _of_limiter(row: Row, status: LimiterStatus) -> Iterator[Problem]:
    if status.paused_for:
        says: Sentence = Label(row.name), " is paused for ", Moment(row.at + status.paused_for), " more"
        means: Sentence = (f"{_waiting(status.waiting)}.",)
        if status.last is not None and status.last.what == "pause":
            means = (*means, " Paused by ", Label(status.last.by), ".")
        level: Level = "warning" if status.waiting else "note"
        yield Problem(level, 60.0 + status.waiting, f"paused {row.name}", says, means, row.key)
        return
    rates = [rate for rate in status.rates if rate.limit and rate.per >= FULL_FROM_S and rate.used >= FULL * rate.limit]
    full = max(rates, key=lambda rate: rate.used / rate.limit, default=None)
    if full is not None:
        says = Label(row.name), f" has used {full.used:,} of {full.limit:,} in {full.per:g} s"
        means = (f"{_waiting(status.waiting)}.",)
        yield Problem("warning", 200 + status.waiting, f"full {row.name}", says, means, row.key)


def _of_results(results: Results) -> Iterator[Problem]:
    groups: defaultdict[tuple[str, State], list[Result]] = defaultdict(list)
    for one in results.found:
        if one.state in ("left", "failed"):
            groups[one.name, one.state].append(one)
    for (name, state), some in groups.items():
        latest = max(some, key=lambda one: one.recorded_at)
        keys = f"{len(some):,} {'key' if len(some) == 1 else 'keys'} of "
        if state == "left":
            says: Sentence = keys, Label(name), " began and did not end"
            means: Sentence = "The latest, ", Label(latest.key), ", began ", Moment(latest.recorded_at), " ago."
            yield Problem("warning", 160, f"left {name}", says, means, ("once", name))
        else:
            says = keys, Label(name), " failed"
            means = "The latest, ", Label(latest.key), ", ", Moment(latest.recorded_at), " ago: ", Label(latest.why)
            yield Problem("warning", 150, f"failed {name}", says, means, ("once", name))


def _of_server(findings: Sequence[ServerFinding]) -> Iterator[Problem]:
    times = Counter[str]()
    for one in findings:
        times[one.topic] += 1
        again = f" {times[one.topic]}" if times[one.topic] > 1 else ""  # each replica, and each primary, may have one
        if one.severity in ("warning", "failure"):
            level: Level = "urgent"
            if one.severity == "failure":
                weight = 2000.0
            elif one.topic == "eviction":
                weight = 900.0
            else:
                level, weight = "warning", 100.0
            says = (one.text[:1].upper() + one.text[1:] if "-" not in one.text.split(" ")[0] else one.text,)
            means = ": ".join(filter(None, (one.advice, one.command)))
            yield Problem(
                level, weight, f"server {one.topic}{again}", says, (means[:1].upper() + means[1:],) if means else ()
            )


def _of_keys(count: int) -> Problem:
    says = (f"{count:,} {'key' if count == 1 else 'keys'} of this namespace can't be read",)
    means = ("Another program has written there, or the name is too long. All other names are shown.",)
    return Problem("note", 0.0, "passed over", says, means)


def _waiting(count: int) -> str:
    if count == 0:
        return "None wait"
    return "1 waits" if count == 1 else f"{count:,} wait"


def _silence(count: int) -> str:
    return f"; {count:,} of them {'is' if count == 1 else 'are'} silent." if count else "."
