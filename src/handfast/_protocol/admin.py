"""Inspect a name from outside, take leases away by force, and set the limit."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from handfast._engine.calls import NO_HOLD, PermitRequest, Request
from handfast._engine.constants import WAIT_MS
from handfast._engine.effects import Answer, Steps
from handfast._engine.moments import microseconds, moment
from handfast._engine.records import Record, read_action, read_record
from handfast._kinds import MAX_PERMITS
from handfast._protocol.asking import Acted, change

if TYPE_CHECKING:
    from handfast.records import Hold, LockStatus, OperatorAction

__all__ = [
    "NO_GRACE",
    "ask_to_end",
    "force_release",
    "hold",
    "hold_shown",
    "last_action",
    "read_status",
    "resize",
    "status",
    "statuses",
    "unhold",
    "who_is_there",
]

NO_GRACE = -1
"""In place of a grace, where no holder is asked to end."""

RESTED = "."
"""What stands before the token of a lock that was released, as permit_release.lua has it."""

EVICTED = Record(0, 0, 1, 0, 0, "", "", "")
"""Shown for a token whose record the server has evicted."""


def status(request: PermitRequest) -> Steps[LockStatus]:
    """Read the holders and the waiters of a name at a single instant of the server."""
    answer: Answer = yield request.inspect()
    return read_status(answer.fields, request.limit)


def read_status(fields: list[Any], limit: int) -> LockStatus:
    """Make the status of a reply of ``permit_inspect``.

    ``limit`` is the limit of the request; 0 takes the largest limit in the records.
    """
    from handfast.records import Holder, LockStatus, Waiter

    _, now_us, fence, resized, used, holding, waiting, grants, waited_us, noted, holders_shown, waiters_shown = fields
    held, queued = _rows(holders_shown), _rows(waiters_shown)
    holds = [record for *_, record in held if record.hold_us is not None]
    if holds:
        held = [row for row in held if row[2].hold_us is None]
        holding, used = holding - 1, max(-1, used - MAX_PERMITS)
    limit = resized or limit or max((record.limit for *_, record in held + queued), default=0)
    holders = []
    for shown, deadline, record in held:
        holders.append(
            Holder(
                token=shown.removeprefix(RESTED),
                # A fence is the time of its grant, or later where the clock was set back.
                fence=record.mark,
                weight=record.weight,
                remaining=(deadline - now_us) / 1e6,
                held_for=max(0, now_us - record.mark) / 1e6,
                label=record.label,
                exclusive=record.weight >= (resized or record.limit),
                owner=record.owner,
                released=shown.startswith(RESTED),
                lock_all=record.of_several,
                value=record.value,
                slot=record.slot,
                wanted=None if record.wanted_us is None else max(0, record.wanted_us - now_us) / 1e6,
                ttl=record.ttl_ms / 1000,
            )
        )
    waiters = []
    for position, (token, ticket, record) in enumerate(queued):
        waiters.append(
            Waiter(
                token=token,
                weight=record.weight,
                position=position,
                waited_for=max(0, now_us - ticket - record.ahead_us) / 1e6,
                label=record.label,
                exclusive=record.weight >= (resized or record.limit),
                owner=record.owner,
                lock_all=record.of_several,
                value=record.value,
                head_start=record.ahead_us / 1e6,
                silent_for=max(0.0, WAIT_MS / 1000 - (record.mark - now_us) / 1e6) if record.mark else 0.0,
            )
        )
    held_now = limit if used < 0 else min(limit, used)
    return LockStatus(
        holders=tuple(holders),
        waiters=tuple(waiters),
        fence=fence,
        holding=holding,
        waiting=waiting,
        limit=limit,
        free=0 if holds else limit - held_now,
        grants=grants,
        waited=waited_us / 1e6,
        last=last_action(noted),
        granted_ago=max(0, now_us - fence) / 1e6 if fence else None,
        hold=_hold(holds[0], now_us) if holds else None,
        held=held_now,
    )


def _hold(record: Record, now_us: int) -> Hold:
    from handfast.records import Hold

    until_us = record.hold_us or 0
    return Hold(moment(until_us), max(0, until_us - now_us) / 1e6, record.label, record.reason)


def last_action(noted: bytes) -> OperatorAction | None:
    """Read the note of an operator's last action; None for the empty text."""
    action = read_action(noted)
    if action is None:
        return None
    from datetime import UTC, datetime

    from handfast.records import OperatorAction

    return OperatorAction(datetime.fromtimestamp(action.at_us / 1e6, UTC), action.what, action.by, action.why)


def statuses(request: Request) -> Steps[dict[str, LockStatus]]:
    """Read the status of each name in turn."""
    found = {}
    for part in request.parts:
        found[part.name] = yield from status(part)
    return found


def who_is_there(request: Request) -> Steps[tuple[str, LockStatus]]:
    """Read who keeps a request from its permits: of several names the first that is not free, and its status."""
    for part in request.parts:
        found = yield from status(part)
        if found.waiting or found.free < part.weight:
            break
    return part.name, found


