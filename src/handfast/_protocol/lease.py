"""Keep a lease: status, deadline, renewals and end.

`LeaseTable` holds the leases of a client (in asyncio: of a client on one event loop). It decides which renewals are due
and which leases are lost, and it judges the outcome of each renewal. The renewers of the drivers send, wait and notify.
To add and to remove a lease are single dict operations, so they need neither a lock nor a system call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import ceil, inf
from typing import Any, Literal

from handfast._engine.calls import PermitRequest, Request
from handfast._engine.constants import CLAIM_MS
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.messages import Wanted
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_noscript
from handfast._kinds import MAX_SLOTS
from handfast._protocol.acquire import Grant, not_replicated, renewed
from handfast._protocol.loss import CLOSED, EXPIRED, FORKED, PLANNED, RAN_OUT, Loss, gone, preempted

__all__ = [
    "RENEWALS_PER_TTL",
    "LeaseState",
    "LeaseTable",
    "Renewal",
    "downgrade",
    "give_up",
    "number",
    "release",
    "renew",
]


NOT_GIVEN_UP = "it was to be given up, and its holder did not release it in time"
NO_ANSWER = "the server did not answer"

RENEWALS_PER_TTL = 3
"""Renewals that fit into one ttl: the first two may fail."""

EARLY_FRACTION = 0.1
"""Leases due within this fraction of the renewal period are renewed early in the same batch, which bounds the number of
batches per ttl to about 30 for any number of leases."""

ASK_MS = 1
"""TTL, in milliseconds, of a renewal that only asks whether the lease still exists: a renewal never shortens a
lease."""

MIN_RETRY_S = 0.02
"""Shortest pause before a renewal that failed is tried again, in seconds."""

MAX_RETRY_S = 1.0
"""Longest pause before a renewal that failed is tried again, in seconds."""


class LeaseState:
    """A lease. Moments are on the local monotonic clock, in seconds.

    ``owner`` is the pool or loop context that reads the replies for this lease. ``confirmation`` is the
    `Confirmation` of the grant until the reply comes. ``copies`` is whether a copy of the acquire may still be on the
    way to the server.
    """

    __slots__ = (
        "__weakref__",
        "_is_claimed",
        "acquired_at",
        "asked_at",
        "block",
        "callbacks",
        "companions",
        "confirmation",
        "copies",
        "deadline",
        "due_at",
        "ended_at",
        "ends_at",
        "fence",
        "granted_at",
        "has_ended",
        "is_released",
        "left_ms",
        "loss",
        "not_before",
        "owner",
        "request",
        "thread",
        "token",
        "trouble",
        "unconfirmed",
        "wanted",
        "yielded",
    )

    fence: int
    deadline: float
    copies: bool

    def __init__(self, request: Request, token: bytes, grant: Grant, owner: Any = None, asked_at: float = 0.0) -> None:
        self.request: Request = request
        self.token: bytes = token
        self.owner: Any = owner
        self.fence, deadline, lease, self.confirmation, self.copies = grant
        self.deadline = deadline
        self.asked_at: float = asked_at
        self.acquired_at: float = deadline - lease
        self.granted_at: float = self.acquired_at
        """When the server granted it: of a lease that was adopted, before its holder got it."""
        self.ends_at: float = self.acquired_at + request.max_hold
        """When its holder has had it for long enough, and it ends in any case."""
        self.left_ms: int | None = None
        """What is left of that time when it is renewed, in milliseconds; None without a limit."""
        self.ended_at: float = inf
        self.unconfirmed: bool = lease * 1000 <= CLAIM_MS < request.grant_ms
        """Whether only the claim window was granted so far. Such a lease is renewed once, even with ``renew=False``."""
        if request.renew or self.unconfirmed:
            self.due_at: float = self.acquired_at + min(lease, request.ttl_ms / 1000) / RENEWALS_PER_TTL
        else:
            self.due_at = deadline
        self.not_before: float = -inf
        """It is not renewed before this moment: the server has refused to."""
        self.is_released: bool = False
        """Whether its holder let it go, lost or not. If the server could not be reached, background cleanup releases it
        there."""
        self.loss: Loss | None = None
        """Why it was lost; None unless it was."""
        self.trouble: str | None = None
        """Why the latest renewal was not answered or was refused; None if it was answered."""
        self.callbacks: list[Callable[[], object]] = []
        """Called once each when it is lost."""
        self.companions: tuple[bytes, ...] = ()
        """The tokens of the leases that it is of no use without. When one is lost, none of them is renewed any more."""
        self.block: Any = None
        """The ``with`` block that holds the lease; None without a block. In asyncio the task, for a thread an `Entry`: the
        frame itself would be kept alive, and the lease with it."""
        self.thread: int | None = None
        """The native id of the thread that acquired it; None in asyncio."""
        self.wanted: Wanted | None = None
        """That a later request has asked its holder to end; None unless one has."""
        self._is_claimed = False
        if self.confirmation is not None:
            self.confirmation.then(self.answered)

    @property
    def parts(self) -> tuple[LeaseState, ...]:
        """The leases on the server behind this lease: in a cluster a lease per slot, with its token and fence."""
        return (self,)

    @property
    def is_renewed(self) -> bool:
        """Whether it is extended; otherwise it runs out as planned."""
        return self.request.renew or self.unconfirmed

    @property
    def period(self) -> float:
        """Seconds between two renewals."""
        return self.request.ttl_ms / 1000 / RENEWALS_PER_TTL

    @property
    def asked_ms(self) -> int:
        """For how long it is renewed, in milliseconds."""
        return self.request.ttl_ms if self.left_ms is None else min(self.request.ttl_ms, self.left_ms)

    @property
    def renewal(self) -> Call:
        """The call to renew it; without renewal, a call which only asks whether the server still has the lease."""
        request = self.request
        ttl_ms = request.grant_ms if self.unconfirmed else request.ttl_ms if request.renew else ASK_MS
        return request.renew_for(self.token, ttl_ms if self.left_ms is None else min(ttl_ms, self.left_ms))

    def lost(self, now: float) -> bool:
        """Return whether the lease ended before the holder let it go.

        A lease ends at the deadline, and nothing is waited for (invariant 9).

        But the replies that have arrived are read first, since a paused or blocked process has not done so.
        """
        if now >= self.deadline and self.loss is None and not self.is_released:
            if self.owner is not None:
                self.owner.receive(self)
            if now >= self.deadline:
                self.lose(self._loss_at_deadline(now), self.deadline)
        return self.loss is not None

    def _loss_at_deadline(self, now: float) -> Loss:
        if now >= self.ends_at:  # it would have ended then, renewed or not
            if self.wanted is not None:
                return preempted(self.wanted.reason)
            held_for = self.request.max_hold
            text = f"it was held for max_hold, {held_for:g} s" if held_for < inf else NOT_GIVEN_UP
            return Loss("expired" if self.is_renewed else "planned", text)
        if getattr(self.owner, "is_closed", False):
            return RAN_OUT
        if not self.is_renewed:
            return PLANNED
        if self.trouble is None:
            return EXPIRED
        return Loss("expired", f"{EXPIRED.text}; the last renewal failed: {self.trouble}")

    @property
    def waited(self) -> float:
        """Seconds from the acquiring call to the grant."""
        return max(0.0, self.acquired_at - self.asked_at)

    def held_for(self, now: float) -> float:
        """Return the seconds since the grant, up to the end of the lease."""
        return max(0.0, min(now, self.ended_at) - self.acquired_at)

    def lose(self, loss: Loss, now: float) -> None:
        """Note the loss. The first loss stays."""
        self.loss = self.loss or loss
        self.ended_at = min(self.ended_at, now)

    def let_go(self, now: float) -> None:
        """Note the end of the holder's use, whether or not the server confirmed a release."""
        self.is_released = True
        self.ended_at = min(self.ended_at, now)
        self.block = self.confirmation = None  # which holds the lease in turn

    def claim_release(self) -> bool:
        """Return True to the first caller only: several may release the lease at the same time.

        Reading and writing the flag is a single expression without a call, which no other thread interrupts.
        """
        was_claimed, self._is_claimed = self._is_claimed, True
        return not was_claimed

    def claim_end(self) -> bool:
        """Return True once: the end of the lease is reported once. Only asked where functions listen."""
        had_ended: bool = getattr(self, "has_ended", False)
        self.has_ended: bool = True
        return not had_ended

    @property
    def loss_text(self) -> str:
        """Why it was lost, in words; empty unless it was."""
        return "" if self.loss is None else self.loss.text

    def disown(self, now: float) -> None:
        """Give it up in a forked child, where it is the parent's."""
        self.lose(FORKED, now)
        self.let_go(now)

    def renewed(self, sent_at: float, lease_us: int) -> None:
        """Set the new deadline, counted from before the renewal was sent. It never moves back."""
        self.trouble = None
        self.deadline = max(self.deadline, min(self.ends_at, sent_at + lease_us / 1e6))
        self.unconfirmed = self.unconfirmed and lease_us <= CLAIM_MS * 1000
        is_renewed = self.request.renew and self.deadline < self.ends_at
        self.due_at = sent_at + self.period if is_renewed else self.deadline

    def shorten(self, sent_at: float, lease_us: int) -> None:
        """Have it end as the reply says, if a renewal asked for a whole ttl and was given less.

        The server has asked the holder to end, and the message was lost.
        """
        if self.request.renew and not self.unconfirmed and lease_us < self.asked_ms * 1000:
            self.ends_at = min(self.ends_at, sent_at + lease_us / 1e6)
            self.deadline = min(self.deadline, self.ends_at)

    def end_within(self, seconds: float, now: float) -> None:
        """Have it end after so many seconds, or as soon as it ends anyway: it is not renewed for longer."""
        self.ends_at = min(self.ends_at, max(self.deadline, now + seconds))

    def want(self, wanted: Wanted, now: float) -> bool:
        """Note a request to end it: when the time is over it is revoked, so it does not last longer here (invariant 8).

        The earliest end counts, and the latest reason. Return whether the request is the first.
        """
        was_wanted, self.wanted = self.wanted is not None, wanted
        self.yielded: bool = was_wanted and self.yielded
        self.ends_at = min(self.ends_at, min(now, wanted.heard_at) + wanted.grace, self.granted_at + wanted.held)
        self.deadline = min(self.deadline, self.ends_at)
        self.due_at = min(self.due_at, self.deadline)
        return not was_wanted

    def claim_yield(self) -> bool:
        """Return True once, if it is to end: the holder is interrupted once, and then cleans up."""
        if self.wanted is None or self.yielded or not self.request.options.yields:
            return False
        self.yielded = True
        return True

    def limited(self, ttl_ms: int, now: float) -> int:
        """Return how long it may be extended from now, in milliseconds: until it has been held for long enough."""
        if self.ends_at == inf:
            return ttl_ms
        self.left_ms = max(ASK_MS, ceil((self.ends_at - now) * 1000))
        return min(ttl_ms, self.left_ms)

    def answered(self, answer: Answer | None) -> None:
        """Take the reply to a renewal in the step that reads it.

        Any reply other than ``renewed`` makes the lease due at once.
        """
        if answer is None or answer.fields[0] != b"renewed":
            self.due_at = -inf
        elif self.request.is_acknowledged(answer):
            self.renewed(answer.sent_at, answer.fields[1])
        self.confirmation = None


