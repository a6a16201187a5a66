"""Keep a lease: its status and deadline, when it is renewed, and how it ends.

`LeaseTable` holds the leases of one client (in asyncio: of one client on one event loop). It decides which renewals are
due, which leases are lost and what the outcome of a renewal means; the renewers of the drivers send, wait and notify. To
add and to remove a lease are single dict operations, so they need neither a lock nor a system call.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from math import inf
from typing import Any

from handfast._engine.calls import CLAIM_MS, PermitRequest, Request
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_noscript
from handfast._protocol.acquire import Grant

__all__ = [
    "FORKED",
    "GONE",
    "HELD",
    "LOST",
    "LOST_RELEASED",
    "RELEASED",
    "RELEASING",
    "LeaseEvent",
    "LeaseState",
    "LeaseStatus",
    "LeaseTable",
    "Renewal",
    "downgrade",
    "release",
    "renew",
]


class LeaseStatus(StrEnum):
    """Where a lease is between its grant and its end."""

    HELD = "held"
    RELEASING = "releasing"
    """Its holder releases it, and the server has not confirmed that. It may be released again if that failed."""
    RELEASED = "released"
    """Its holder let it go. If the server could not be reached, background cleanup releases it there."""
    LOST = "lost"
    """It ended before its holder let it go, and the holder still has it to release."""
    LOST_RELEASED = "lost and released"
    """It was lost, and its holder let it go."""


class LeaseEvent(StrEnum):
    """What happens to a lease."""

    RELEASE = "release"
    """A release is sent."""
    LET_GO = "let_go"
    """The release is confirmed, or left to background cleanup."""
    LOSE = "lose"
    """It expired, was revoked, or the server no longer has it."""


HELD, RELEASING, RELEASED, LOST, LOST_RELEASED = LeaseStatus
RELEASE, LET_GO, LOSE = LeaseEvent

TRANSITIONS: dict[LeaseStatus, dict[LeaseEvent, LeaseStatus]] = {
    HELD: {RELEASE: RELEASING, LET_GO: RELEASED, LOSE: LOST},
    RELEASING: {RELEASE: RELEASING, LET_GO: RELEASED, LOSE: LOST},
    RELEASED: {RELEASE: RELEASED, LET_GO: RELEASED, LOSE: LOST_RELEASED},
    LOST: {RELEASE: LOST, LET_GO: LOST_RELEASED, LOSE: LOST},
    LOST_RELEASED: {RELEASE: LOST_RELEASED, LET_GO: LOST_RELEASED, LOSE: LOST_RELEASED},
}
"""Every event may come in every status: the holder releases in one thread while a renewer loses the lease in another."""

EXPIRED = "its ttl ended before it was renewed or released"
GONE = "the server no longer had it when it was to be {}"
FORKED = "it belongs to the process that this process was forked from"

RENEWALS_PER_TTL = 3
"""Renewals that fit into one ttl: the first two may fail."""

EARLY_FRACTION = 0.1
"""Leases due within this fraction of the renewal period are renewed early in the same batch, which bounds the number of
batches per ttl to about 30 for any number of leases."""

ASK_MS = 1
"""What a lease without renewal is extended to where it is only asked for, in milliseconds: no lease gets shorter by that."""

MIN_RETRY_S = 0.02
"""Shortest pause before a renewal that failed is tried again, in seconds."""

MAX_RETRY_S = 1.0
"""Longest pause before a renewal that failed is tried again, in seconds."""


class LeaseState:
    """One lease. ``deadline`` and ``due_at`` are moments on the local monotonic clock, in seconds.

    ``owner`` is what reads its replies: the driver finds it there without a search. ``confirmation`` is that of its grant until its
    reply came. ``copies`` is whether a copy of its acquire may still be on its way to the server.
    """

    __slots__ = (
        "__weakref__",
        "_release_claims",
        "callbacks",
        "confirmation",
        "copies",
        "deadline",
        "due_at",
        "fence",
        "loss",
        "owner",
        "request",
        "status",
        "token",
        "unconfirmed",
    )

    def __init__(self, request: Request, token: bytes, grant: Grant, owner: Any = None) -> None:
        self.request = request
        self.token = token
        self.owner = owner
        self.fence, self.deadline, lease, self.confirmation, self.copies = grant
        self.unconfirmed = lease * 1000 <= CLAIM_MS < request.ttl_ms
        """Whether it lasts the claim window and not its ttl: then it is renewed even without renewal."""
        self.due_at = self.deadline
        if request.renew or self.unconfirmed:
            self.due_at -= lease * (1 - 1 / RENEWALS_PER_TTL)
        self.status = HELD
        self.loss: str | None = None
        """Why it was lost; None unless it was."""
        self.callbacks: list[Callable[[], object]] = []
        """Called once each when it is lost."""
        self._release_claims = [True]
        if self.confirmation is not None:
            self.confirmation.then(self.answered)

    def apply(self, event: LeaseEvent) -> None:
        """Change the status as ``TRANSITIONS`` says. Raises AssertionError for an event that it does not have.

        Reading and writing the status is one expression without a call, which no other thread interrupts.
        """
        try:
            self.status = TRANSITIONS[self.status][event]
        except KeyError:
            raise AssertionError(f"a lease that is {self.status} cannot {event}") from None

    @property
    def is_released(self) -> bool:
        """Whether its holder let it go, lost or not."""
        return self.status is RELEASED or self.status is LOST_RELEASED

    @property
    def period(self) -> float:
        """Seconds from one renewal to the next."""
        return self.request.ttl_ms / 1000 / RENEWALS_PER_TTL

    @property
    def renewal(self) -> Call:
        """The call that renews it; without renewal, the one that only asks whether the server still has it."""
        extends = self.request.renew or self.unconfirmed
        return self.request.renew_for(self.token, self.request.ttl_ms if extends else ASK_MS)

    def status_at(self, now: float) -> LeaseStatus:
        """Return the status; a lease that reached its deadline is lost, and nothing is waited for (invariant 9).

        But first the replies that have arrived are read, since a process that was paused or blocked has not done so.
        """
        if now >= self.deadline and self.status in (HELD, RELEASING):
            if self.owner is not None:
                self.owner.receive(self)
            if now >= self.deadline:
                self.lose(EXPIRED)
        return self.status

    def lost(self, now: float) -> bool:
        """Return whether the lease ended before its holder let it go."""
        self.status_at(now)
        return self.loss is not None

    def lose(self, reason: str) -> None:
        """Note that it is lost. The first reason stays."""
        self.loss = self.loss or reason
        self.apply(LOSE)

    def let_go(self) -> None:
        """Note that its holder is through with it, whether or not the server confirmed a release."""
        self.apply(LET_GO)

    def claim_release(self) -> bool:
        """Return True once: of several callers that release the lease at the same time, one released it."""
        try:
            return self._release_claims.pop()
        except IndexError:
            return False

    def disown(self) -> None:
        """Give it up in a forked child, where it is the parent's."""
        self.lose(FORKED)
        self.let_go()

    def renewed(self, sent_at: float, lease_us: int) -> None:
        """Set the new deadline, counted from before the renewal was sent. It never moves back."""
        self.deadline = max(self.deadline, sent_at + lease_us / 1e6)
        self.unconfirmed = self.unconfirmed and lease_us <= CLAIM_MS * 1000
        self.due_at = sent_at + self.period if self.request.renew else self.deadline

    def answered(self, answer: Answer | None) -> None:
        """Take the reply to a renewal in the step that reads it. Any other than that it was renewed makes it due at once."""
        if answer is not None and answer.fields[0] == b"renewed":
            self.renewed(answer.sent_at, answer.fields[1])
        else:
            self.due_at = -inf
        self.confirmation = None


