"""Acquire: from a request to a lease.

The server decides who gets a lease. This module decides when to ask again, and which deadline to believe:

- A lease that is granted at once is counted from the moment before its request was sent. The server starts counting
  later, so the local deadline is never later than the server's (invariant 8).
- A grant message carries the server's time of the grant, and the reply that enqueued the request carried the server's
  time, too. Their difference, added to the moment before the request was sent, is a lower bound for the local time of the
  grant. It is capped at the moment when the waiter woke, in case the server's clock jumped ahead.
- Each further request carries the ticket of the first reply, by which the waiter gets back a place that the server has lost.

A grant that is handed over lasts the claim window at first, so that a receiver which is frozen does not block the others for
its whole ttl. The receiver confirms it: the driver sends a renewal for the whole ttl in the very step that receives the
message, before the caller runs, and does not wait for the reply. Whatever the caller does then, its lease lasts its ttl.

A grant message may be lost, so it is never the only way in. A waiter polls when the earliest lease ends, spread by queue
position; soon enough to take over from a grantee that froze; and at least every third of its wait-lease, so that the
server knows that it is alive.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from handfast._engine.calls import CLAIM_MS, WAIT_MS, PermitRequest, Request
from handfast._engine.effects import Answer, Confirmation, Park, Steps, Waking
from handfast._engine.packing import read_reply
from handfast.errors import HandfastError, LimitExceeded, QueueFull, ServerRefused

__all__ = ["Attempt", "AttemptEvent", "AttemptState", "Grant", "acquire", "cancel", "try_acquire"]


class AttemptState(StrEnum):
    """What the server may have of one attempt that its caller does not have yet."""

    NEW = "new"
    """Nothing: no request is on its way, and none left anything behind."""
    SENT = "sent"
    """A request was sent, and its reply is not known."""
    QUEUED = "queued"
    """A queue entry, or a grant whose message has not arrived yet."""
    LATE = "late"
    """Perhaps more than the last reply says: an earlier copy of the request had no reply and may still run."""
    GRANTED = "granted"
    """A lease that the caller does not have yet."""
    UNANSWERED = "unanswered"
    """Any of these; the server stopped replying, so it is cancelled in the background and the caller does not wait."""
    CANCELLING = "cancelling"
    """Any of these; background cleanup is cancelling it, and the caller has nothing left to do."""
    DONE = "done"
    """Nothing, and nothing can come of it: a tombstone stops copies of the request that arrive later."""


class AttemptEvent(StrEnum):
    """What happens to an attempt."""

    SEND = "send"
    """A request is sent."""
    DUPLICATE = "duplicate"
    """A reply came, but an earlier copy of the request had none."""
    QUEUE = "queue"
    GRANT = "grant"
    REJECT = "reject"
    """The script ran and neither granted nor enqueued the request: busy, queue full, or above the limit."""
    REFUSE = "refuse"
    """The server replied with an error and ran nothing."""
    SILENCE = "silence"
    """The server stopped replying."""
    CLEAN_UP = "clean_up"
    """Background cleanup takes over."""
    CANCEL = "cancel"
    """The server confirmed that it is cancelled."""


NEW, SENT, QUEUED, LATE, GRANTED, UNANSWERED, CANCELLING, DONE = AttemptState
SEND, DUPLICATE, QUEUE, GRANT, REJECT, REFUSE, SILENCE, CLEAN_UP, CANCEL = AttemptEvent

_TO_UNDO = {SILENCE: UNANSWERED, CLEAN_UP: CANCELLING, CANCEL: DONE}

TRANSITIONS: dict[AttemptState, dict[AttemptEvent, AttemptState]] = {
    NEW: {SEND: SENT, SILENCE: NEW},
    SENT: {SEND: SENT, DUPLICATE: LATE, QUEUE: QUEUED, GRANT: GRANTED, REJECT: NEW, REFUSE: NEW} | _TO_UNDO,
    QUEUED: {SEND: QUEUED, DUPLICATE: LATE, QUEUE: QUEUED, GRANT: GRANTED, REJECT: NEW, REFUSE: QUEUED} | _TO_UNDO,
    LATE: {SEND: LATE, DUPLICATE: LATE, QUEUE: LATE, GRANT: GRANTED, REJECT: LATE, REFUSE: LATE} | _TO_UNDO,
    GRANTED: _TO_UNDO,
    UNANSWERED: _TO_UNDO,
    CANCELLING: _TO_UNDO | {SILENCE: CANCELLING},
    DONE: {SILENCE: DONE, CANCEL: DONE},
}

MAX_POLL_S = WAIT_MS / 3000
"""Longest poll interval of a waiter, in seconds: a third of its wait-lease."""

HEAD_POLL_S = CLAIM_MS / 2000
"""Poll interval of the first waiter, in seconds. Polling is the fallback for lost messages: half a claim window is early
enough both to take over from a frozen grantee and to claim a grant whose message was lost."""

POLL_STAGGER_S = 0.02
"""What each queue position adds to the poll interval, in seconds."""

EXPIRY_SLACK_S = 0.002
"""How long after the end of the earliest lease the first waiter polls, in seconds."""

EXPIRY_STAGGER_S = 0.001
"""What each queue position adds to that, in seconds."""

_REJECTIONS = (b"full", b"exceeds_limit")


class Grant(NamedTuple):
    """A new lease: ``deadline`` on the local clock, ``lease`` its length, both in seconds; and its confirmation, if one was sent."""

    fence: int
    deadline: float
    lease: float
    confirmation: Confirmation | None = None
    copies: bool = False
    """Whether a copy of the request may still be on its way to the server."""


class Attempt:
    """One attempt to acquire, under a token of its own."""

    __slots__ = ("__weakref__", "caller", "copies", "request", "state", "token")

    def __init__(self, request: Request, token: bytes, caller: int = 0) -> None:
        self.request = request
        self.token = token
        self.caller = caller
        """The number of the thread or task."""
        self.state = NEW
        self.copies = False
        """Whether a copy of the request may still be on its way to the server."""

    def apply(self, event: AttemptEvent) -> None:
        """Change the state as ``TRANSITIONS`` says. Raises AssertionError for an event that cannot happen now."""
        try:
            self.state = TRANSITIONS[self.state][event]
            self.copies |= event is DUPLICATE
        except KeyError:
            raise AssertionError(f"an attempt that is {self.state} cannot {event}") from None

    @property
    def needs_undo(self) -> bool:
        """Whether the server may have something of it that has to be cancelled (invariant 7)."""
        return self.state not in (NEW, CANCELLING, DONE)

    @property
    def is_unanswered(self) -> bool:
        """Whether the server stopped replying, so that waiting for a cancel is pointless."""
        return self.state is UNANSWERED


def acquire(attempt: Attempt, until: float) -> Steps[Grant | None]:
    """Acquire, waiting in the queue if need be. Return None if the moment ``until`` came first and the request is cancelled.

    Raises QueueFull, LimitExceeded if the name has fewer permits than requested, and ServerRefused.
    """
    request, token, ticket = attempt.request, attempt.token, 0
    attempt.apply(SEND)
    while True:
        try:
            answer: Answer = yield request.acquire(token, ticket, caller=attempt.caller)
        except ServerRefused as error:
            if error.changed_nothing:
                attempt.apply(REFUSE)
            raise
        sent_at, _, again = answer
        if again:
            attempt.apply(DUPLICATE)
        tag, *numbers = read_reply(answer.reply, request.ttl_ms)
        if tag == b"granted":
            fence, lease_us = numbers
            if lease_us < request.ttl_ms * 500:
                # Granted some time ago, and the message or the reply was lost: make the rest a whole lease first.
                answer = yield request.renew_for(token, request.ttl_ms)
                tag, *numbers = answer.fields
                if tag == b"lost":
                    continue
                sent_at, lease_us = answer.sent_at, numbers[0]
            attempt.apply(GRANT)
            return Grant(fence, sent_at + lease_us / 1e6, lease_us / 1e6, None, attempt.copies)
        if tag in _REJECTIONS:
            attempt.apply(REJECT)
            raise _rejection(request, tag, *numbers)
        if tag != b"queued":
            raise HandfastError(f"the request for {request.name!r} was cancelled while it waited", name=request.name)
        attempt.apply(QUEUE)
        asked_us, position, retry_us, ticket = numbers
        wait_until = min(until, sent_at + _poll_interval(position, retry_us))
        waking: Waking = yield Park(token, wait_until, request.confirm(token))
        woke_at, message, confirmation = waking
        if message is not None:
            granted_at = min(sent_at + (message.granted_us - asked_us) / 1e6, woke_at)
            lease = message.lease_us / 1e6
            if granted_at + lease / 2 > woke_at:  # else it came too late to rely on, and asking again tells
                attempt.apply(GRANT)
                return Grant(message.fence, granted_at + lease, lease, confirmation, attempt.copies)
        if woke_at >= until:
            yield from cancel(attempt)
            return None


def try_acquire(attempt: Attempt) -> Steps[Grant | None]:
    """Acquire if that needs no waiting, else return None. The attempt may need an undo even then, if a copy is late."""
    attempt.apply(SEND)
    try:
        answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)
    except ServerRefused as error:
        if error.changed_nothing:
            attempt.apply(REFUSE)
        raise
    sent_at, _, again = answer
    if again:
        attempt.apply(DUPLICATE)
    tag, *numbers = read_reply(answer.reply, attempt.request.ttl_ms)
    if tag == b"granted":
        attempt.apply(GRANT)
        fence, lease_us = numbers
        return Grant(fence, sent_at + lease_us / 1e6, lease_us / 1e6, None, attempt.copies)
    attempt.apply(REJECT)
    if tag == b"exceeds_limit":
        raise _rejection(attempt.request, tag, *numbers)
    return None


def cancel(attempt: Attempt) -> Steps[None]:
    """Cancel a request, and give back what it was granted in the meantime (invariant 7)."""
    more = 1
    while more:
        answer: Answer = yield attempt.request.cancel(attempt.token)
        more = answer.fields[1]
    attempt.apply(CANCEL)


def _poll_interval(position: int, retry_us: int) -> float:
    """Seconds until a waiter polls. ``retry_us``: until the earliest lease ends; 0 to ask at once, -1 if unknown."""
    if retry_us == 0:
        return 0.0
    interval = min(MAX_POLL_S, HEAD_POLL_S + POLL_STAGGER_S * position)
    return interval if retry_us < 0 else min(interval, retry_us / 1e6 + EXPIRY_SLACK_S + EXPIRY_STAGGER_S * position)


def _rejection(request: Request, tag: bytes, number: int) -> HandfastError:
    """Return the error for a request that is not queued: the number is the queue's length, or the limit in force."""
    if tag == b"full":
        return QueueFull(request.name, number)
    return LimitExceeded(request.name, number, request.weight if isinstance(request, PermitRequest) else None)
