"""Inspect a name from outside, take its leases away by force, and set its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Steps
from handfast._engine.records import Record, read_action, read_record

if TYPE_CHECKING:
    from handfast.records import LockStatus

__all__ = ["force_release", "resize", "status"]

EVICTED = Record(0, 0, 1, 0, 0, "", "", "")
"""Shown for a token whose record the server has evicted."""


def status(request: PermitRequest) -> Steps[LockStatus]:
    """Read the holders and the waiters of a name at one instant of the server."""
    from datetime import UTC, datetime

    from handfast.records import Holder, LockStatus, OperatorAction, Waiter

    answer: Answer = yield request.inspect()
    _, now_us, fence, resized, used, _, waiting, grants, waited_us, noted, holders_shown, waiters_shown = answer.fields
    limit = resized or request.limit
    holders = []
    for token, deadline, record in _rows(holders_shown):
        # A fence is the time of its grant, or later where the clock was set back.
        remaining, held_for = (deadline - now_us) / 1e6, max(0, now_us - record.mark) / 1e6
        exclusive = record.weight >= (resized or record.limit)
        owner, label = record.owner, record.label
        holders.append(Holder(token, record.mark, record.weight, remaining, held_for, label, exclusive, owner))
    waiters = []
    for position, (token, ticket, record) in enumerate(_rows(waiters_shown)):
        waited_for, exclusive = max(0, now_us - ticket) / 1e6, record.weight >= (resized or record.limit)
        owner, label = record.owner, record.label
        waiters.append(Waiter(token, record.weight, position, waited_for, label, exclusive, owner))
    free = 0 if used < 0 else max(0, limit - used)
    action = read_action(noted)
    last = action and OperatorAction(
        datetime.fromtimestamp(action.at_us / 1e6, UTC), action.what, action.by, action.why
    )
    return LockStatus(tuple(holders), tuple(waiters), fence, waiting, limit, free, grants, waited_us / 1e6, last)


def force_release(request: PermitRequest, reason: str, by: str) -> Steps[int]:
    """Take away all leases that exist now, and return their number. ``by``: the label of the operator's client.

    The fence seen first bounds the leases that are taken, so a call that is sent again cannot hurt later holders.
    """
    seen: Answer = yield request.inspect(0)
    _, now_us, fence, *_ = seen.fields
    count, more, start = 0, 1, 0
    while more:
        # Fences are times, unless the clock stepped back: where the latest one is forgotten, the time will do.
        answer: Answer = yield request.revoke(max(now_us, fence), reason, start, by)
        _, revoked, more, start = answer.fields
        count += revoked
    return count


def resize(request: PermitRequest, limit: int, by: str) -> Steps[None]:
    """Set the limit, and grant the waiters that fit now."""
    more = 1
    while more:
        answer: Answer = yield request.resize(limit, by)
        more = answer.fields[1]


def _rows(flat: list[Any]) -> list[tuple[str, int, Record]]:
    """The shown part of each token, its score and its record."""
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [(token.decode(), int(score), read_record(text) or EVICTED) for token, score, text in rows]
