"""From asking for permits to holding them.

The server decides who gets in; this decides when to ask again and what to believe. Two rules bound the belief:

- A lease is counted from the moment before its request was sent. The server starts counting later, so our
  deadline is never later than the server's (invariant 8).
- A grant that is rung after a wait carries the server's time of the grant. The reply that put us in line carried the
  server's time too, so the difference of the two, added to the moment before we asked, bounds the grant from below.
  It may not exceed the moment we woke at either: that guards against a server clock that jumped ahead meanwhile.

A ring may get lost, so it is never the only way in: a waiter asks again when the earliest lease ends, those at the
front of the line first; often enough that a grant to somebody frozen is found over; and in any case often enough for
the server to know that it is still there.
"""

from __future__ import annotations

from typing import NamedTuple

from handfast._engine.calls import CLAIM_MS, WAIT_MS, Request
from handfast._engine.effects import Answer, Park, Steps, Waking
from handfast.errors import HandfastError, LimitExceeded, QueueFull, ServerRefused

__all__ = ["Attempt", "Grant", "acquire", "cancel", "try_acquire"]

LONGEST_NAP = WAIT_MS / 3000
"""Seconds after which every waiter asks again, whatever happens."""

SHORT_NAP, LONGER = CLAIM_MS / 2000, 0.02
"""Seconds after which the head of the line asks again, and how much later each further place does. A grant that is handed
to a frozen process is over after its claim window, and nobody rings then: the next in line has to come and see. And who was
near the front and was not rung, or did not hear it, comes before the claim window of its grant is over."""

GRACE, STEP = 0.002, 0.001
"""Seconds that the head asks after the end of a lease that it knows of, and how much later each further place does."""

_NO = {b"full": QueueFull, b"never": LimitExceeded}


class Grant(NamedTuple):
    """A lease as it begins: ``deadline`` on the local clock, ``lease`` its length in seconds."""

    fence: int
    deadline: float
    lease: float


class Attempt:
    """One try to acquire.

    ``pending`` while the server may have something of it that its caller does not have yet, ``astray`` once a request for it
    was sent that nobody answered and that may still arrive, and ``unanswered`` once the server has stopped to answer.
    """

    __slots__ = ("astray", "pending", "token", "unanswered", "want")

    def __init__(self, want: Request, token: bytes) -> None:
        self.want = want
        self.token = token
        self.pending = False
        self.astray = False
        self.unanswered = False


def acquire(attempt: Attempt, until: float) -> Steps[Grant | None]:
    """Ask and wait for the permits; None when the moment ``until`` came first and the request was taken back.

    Raises QueueFull when the line takes no more waiters, LimitExceeded when there are fewer permits in all.
    """
    want, token = attempt.want, attempt.token
    call, waiting = want.acquire(token), False
    attempt.pending = True
    while True:
        try:
            answer: Answer = yield call
        except ServerRefused as error:
            attempt.pending = waiting or attempt.astray or not error.changed_nothing
            raise
        sent_at, reply, again = answer
        attempt.astray = attempt.astray or again
        if reply[0] == b"granted":
            _, fence, lease_us = reply
            if lease_us < want.ttl_ms * 500:
                # It was granted a while ago, and the ring or the reply got lost: nobody is given the end of a lease.
                answer = yield want.renew_for(token, want.ttl_ms)
                if answer.reply[0] == b"lost":
                    continue
                sent_at, lease_us = answer.sent_at, answer.reply[1]
            return Grant(fence, sent_at + lease_us / 1e6, lease_us / 1e6)
        if reply[0] in _NO:
            attempt.pending = attempt.astray
            raise _NO[reply[0]](want.name, reply[1])
        if reply[0] != b"queued":
            raise HandfastError(f"the request for {want.name!r} was taken back while it waited", name=want.name)
        waiting = True
        _, asked_us, position, retry_us = reply
        waking: Waking = yield Park(token, min(until, sent_at + _nap(position, retry_us)))
        woke_at, bell = waking
        if bell is not None:
            granted_at = min(sent_at + (bell.granted_us - asked_us) / 1e6, woke_at)
            lease = bell.lease_us / 1e6
            if granted_at + lease / 2 > woke_at:  # else it came too late to be relied on, and asking again tells
                return Grant(bell.fence, granted_at + lease, lease)
        if woke_at >= until:
            yield from cancel(attempt)
            return None


def try_acquire(attempt: Attempt) -> Steps[Grant | None]:
    """Ask once; None when others hold the permits or wait for them.

    It is pending even then if it went astray: one that arrives later would be granted to nobody.
    """
    attempt.pending = True
    try:
        answer: Answer = yield attempt.want.try_acquire(attempt.token)
    except ServerRefused as error:
        attempt.pending = attempt.astray or not error.changed_nothing
        raise
    sent_at, reply, again = answer
    if reply[0] == b"granted":
        return Grant(reply[1], sent_at + reply[2] / 1e6, reply[2] / 1e6)
    attempt.pending = attempt.astray = attempt.astray or again
    if reply[0] == b"never":
        raise LimitExceeded(attempt.want.name, reply[1])
    return None


def cancel(attempt: Attempt) -> Steps[None]:
    """Take a request back, and with it what it may have been granted meanwhile (invariant 7)."""
    more = 1
    while more:
        answer: Answer = yield attempt.want.cancel(attempt.token)
        more = answer.reply[1]
    attempt.pending = False


def _nap(position: int, retry_us: int) -> float:
    if retry_us == 0:  # there is more to be done at once, by whoever comes first
        return 0.0
    nap = min(LONGEST_NAP, SHORT_NAP + LONGER * position)
    return nap if retry_us < 0 else min(nap, retry_us / 1e6 + GRACE + STEP * position)