class Renewal(StrEnum):
    """How a renewer follows up the outcome of a renewal."""

    SETTLED = "settled"
    """Nothing: the lease was renewed, or released in the meantime."""
    LOST = "lost"
    """Notify the holder."""
    SEND_SOURCE = "send source"
    """Send it again with the script's source, which the server does not know."""
    RETRY = "retry"
    """Note the refusal; the lease is due again soon."""
    RECONNECT = "reconnect"
    """The same, after a new connection: another server may be the primary by now."""


class LeaseTable(dict[bytes, LeaseState]):
    """The renewed and watched leases, by token. A lease is removed before it is released."""

    __slots__ = ("warned",)

    def __init__(self, leases: Mapping[bytes, LeaseState] | None = None) -> None:
        super().__init__(leases or {})
        self.warned: set[str] = set()
        """The names that were held here while others of the same client waited for long, and for which that was
        logged."""

    def all(self) -> list[LeaseState]:
        """Return a copy: other threads may add and remove leases."""
        return list(self.values())

    def next_due(self) -> float | None:
        """Return the moment of the next renewal or expiry; None if the table is empty."""
        return min((lease.due_at for lease in self.all()), default=None)

    def remove_expired(self, now: float) -> list[LeaseState]:
        """Remove the leases lost by now, and return them.

        Skips leases that another thread has just removed.
        """
        return [lease for lease in self.all() if lease.lost(now) and self._drop(lease)]

    def due(self, now: float) -> list[LeaseState]:
        """Return the leases to renew now, once the first is due. Each is put off by a retry in case the renewal fails.

        A lease without renewal is due before the deadline only if `renew_all` made it so.
        """
        renewed = [lease for lease in self.all() if lease.request.renew or lease.due_at < lease.deadline]
        if not any(lease.due_at <= now for lease in renewed):
            return []
        due = [lease for lease in renewed if lease.due_at <= now + lease.period * EARLY_FRACTION]
        return _put_off(due, now)

    def overdue_at(self, now: float) -> float | None:
        """Return the moment from which a renewal is overdue; None if no renewal is to come.

        A renewal is overdue when a quarter of the time from ``due_at`` to the deadline is over: for so long the renewer
        has not even tried.
        """
        return min(map(_overdue_at, self._live(now)), default=None)

    def overdue(self, now: float) -> list[LeaseState]:
        """Return the leases whose renewals are overdue, put off as `due` does it."""
        return _put_off([lease for lease in self._live(now) if _overdue_at(lease) <= now], now)

    def renew_all(self, now: float) -> None:
        """Make every lease due: messages may have been missed, such as a revocation."""
        for lease in self.all():
            lease.due_at = max(now, lease.not_before)

    def note_failure(self, error: object) -> None:
        """Note why the unanswered renewals failed. Messages continue behind the reason, so it has no full stop."""
        for lease in self.all():
            if lease.trouble is not None:
                lease.trouble = str(error).rstrip(".")

    def stop_renewing(self, *, listened: bool) -> None:
        """Let all leases run out. Those stay in the table whose end is reported: to the holder, or to listeners."""
        for lease in self.all():
            lease.due_at = lease.deadline
            if not (lease.callbacks or listened):
                self.pop(lease.token, None)

    def give_up(self, now: float) -> list[LeaseState]:
        """Remove all leases because their client closes and releases them.

        For code that still works under a lease, the lease is lost.

        A lease released by the holder at the same time is gone from the table, and left to the holder.
        """
        given_up = [lease for lease in self.all() if self.pop(lease.token, None) is not None]
        for lease in given_up:
            lease.lose(CLOSED, now)
        return given_up

    def lose(self, lease: LeaseState, loss: Loss, now: float) -> None:
        """Remove a lease that the server no longer has."""
        lease.lose(loss, now)
        self._drop(lease)

    def settle(self, lease: LeaseState, outcome: Answer | ErrorReply, now: float) -> Renewal:
        """Judge the outcome of a renewal, and update the lease."""
        if isinstance(outcome, ErrorReply):
            if is_noscript(outcome):
                lease.due_at = now
                lease.trouble = None
                return Renewal.SEND_SOURCE
            lease.trouble = str(outcome)
            lease.not_before = lease.due_at
            return Renewal.RECONNECT if is_failover(outcome) else Renewal.RETRY
        tag, *numbers = outcome.fields
        if tag == b"renewed":
            if not lease.request.is_acknowledged(outcome):
                lease.trouble = str(not_replicated(lease.request, outcome))
                return Renewal.RETRY
            lease.shorten(outcome.sent_at, numbers[0])
            lease.renewed(outcome.sent_at, numbers[0])
        elif self.get(lease.token) is lease:
            self.lose(lease, gone("renewed"), now)
            return Renewal.LOST
        return Renewal.SETTLED

    def _live(self, now: float) -> list[LeaseState]:
        """Return the leases that have not ended and are to be renewed before they do."""
        return [lease for lease in self.all() if now < lease.deadline > lease.due_at]

    def _drop(self, lease: LeaseState) -> bool:
        """Remove a lost lease and the companions. Return whether the lease was there."""
        was_there = self.pop(lease.token, None) is not None
        for token in lease.companions:
            self.pop(token, None)
        return was_there