class Renewal(StrEnum):
    """What a renewer does about the outcome of one renewal."""

    SETTLED = "settled"
    """Nothing: the lease was renewed, or released in the meantime."""
    LOST = "lost"
    """Notify the holder."""
    SEND_SOURCE = "send source"
    """Send it again with the script's source, which the server does not know."""
    RETRY = "retry"
    """Log the refusal; the lease is due again soon."""
    RECONNECT = "reconnect"
    """The same, after a new connection: another server may be the primary by now."""


class LeaseTable(dict[bytes, LeaseState]):
    """The leases that are renewed and watched, by token. A lease that is released is removed first."""

    __slots__ = ()

    def all(self) -> list[LeaseState]:
        """Return a copy: other threads may add and remove leases."""
        return list(self.values())

    def next_due(self) -> float | None:
        """Return the moment of the next renewal or expiry; None if the table is empty."""
        return min((lease.due_at for lease in self.all()), default=None)

    def remove_expired(self, now: float) -> list[LeaseState]:
        """Remove the leases that are lost by now, and return them. Those that are gone already, others take care of."""
        return [lease for lease in self.all() if lease.lost(now) and self.pop(lease.token, None) is not None]

    def due(self, now: float) -> list[LeaseState]:
        """Return the leases to renew now, once the first is due. Each is put off by a retry in case its renewal fails.

        Those without renewal are due until their deadline only if `renew_all` made them so.
        """
        renewed = [lease for lease in self.all() if lease.request.renew or lease.due_at < lease.deadline]
        if not any(lease.due_at <= now for lease in renewed):
            return []
        due = [lease for lease in renewed if lease.due_at <= now + lease.period * EARLY_FRACTION]
        for lease in due:
            lease.due_at = min(lease.deadline, now + min(MAX_RETRY_S, max(MIN_RETRY_S, lease.period / 4)))
        return due

    def renew_all(self, now: float) -> None:
        """Make every lease due: messages may have been missed, among them that one was revoked."""
        for lease in self.all():
            lease.due_at = now

    def stop_renewing(self) -> None:
        """Let all leases run out. Those whose holder wants to be notified of that stay in the table."""
        for lease in self.all():
            lease.due_at = lease.deadline
            if not lease.callbacks:
                self.pop(lease.token, None)

    def lose(self, lease: LeaseState, reason: str) -> None:
        """Remove a lease that the server no longer has."""
        lease.lose(reason)
        self.pop(lease.token, None)

    def settle(self, lease: LeaseState, outcome: Answer | ErrorReply, now: float) -> Renewal:
        """Judge the outcome of a renewal, and update the lease."""
        if isinstance(outcome, ErrorReply):
            if is_noscript(outcome):
                lease.due_at = now
                return Renewal.SEND_SOURCE
            return Renewal.RECONNECT if is_failover(outcome) else Renewal.RETRY
        tag, *numbers = outcome.fields
        if tag == b"renewed":
            lease.renewed(outcome.sent_at, numbers[0])
        elif self.get(lease.token) is lease:
            self.lose(lease, GONE.format("renewed"))
            return Renewal.LOST
        return Renewal.SETTLED


