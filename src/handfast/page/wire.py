"""Rows, sentences and lists as the page gets them: facts, of which the page decides nothing but the layout.

Moments are sent, no durations: the browser counts. So a name at which nothing happens is sent once. A moment is in seconds
since 1970, by a clock set when the process began and never again. A field that is 0, empty or None is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from handfast._watch.faces import FACES
from handfast._watch.facts import Facts, Label, Length, Moment, Part, Period, Sentence
from handfast._watch.problems import SEVERITIES, Problem, sentences_of
from handfast._watch.results import Result
from handfast._watch.rows import Row, is_full
from handfast._watch.thresholds import SILENT_S
from handfast.records import AuditEntry, Holder, ServerFinding, Waiter

__all__ = ["audited", "details", "fields_of", "finding", "is_same", "kinds", "moment", "problem", "recorded", "steady"]

EPOCH = time.time() - time.monotonic()

PICTURED = 28
"""Waiters of the picture of a row."""

MOMENTS = frozenset({"since", "ends", "first", "until", "heard", "at"})

LISTED_MOMENTS = {"queue": 0, "rates": 3}
"""The fields that are lists, and the place of the moment in each item."""

STEADY_S = 0.5
"""Two moments that differ by less are the same: each is a difference of two clocks, with a round trip in between."""

AUDITED = (
    *("id", "what", "kind", "name", "by", "why"),
    *("count", "fence", "single", "rates", "permits", "duration", "now"),
)
"""The fields of an entry of the audit, but for its time."""

READER, SILENT = 1, 2
"""Flags of a waiter in a picture."""


def kinds() -> dict[str, dict[str, Any]]:
    """Return the facts common to all names of each kind."""
    return {
        kind: {
            "acts": face.acts,
            "leases": face.has_leases,
            "rates": face.has_rates,
            "records": face.has_records,
            "stands_by": face.stands_by,
        }
        for kind, face in FACES.items()
    }


def moment(at: float | None) -> float | None:
    """Return a moment of `time.monotonic` as the page gets it."""
    return None if at is None else round(at + EPOCH, 1)


def is_same(name: str, old: Any, new: Any) -> bool:
    """Whether a field has not changed."""
    if old == new:
        return True
    if name in MOMENTS:
        return _is_near(old, new)
    if name in LISTED_MOMENTS and old and new and len(old) == len(new):
        place = LISTED_MOMENTS[name]
        return all(
            before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]
            and abs(before[place] - after[place]) < STEADY_S
            for before, after in zip(old, new, strict=True)
        )
    return bool(steady(old, new) == old)


def steady(old: Any, new: Any) -> Any:
    """Return a new value with the old value's moments, where these are the same. Items of lists go by their token or id."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {
            name: old[name] if name in MOMENTS and _is_near(old.get(name), value) else steady(old.get(name), value)
            for name, value in new.items()
        }
    if isinstance(new, list) and isinstance(old, list):
        before = {_identity(one, place): one for place, one in enumerate(old)}
        return [steady(before.get(_identity(one, place)), one) for place, one in enumerate(new)]
    return new


def _is_near(old: Any, new: Any) -> bool:
    return old is not None and new is not None and abs(old - new) < STEADY_S


def _identity(one: Any, place: int) -> object:
    return one.get("token") or one.get("id") or place if isinstance(one, dict) else place


