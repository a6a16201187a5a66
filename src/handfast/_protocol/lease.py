"""From holding permits to giving them up: what is held, until when, and what is due next.

The `LeaseTable` is the book that one client keeps of its leases. It decides which renewals are due and which leases are
lost; a keeper (a thread or a task of floor 3) does what it says. Adding and dropping a lease are single dict
operations, so they need no lock and no system call.
"""

from __future__ import annotations

from collections.abc import Callable

from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Answer, Steps
from handfast._protocol.acquire import Grant

__all__ = ["LeaseState", "LeaseTable", "lower", "release", "renew"]

RENEWALS = 3
"""Renewals that fit into one ttl: the first two may fail."""

EARLY = 0.1
"""Part of the time between two renewals by which one may come early, so that it goes along with others: however many
leases are held, a ttl has some thirty looks at them."""

SHORTEST_RETRY, LONGEST_RETRY = 0.02, 1.0
"""Seconds between two tries of a renewal that failed."""


class LeaseState:
    """One lease. ``deadline`` and ``due_at`` are moments on the local monotonic clock, in seconds."""

    __slots__ = ("__weakref__", "callbacks", "deadline", "due_at", "fence", "given_up", "loss", "permits", "token")

    def __init__(self, permits: Request, token: bytes, grant: Grant) -> None:
        self.permits = permits
        self.token = token
        self.fence = grant.fence
        self.deadline = grant.deadline
        self.due_at = grant.deadline - grant.lease * (1 - 1 / RENEWALS) if permits.renew else grant.deadline
        self.given_up = False
        self.loss: str | None = None
        """Why the lease was lost; None while it is not known to be."""
        self.callbacks: list[Callable[[], object]] = []

    @property
    def period(self) -> float:
        """Seconds from one renewal to the next."""
        return self.permits.ttl_ms / 1000 / RENEWALS

    def lost(self, now: float) -> bool:
        """Whether the lease ended before it was given up. Needs no I/O: the deadline is known (invariant 9)."""
        if self.loss is None and now >= self.deadline and not self.given_up:
            self.loss = "its time was over before it was renewed or released"
        return self.loss is not None

    def renewed(self, sent_at: float, lease_us: int) -> None:
        """The server let the lease go on. Its new deadline counts from before the renewal was sent."""
        self.deadline = max(self.deadline, sent_at + lease_us / 1e6)
        self.due_at = sent_at + self.period if self.permits.renew else self.deadline


class LeaseTable:
    """All leases that one client holds."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[bytes, LeaseState] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, holding: LeaseState) -> None:
        """Enter a lease."""
        self._held[holding.token] = holding

    def drop(self, holding: LeaseState) -> bool:
        """Strike a lease out: it is renewed no more (invariant 10). Whether it was there."""
        return self._held.pop(holding.token, None) is not None

    def find(self, token: bytes) -> LeaseState | None:
        """The lease of that token."""
        return self._held.get(token)

    def all(self) -> list[LeaseState]:
        """Every lease, whatever others add or drop meanwhile."""
        return list(self._held.values())

    def next_due(self) -> float | None:
        """The moment at which something is to be done next; None when nothing is held."""
        return min((holding.due_at for holding in self.all()), default=None)

    def over(self, now: float) -> list[LeaseState]:
        """The leases that time has ended, struck out."""
        over = [holding for holding in self.all() if holding.lost(now)]
        for holding in over:
            self.drop(holding)
        return over

    def due(self, now: float) -> list[LeaseState]:
        """The leases to renew now, once the first of them is due. Each is put off by a retry, in case its renewal fails."""
        kept = [holding for holding in self.all() if holding.permits.renew]
        if not any(holding.due_at <= now for holding in kept):
            return []
        due = [holding for holding in kept if holding.due_at <= now + holding.period * EARLY]
        for holding in due:
            pause = holding.period / 4
            holding.due_at = min(holding.deadline, now + min(LONGEST_RETRY, max(SHORTEST_RETRY, pause)))
        return due

    def lose(self, holding: LeaseState, reason: str) -> None:
        """The server says that the lease is gone."""
        holding.loss = holding.loss or reason
        self.drop(holding)


def release(holding: LeaseState) -> Steps[bool]:
    """Give a lease up; False when the server no longer had it."""
    more = 1
    while more:
        answer: Answer = yield holding.permits.release(holding.token)
        if answer.reply[0] == b"lost":
            return False
        more = answer.reply[1]
    return True


def renew(holding: LeaseState, ttl_ms: int) -> Steps[bool]:
    """Let a lease last that long from now; False when the server no longer had it."""
    answer: Answer = yield holding.permits.renew_for(holding.token, ttl_ms)
    if answer.reply[0] == b"lost":
        return False
    holding.renewed(answer.sent_at, answer.reply[1])
    return True


def lower(holding: LeaseState, permits: PermitRequest) -> Steps[bool]:
    """Keep only these permits of a lease; False when the server no longer had it."""
    more = 1
    while more:
        answer: Answer = yield permits.lower(holding.token)
        if answer.reply[0] == b"lost":
            return False
        more = answer.reply[1]
    holding.permits = permits
    return True