def release(lease: LeaseState, *, by_holder: bool = True) -> Steps[bool]:
    """Release a lease and hand it to the next waiters. Return False if the server no longer had it.

    Background cleanup is not ``by_holder``: it leaves the status alone.
    """
    if by_holder:
        lease.apply(RELEASE)
    released, more = True, 1
    while released and more:
        answer: Answer = yield lease.request.release(lease.token, copies=lease.copies)
        tag, *numbers = answer.fields
        released = tag == b"released" or (tag == b"unknown" and answer.again)
        more = tag == b"released" and numbers[0]
    if by_holder:
        lease.apply(LET_GO)
    return released


def renew(lease: LeaseState, ttl_ms: int) -> Steps[bool]:
    """Extend a lease to that many milliseconds from now. Return False if the server no longer had it."""
    answer: Answer = yield lease.request.renew_for(lease.token, ttl_ms)
    tag, *numbers = answer.fields
    if tag == b"lost":
        return False
    lease.renewed(answer.sent_at, numbers[0])
    return True


def downgrade(lease: LeaseState, request: PermitRequest) -> Steps[bool]:
    """Keep only the permits of ``request`` of a lease. Return False if the server no longer had it."""
    more = 1
    while more:
        answer: Answer = yield request.lower(lease.token)
        tag, *numbers = answer.fields
        if tag == b"lost":
            return False
        more = numbers[0]
    lease.request = request
    return True
