"""What was found, for programs: JSON objects whose keys and order are documented, in docs/how-to/operate.md."""

from __future__ import annotations

import json
from typing import Any

from handfast.records import Holder, NameStatus, OnceStatus, Waiter

__all__ = ["description", "dumped", "record", "summary"]


def dumped(value: dict[str, Any]) -> str:
    """Return an object as one line, without characters that would move the cursor of a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def summary(namespace: str, found: NameStatus) -> dict[str, Any]:
    """Return the object of a name, without lists of those who hold and wait."""
    status = found.status
    return {
        "namespace": namespace,
        "kind": found.kind,
        "name": found.name,
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


def description(namespace: str, found: NameStatus) -> dict[str, Any]:
    """Return the object of a name, with those who hold and wait and the last action of an operator."""
    last = found.status.last
    return summary(namespace, found) | {
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
            }
            for one in found.status.holders
        ],
        "waiters": [
            _common(one)
            | {
                "position": one.position,
                "waited_for": one.waited_for,
                "value": one.value,
                "head_start": one.head_start,
            }
            for one in found.status.waiters
        ],
        "last": last and {"at": last.at.isoformat(), "what": last.what, "by": last.by, "why": last.why},
    }


def record(status: OnceStatus | None) -> dict[str, Any]:
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
