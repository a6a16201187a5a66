"""Rows, sentences and lists as the page gets them.

Moments are sent, no durations: the browser counts. So a name at which nothing happens is sent once. A moment is in seconds
since 1970, by a clock that was set when the process began and is not set again. A field that is 0, empty or None is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from handfast._watch.acts import hold_version, latch_version, pause_version
from handfast._watch.held import SILENT_S
from handfast._watch.live import Row
from handfast._watch.problems import Label, Moment, Part, Problem
from handfast._watch.results import Result
from handfast.arguments import Kind
from handfast.records import (
    AuditEntry,
    DebounceStatus,
    Holder,
    LatchStatus,
    LimiterStatus,
    LockStatus,
    ServerFinding,
    Waiter,
)

__all__ = ["audited", "details", "fields_of", "finding", "is_same", "moment", "problems", "recorded", "steady"]

EPOCH = time.time() - time.monotonic()

PICTURED = 28
"""Waiters of the picture of a row."""

MOMENTS = frozenset({"since", "ends", "first", "until", "due", "lifts", "heard"})

LISTED_MOMENTS = {"queue": 0, "rates": 3}
"""The fields that are lists, and the place of the moment in each item."""

STEADY_S = 0.5
"""Two moments that differ by less are the same: each is a difference of two clocks, with a round trip in between."""

AUDITED = (
    *("id", "what", "kind", "name", "by", "why"),
    *("count", "fence", "rates", "permits", "duration", "now"),
)
"""The fields of an entry of the audit, but for its time."""

READER, SILENT = 1, 2
"""Flags of a waiter in a picture."""


def moment(at: float | None) -> float | None:
    """Return a moment of `time.monotonic` as the page gets it."""
    return None if at is None else round(at + EPOCH, 1)


def is_same(name: str, old: Any, new: Any) -> bool:
    """Whether a field has not changed."""
    if old == new:
        return True
    if name in MOMENTS:
        return old is not None and new is not None and abs(old - new) < STEADY_S
    if name in LISTED_MOMENTS and old and new and len(old) == len(new):
        place = LISTED_MOMENTS[name]
        return all(
            before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]
            and abs(before[place] - after[place]) < STEADY_S
            for before, after in zip(old, new, strict=True)
        )
    return False


def fields_of(row: Row, samples: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a name."""
    common = {"kind": row.kind, "name": row.name, "waiting": row.status.waiting, "first": moment(row.waits_since)}
    match row.status:
        case LockStatus() as status:
            own = _of_leases(row, status)
        case LimiterStatus() as status:
            own = _of_limiter(row, status)
        case DebounceStatus() as status:
            own = {"due": None if status.due_in is None else moment(row.at + status.due_in), "items": status.items}
        case LatchStatus() as status:
            own = {"done": status.number}
    found = common | own | {"spark": [*samples]}
    return {name: value for name, value in found.items() if value not in (None, 0, "", [], False)}


def _of_leases(row: Row, status: LockStatus) -> dict[str, Any]:
    oldest = max(status.holders, key=lambda holder: holder.held_for, default=None)
    renewed = [holder for holder in status.holders if not holder.released] or status.holders
    soonest = min(renewed, key=lambda holder: holder.remaining / holder.ttl, default=None)
    limit = status.limit if row.kind == "semaphore" else 0
    silent = [waiter.silent_for > SILENT_S for waiter in status.waiters]
    return {
        "holding": status.holding,
        "limit": limit,
        "out": limit and status.held,
        "since": moment(row.held_since) if status.fence else None,
        "ends": None if soonest is None else moment(row.at + soonest.remaining),
        "ttl": None if soonest is None else soonest.ttl,
        "by": "" if oldest is None else oldest.label,
        "as": "" if oldest is None or row.kind != "rwlock" else _role(row.kind, oldest),
        "released": soonest is not None and soonest.released,
        "queue": [
            [
                moment(row.at - waiter.waited_for),
                READER * (row.kind == "rwlock" and not waiter.exclusive) + SILENT * gone,
            ]
            for waiter, gone in zip(status.waiters[:PICTURED], silent, strict=False)
        ],
        "silent": sum(silent),
        "fence": status.fence,
        "rate": round(row.rate, 1),
        "mean": None if row.mean is None else round(row.mean, 2),
        # A counter that moves with each grant is of use where it is looked at: at a name that others wait for.
        "grants": status.grants if status.waiting or row.rate else 0,
        "hold": status.hold and {"by": status.hold.by, "why": status.hold.reason},
        "hold_id": status.hold and hold_version(status.hold),
        "lifts": status.hold and moment(row.at + status.hold.remaining),
    }


