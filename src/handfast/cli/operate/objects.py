"""What was found, for programs: JSON objects whose keys and order are documented, in docs/how-to/operate.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from handfast.records import (
    DebounceStatus,
    Holder,
    LatchStatus,
    LimiterStatus,
    LockStatus,
    NameStatus,
    OnceStatus,
    OperatorAction,
    Waiter,
)

__all__ = ["description", "dumped", "summary"]


def dumped(value: dict[str, Any]) -> str:
    """Return an object as one line, without characters that would move the cursor of a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def summary(namespace: str, found: NameStatus) -> dict[str, Any]:
    """Return the object of a name, without lists of those who hold and wait."""
    identity = {"namespace": namespace, "kind": found.kind, "name": found.name}
    match found.status:
        case LimiterStatus() as status:
            rates = [asdict(rate) | {"limit": rate.limit or None} for rate in status.rates]
            for rate in rates:
                rate["remaining"] = rate["remaining"] if rate["limit"] else None
            queue = {"waiting": status.waiting, "longest_wait": status.longest_wait}
            return identity | {"rates": rates, **queue, "paused_for": status.paused_for}
        case DebounceStatus() as status:
            return identity | asdict(status)
        case LatchStatus() as status:
            return identity | {"done": status.number, "waiting": status.waiting}
        case LockStatus() as status:
            return identity | _leases(status) | _record(found.recorded)


def description(namespace: str, found: NameStatus) -> dict[str, Any]:
    """Return the object of a name, with those who hold and wait and the last action of an operator."""
    found_at = summary(namespace, found)
    match found.status:
        case LockStatus() as status:
            return found_at | _lists(status)
        case LimiterStatus() as status:
            return found_at | {"last": _action(status.last)}
        case LatchStatus() as status:
            return found_at | {"parts": status.done}
    return found_at


def _leases(status: LockStatus) -> dict[str, Any]:
    return {
        "holding": status.holding,
        "waiting": status.waiting,
        "limit": status.limit or None,
        "free": status.free if status.limit else None,
        "held_by": [one.label for one in status.holders],
        "held_for": max((one.held_for for one in status.holders), default=None),
        "ends_in": min((one.remaining for one in status.holders), default=None),
        "longest_wait": status.waiters[0].waited_for if status.waiters else None,
        "fence": status.fence,
        "grants": status.grants,
        "waited": status.waited,
        "granted_ago": status.granted_ago,
        "hold": status.hold
        and {
            "until": status.hold.until.isoformat(),
            "remaining": status.hold.remaining,
            "by": status.hold.by,
            "reason": status.hold.reason,
        },
    }


def _lists(status: LockStatus) -> dict[str, Any]:
    return {
        "holders": [
            _common(one)
            | {
                "fence": one.fence,
                "held_for": one.held_for,
                "ends_in": one.remaining,
                "released": one.released,
                "value": one.value,
                "slot": one.slot,
                "wanted": one.wanted,
                "ttl": one.ttl,
            }
            for one in status.holders
        ],
        "waiters": [
            _common(one)
            | {
                "position": one.position,
                "waited_for": one.waited_for,
                "value": one.value,
                "head_start": one.head_start,
                "silent_for": one.silent_for,
            }
            for one in status.waiters
        ],
        "last": _action(status.last),
    }


def _action(last: OperatorAction | None) -> dict[str, Any] | None:
    return None if last is None else {"at": last.at.isoformat(), "what": last.what, "by": last.by, "why": last.why}


def _record(status: OnceStatus | None) -> dict[str, Any]:
    """Return what is recorded of a key of `once`, as a further key of an object."""
    return {} if status is None else {"recorded": {"state": status.state, "age": status.age}}


def _common(one: Holder | Waiter) -> dict[str, Any]:
    return {
        "token": one.token,
        "owner": one.owner,
        "label": one.label,
        "weight": one.weight,
        "exclusive": one.exclusive,
        "lock_all": one.lock_all,
    }