def force_release(
    request: PermitRequest, reason: str, by: str, up_to_fence: int = 0, least_fence: int = 0
) -> Steps[int]:
    """Take away the leases with a fence up to ``up_to_fence``, by default all present leases, and return their number.

    With the same number as ``least_fence``, take the only lease with this fence. ``by`` is the label of the operator's
    client. The fences bound the leases to take, so a repeated call cannot hurt later holders. If the first copy of a
    call has taken the leases, and the reply was lost, the second copy finds none. Then the action noted by the server
    tells, and the number is 1.
    """
    before = None
    if least_fence or not up_to_fence:
        seen: Answer = yield request.inspect(0)
        _, now_us, fence, *_, noted, _holders, _waiters = seen.fields
        # An operator may take several leases for the same reason: the note of an earlier one must not count.
        before = last_action(noted)
        # Fences are times, unless the clock stepped back: where the latest one is forgotten, the time will do.
        up_to_fence = up_to_fence or max(now_us, fence)
    count, more, start, again = 0, 1, 0, False
    while more:
        answer: Answer = yield request.revoke(up_to_fence, reason, start, by, least_fence)
        _, revoked, more, start = answer.fields
        count += revoked
        again = again or answer.again
    if again and not count:
        count = int((yield from _is_noted(request, before, "force_release", by, reason)))
    return count


def _is_noted(request: PermitRequest, before: OperatorAction | None, *act: str) -> Steps[bool]:
    """Return whether the last act noted on a name is ``act`` (verb, label and reason), and not ``before``."""
    noted = (yield from status(request)).last
    return noted is not None and noted != before and (noted.what, noted.by, noted.why) == act


def hold(request: PermitRequest, ttl_ms: int, reason: str, by: str) -> Steps[int]:
    """Let no caller in for ``ttl_ms``. Return the end in microseconds."""
    answer: Answer = yield request.hold(ttl_ms, NO_GRACE, reason, by)
    until_us: int = answer.fields[1]
    return until_us


def hold_shown(request: PermitRequest, ttl_ms: int, reason: str, by: str, shown_us: int = NO_HOLD) -> Steps[Acted]:
    """Let no caller in for ``ttl_ms`` unless another hold is set; with ``shown_us``, replace the hold with this end."""
    answer: Answer = yield request.hold(ttl_ms, NO_GRACE, reason, by, shown_us=shown_us)
    if answer.fields[0] != b"other":
        return "done"
    if not answer.again:
        return "other"
    found = (yield from status(request)).hold
    return "done" if found is not None and (found.by, found.reason) == (by, reason) else "unknown"


def ask_to_end(request: PermitRequest, until_us: int, grace_ms: int, reason: str, by: str) -> Steps[int | None]:
    """Ask all holders of a name on hold until ``until_us`` to end, and take the leases whose grace is over.

    Return in how many microseconds to ask again, at most; None if the name has no holder any more, or another operator
    has ended the hold or has set another.
    """
    left, start = inf, 0
    while True:
        answer: Answer = yield request.hold(0, grace_ms, reason, by, shown_us=until_us, start=start)
        tag, *numbers = answer.fields
        if tag == b"other":
            return None
        _, holding, left_us, start = numbers
        left = min(left, left_us) if left_us >= 0 else left
        if not start:
            return None if holding == 0 or left == inf else int(left)


def unhold(request: PermitRequest, reason: str, by: str, shown_us: int | None = None) -> Steps[Acted]:
    """End the hold with the end ``shown_us``, or else the present hold, and serve the queue.

    Without ``shown_us`` the end is looked up first: a call that is sent again must not end a hold set in between.
    """
    # The end of a hold identifies it. Each copy of the call
    # below carries it, so a late copy ends no later hold.
    if shown_us is None:
        found = (yield from status(request)).hold
        if found is None:
            return "nothing"
        shown_us = microseconds(found.until)
    ended, again, is_other, more = False, False, False, 1
    # One call serves at most 100 waiters. Only the first one
    # finds the hold, so each fact is kept over the calls.
    while more:
        answer: Answer = yield request.hold(0, NO_GRACE, reason, by, shown_us=shown_us)
        again, is_other = again or answer.again, answer.fields[0] == b"other"
        was_held, more = (0, 0) if is_other else answer.fields[1:]
        ended = ended or bool(was_held)
    # Where the reply of the call that ended the hold was lost, its copy finds no hold. The note of the act,
    # which the script writes first, then tells who ended it.
    if ended or (again and (yield from _is_noted(request, None, "unhold", by, reason))):
        return "done"
    return "nothing" if not is_other else "unknown" if again else "other"


def resize(request: PermitRequest, limit: int, by: str) -> Steps[None]:
    """Set the limit, and grant the waiters that fit now."""
    yield from change(lambda: request.resize(limit, by))


def _rows(flat: list[Any]) -> list[tuple[str, int, Record]]:
    """The shown part of each token, the score and the record."""
    if not flat:  # most names have no waiters
        return []
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [(token.decode(), int(score), read_record(text) or EVICTED) for token, score, text in rows]