def _of_limiter(row: Row, status: LimiterStatus) -> dict[str, Any]:
    paused = status.last if status.paused_for and status.last is not None and status.last.what == "pause" else None
    return {
        "rates": [
            [rate.per, rate.limit, rate.used, moment(row.at + rate.reset_after) if rate.used else 0]
            for rate in status.rates
        ],
        "until": moment(row.at + status.paused_for) if status.paused_for else None,
        "by": "" if paused is None else paused.by,
        "why": "" if paused is None else paused.why,
        "pause_id": pause_version(status),
    }


def _role(kind: Kind, one: Holder | Waiter) -> str:
    """Return the role of a holder or a waiter, where the kind of the name does not say it."""
    match kind:
        case "rwlock":
            return "writer" if one.exclusive else "reader"
        case "semaphore":
            return "" if one.weight == 1 else f"{one.weight:,} permits"
        case "election":
            return "leader" if isinstance(one, Holder) else "candidate"
        case "group" | "partition":
            return "member" if kind == "group" else "worker"
    return "with other names" if one.lock_all else ""


def details(row: Row) -> dict[str, Any]:
    """Return who holds a name and who waits for it, each of them."""
    status = row.status
    if isinstance(status, LatchStatus):
        return {"parts": [*status.done], "version": latch_version(status)}
    if not isinstance(status, LockStatus):
        return {}
    holders = sorted(status.holders, key=lambda holder: -holder.held_for)
    last = status.last
    return {
        "holders": [
            {
                "token": holder.token,
                "label": holder.label,
                "as": _role(row.kind, holder),
                "since": moment(row.at - holder.held_for),
                "ends": moment(row.at + holder.remaining),
                "ttl": holder.ttl,
                "fence": holder.fence,
                "released": holder.released,
                "value": holder.value,
                "slot": holder.slot,
                "until": None if holder.wanted is None else moment(row.at + holder.wanted),
            }
            for holder in holders
        ],
        "waiters": [
            {
                "token": waiter.token,
                "label": waiter.label,
                "as": _role(row.kind, waiter),
                "since": moment(row.at - waiter.waited_for),
                "heard": moment(row.at - waiter.silent_for) if waiter.silent_for > SILENT_S else None,
                "value": waiter.value,
            }
            for waiter in status.waiters
        ],
        "remembered": {
            "fence": status.fence,
            "grants": status.grants,
            "mean": round(status.waited / status.grants, 2) if status.grants else None,
            "permits": status.limit if row.kind == "semaphore" else None,
        },
        "last": last and {"at": last.at.timestamp(), "what": last.what, "by": last.by, "why": last.why},
    }


def problems(found: Iterable[Problem], old: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return sentences and their explanations, with the moments of the old ones where these are the same."""
    before = {one["id"]: one for one in old or ()}
    new = [_problem(one) for one in found]
    for one in new:
        for name in ("says", "means"):
            parts = one[name]
            for place, part in enumerate(before.get(one["id"], {}).get(name, ())[: len(parts)]):
                if isinstance(part, dict) and "at" in part and isinstance(parts[place], dict):
                    is_near = abs(part["at"] - parts[place].get("at", 0)) < 2 * STEADY_S
                    parts[place] = part if is_near else parts[place]
    return new


def _problem(found: Problem) -> dict[str, Any]:
    name = None if found.where is None else found.where[1]
    return {
        "level": found.level,
        "id": found.id,
        "says": [_part(part, name) for part in found.says],
        "means": [_part(part, name) for part in found.means],
        "where": found.where,
    }


def _part(part: Part, name: str | None) -> object:
    match part:
        case Label(text):
            return {"name" if text == name else "label": text}
        case Moment(at):
            return {"at": moment(at)}
    return part


def finding(found: ServerFinding) -> dict[str, str]:
    """Return a finding about the server."""
    return {name: getattr(found, name) for name in ("severity", "topic", "text", "advice", "command")}


def audited(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry of the audit."""
    found = {name: getattr(entry, name) for name in AUDITED}
    return found | {"at": round(entry.at.timestamp())}


def recorded(found: Iterable[Result], most: int) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Return the records of `once` that need a person most, and how many of each state each name has."""
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


def steady(old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return new details with the moments of the old ones, where these are the same."""
    if old is None:
        return new
    for many in ("holders", "waiters"):
        before = {one["token"]: one for one in old.get(many, ())}
        for one in new.get(many, ()):
            for name, value in before.get(one["token"], {}).items():
                if name in MOMENTS and is_same(name, value, one[name]):
                    one[name] = value
    return new