def _overdue_at(lease: LeaseState) -> float:
    return lease.due_at + (lease.deadline - lease.due_at) / 4


def _put_off(leases: list[LeaseState], now: float) -> list[LeaseState]:
    """Have leases whose renewal starts now be due again soon, in case the renewal fails."""
    for lease in leases:
        lease.trouble = lease.trouble or NO_ANSWER
        lease.limited(0, now)
        lease.due_at = min(lease.deadline, now + min(MAX_RETRY_S, max(MIN_RETRY_S, lease.period / 4)))
    return leases


def release(lease: LeaseState, *, by_holder: bool = True) -> Steps[bool]:
    """Release a lease and hand it to the next waiters; a lease of `once` records how it ended.

    Return False if the server no longer had it.

    Background cleanup is not ``by_holder``: the lease was let go before.
    """
    released, more = True, 1
    while released and more:
        answer: Answer = yield lease.request.release(lease.token, copies=lease.copies)
        fields = read_reply(answer.reply)
        released = fields[0] in (b"released", b"recorded") or (fields[0] == b"unknown" and answer.again)
        more = fields[1] if len(fields) > 1 else 0
    if by_holder:
        lease.let_go(answer.sent_at)
    return released


def give_up(lease: LeaseState, now: float) -> Steps[bool]:
    """Let a lease go, and then release it, for a caller that has given up."""
    lease.let_go(now)
    return (yield from release(lease, by_holder=False))


def renew(lease: LeaseState, ttl_ms: int) -> Steps[bool]:
    """Extend a lease to ``ttl_ms`` milliseconds from now.

    Return False if the server no longer had it. Raises NotReplicated.
    """
    sent_at, lease_us = yield from renewed(lease.request, lease.token, ttl_ms)
    if lease_us == 0:
        return False
    lease.renewed(sent_at, lease_us)
    return True


def number(lease: LeaseState, prefer: int) -> Steps[tuple[int] | Literal[False]]:
    """Give a lease a number, unique within the name, and return it; False if the server no longer had the lease.

    Raises ValueError if there are too many holders.
    """
    request = lease.request
    assert isinstance(request, PermitRequest)  # noqa: S101 -- no other kind of lease has a number
    answer: Answer = yield request.slot(lease.token, prefer)
    tag, *numbers = answer.fields
    if tag == b"full":
        raise ValueError(f"{request.name!r} has more than {MAX_SLOTS:,} holders, and slots are numbers below that")
    return (int(numbers[0]),) if numbers else False


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
