"""Wait until no other call has come for a while: from a request to the decision whether the caller runs.

The newest call of a burst knows when it is to run, and asks then. The call before it gets a message that it was
superseded. All ask again when their connection has broken, which also says where they are to be reached from now on, and
three times a minute, should the message be lost.

Each further request carries the ticket of the first reply, by which the server knows which call is newer, however long
its client was away; and the time that is left by the client's clock, so that a server's clock that is set back delays no
call.

A call may leave an item first. Which call runs has nothing to do with that: a run takes all items that are there, and the
server gives them to another run if it does not hear in time that they are done. So an item whose caller was superseded,
or died, or failed, is done by some later run.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from handfast._engine.effects import Answer, Park, Steps, Waking
from handfast._engine.objects import ObjectRequest
from handfast._protocol.acquire import MAX_POLL_S
from handfast._protocol.asking import ObjectAttempt, reply_to
from handfast.errors import QueueFull

if TYPE_CHECKING:
    from handfast.records import DebounceStatus

__all__ = ["Batch", "collect", "end", "found", "read_status", "status", "wait"]

EARLY_S = 0.0005
"""How long after its time a call asks, in seconds: one that comes too early asks twice."""


class Batch(NamedTuple):
    """The items of a run, in the order of their arrival."""

    items: list[bytes]
    until_us: int
    """By the server's clock; the run itself, for the server."""
    until: float
    """By the local clock."""


def wait(attempt: ObjectAttempt, *, at_once: bool = False) -> Steps[bool]:
    """Wait until this call is to run, or is superseded by a later one. Return whether it is to run."""
    attempt.may_be_there = True
    left_s, ticket = 0.0 if at_once else attempt.request.fixed["quiet_ms"] / 1000, 0
    while True:
        answer: Answer = yield attempt.request.call("enter", attempt.token, left_us=round(left_s * 1e6), ticket=ticket)
        tag, *numbers = answer.fields
        if tag != b"waits":
            return bool(tag == b"runs")
        attempt.position = 0
        now_us, due_us, ticket = numbers
        due_at = answer.sent_at + (due_us - now_us) / 1e6
        waking: Waking = yield Park(attempt.token, min(due_at + EARLY_S, answer.sent_at + MAX_POLL_S))
        if waking.grant is not None:
            return False
        left_s = due_at - waking.woke_at


def collect(attempt: ObjectAttempt, item: bytes, most: int, within_ms: int) -> Steps[Batch | None]:
    """Leave an item, and `wait`. Return the items of the run, which may be none; None if this call is not to run.

    Args:
        attempt: The call.
        item: The item.
        most: How many a run takes; the call that leaves the last of so many runs at once.
        within_ms: For how long no other run gets them.
    """
    left: Answer = yield attempt.request.call("put", attempt.token, item=item)
    tag, count, *made_us = left.fields
    if tag == b"full":
        raise QueueFull(attempt.request.name, count, "they are items that no run has done; see why the runs fail")
    if not (yield from wait(attempt, at_once=count >= most)):
        return None
    items: list[bytes] = []
    until_us = first = 0
    until = inf
    while True:
        taken: Answer = yield attempt.request.call(
            "take", attempt.token, most=most, within_us=1000 * within_ms, until_us=until_us, first=first
        )
        _, still_us, until_us, first, page = taken.fields
        until = min(until, taken.sent_at + within_ms / 1000)
        items += page
        if not first:
            break
    items = [item for _, item in sorted((int(at), item) for at, item in (one.split(b" ", 1) for one in items))]
    if [still_us] != made_us:  # the server has lost what it had
        items.append(item)
    return Batch(items, until_us, until)


def status(request: ObjectRequest) -> Steps[DebounceStatus]:
    """Read how far the burst is, and how many items there are."""
    answer: Answer = yield request.call("inspect")
    return read_status(answer.fields)


def read_status(fields: list[Any]) -> DebounceStatus:
    """Make the status of a reply of ``debounce_inspect``."""
    from handfast.records import DebounceStatus

    _, now_us, first_us, due_us, items = fields
    if not due_us:
        return DebounceStatus(0, None, None, items)
    return DebounceStatus(1, max(0, now_us - first_us) / 1e6, max(0, due_us - now_us) / 1e6, items)


def found(fields: list[Any], *_: object) -> DebounceStatus | None:
    """Return the status of a name found by a search; None if the server does not know it."""
    status = read_status(fields)
    return status if status.waiting or status.items else None


def end(request: ObjectRequest, token: bytes, batch: Batch) -> Steps[None]:
    """Say that the items of a run are done."""
    yield from reply_to(request.call("done", token, until_us=batch.until_us))