def fields_of(row: Row, samples: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a name."""
    facts = row.facts
    soonest = facts.soonest
    found = {
        "kind": row.kind,
        "name": row.name,
        "item": row.face.has_items and bool(row.named.parts),
        "idle": facts.is_idle,
        "who": sentence(row.who),
        "by": facts.holders[0].label if facts.holders else "",
        "shared": bool(facts.holders) and not row.face.is_strong(facts.holders[0]),
        "holding": facts.holding,
        "limit": facts.limit,
        "out": facts.out,
        "since": moment(facts.held_since),
        "ends": moment(facts.ends_at if soonest is None else row.at + soonest.remaining),
        "ttl": soonest and soonest.ttl,
        "released": soonest is not None and soonest.released,
        "waiting": facts.waiting,
        "first": moment(facts.waits_since),
        "queue": [
            [
                moment(row.at - waiter.waited_for),
                READER * (not row.face.is_strong(waiter)) + SILENT * (waiter.silent_for > SILENT_S),
            ]
            for waiter in facts.queue[:PICTURED]
        ],
        "silent": facts.silent,
        "stop": _stop(facts),
        "rates": [
            [
                rate.per,
                rate.limit,
                rate.used,
                moment(row.at + rate.reset_after) if rate.used else 0,
                is_full(rate),
                rate.metric,
            ]
            for rate in facts.rates
        ],
        "fence": facts.fence,
        "rate": round(row.rate, 1),
        "mean": None if row.mean is None else round(row.mean, 2),
        # A counter that moves with each grant is of use where it is looked at: at a name that others wait for.
        "grants": facts.grants if facts.waiting or row.rate else 0,
        "spark": [*samples],
    }
    return {name: value for name, value in found.items() if value not in (None, 0, "", [], False)}


def _stop(facts: Facts) -> dict[str, Any] | None:
    stop = facts.stop
    return stop and {"what": stop.what, "by": stop.by, "why": stop.why, "until": moment(stop.until), "id": stop.version}


def details(row: Row) -> dict[str, Any]:
    """Return the details of an opened name: sentences, all holders and waiters, and separate lists."""
    face, facts, last = row.face, row.facts, row.facts.last
    return {
        "says": sentence(face.says(row, facts)),
        "notes": [sentence(said) for said in face.notes(row, facts)],
        "holders": [_holder(row, one) for one in facts.holders],
        "waiters": [_waiter(row, one) for one in facts.queue],
        "listings": [
            {
                "title": listing.title,
                "rows": [[sentence(said), [*texts]] for said, texts in listing.rows],
                "more": listing.more,
            }
            for listing in face.listings(row)
        ],
        "remembered": {
            "fence": facts.fence,
            "grants": facts.grants,
            "mean": round(facts.waited / facts.grants, 2) if facts.grants else None,
            "permits": facts.limit or None,
        },
        "version": facts.version,
        "last": last and {"when": last.at.timestamp(), "what": last.what, "by": last.by, "why": last.why},
    }


def _role(row: Row, one: Holder | Waiter) -> str:
    return "" if row.face.is_usual(one) else row.face.role(one)


def _holder(row: Row, holder: Holder) -> dict[str, Any]:
    return {
        "token": holder.token,
        "label": holder.label,
        "as": _role(row, holder),
        "since": moment(row.at - holder.held_for),
        "ends": moment(row.at + holder.remaining),
        "ttl": holder.ttl,
        "fence": holder.fence,
        "released": holder.released,
        "value": holder.value,
        "slot": holder.slot,
        "until": None if holder.wanted is None else moment(row.at + holder.wanted),
    }


def _waiter(row: Row, waiter: Waiter) -> dict[str, Any]:
    return {
        "token": waiter.token,
        "label": waiter.label,
        "as": _role(row, waiter),
        "reader": not row.face.is_strong(waiter),
        "since": moment(row.at - waiter.waited_for),
        "heard": moment(row.at - waiter.silent_for) if waiter.silent_for > SILENT_S else None,
        "value": waiter.value,
    }


def problem(found: Problem) -> dict[str, Any]:
    """Return a sentence and the explanation."""
    name = None if found.where is None else found.where[1]
    return {
        "level": found.level,
        "group": found.group,
        "id": found.id,
        "says": sentence(found.says, name),
        "means": sentence(found.means, name),
        "where": found.where and [*found.where],
        "command": found.command,
    }


def sentence(said: Sentence, name: str | None = None) -> list[object]:
    """Return the parts of a sentence; ``name`` is the name concerned."""
    return [_part(part, name) for part in said]


def _part(part: Part, name: str | None) -> object:
    match part:
        case Label(text):
            return {"name" if text == name else "label": text}
        case Moment(at):
            return {"at": moment(at)}
        case Length(seconds):
            return {"length": round(seconds, 1)}
        case Period(seconds):
            return {"period": seconds}
    return part


def finding(found: ServerFinding) -> dict[str, Any]:
    """Return a finding about the server."""
    level = SEVERITIES[found.severity] or {"info": "note"}.get(found.severity, "fine")
    says, means = sentences_of(found)
    return {"topic": found.topic, "level": level, "says": says, "means": means, "command": found.command}


def audited(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry of the audit."""
    found = {name: getattr(entry, name) for name in AUDITED}
    return found | {"when": round(entry.at.timestamp())}


def recorded(found: Iterable[Result], most: int) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Return the records of `once` most in need of a person, and how many of each state each name has."""
    order = {state: place for place, state in enumerate(("failed", "left", "unstored", "running", "done"))}
    listed = sorted(found, key=lambda record: (order[record.state], -record.recorded_at))
    counts = dict[str, dict[str, int]]()
    for record in listed:
        states = counts.setdefault(record.name, {})
        states[record.state] = states.get(record.state, 0) + 1
    rows = [
        {
            "name": record.name,
            "key": record.key,
            "state": record.state,
            "at": moment(record.recorded_at),
            "why": record.why,
            "version": record.version,
        }
        for record in listed[:most]
    ]
    return rows, counts
