"""Histories for the checkers: written by hand, or valid because a model produced them.

A `Play` has callers that act at random moments and get the replies of the model. An operation takes effect at a moment
between its call and its return; the history records only these two. Faults occur as well: replies are lost, callers die
while they wait or hold a lease, leases expire, and an operator revokes leases or sets the limit.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, replace

from handfast_lab.checker.history import Operation
from handfast_lab.checker.models import MAX_PERMITS, Request, State

KINDS = "lock", "semaphore", "rwlock", "lock_all"

TTL = 5.0


# --- written by hand


def did(kind, lease, invoked, returned, outcome, **fields):
    """Return an operation of the lock ``a``, by a client with the name of its lease."""
    fields = {"client": f"client {lease}", "names": ("a",)} | fields
    return Operation(kind=kind, lease=lease, invoked=invoked, returned=returned, outcome=outcome, **fields)


def took(lease, invoked, returned, fence=None, **fields):
    """Return an acquire that was granted."""
    fields = {"kind": "acquire", "deadline": 100.0} | fields
    return did(lease=lease, invoked=invoked, returned=returned, outcome="granted", fence=fence, **fields)


def asked(lease, invoked, returned, outcome="failed", **fields):
    """Return an acquire that was not granted."""
    return did(**{"kind": "acquire"} | fields, lease=lease, invoked=invoked, returned=returned, outcome=outcome)


def tried(lease, invoked, returned, **fields):
    """Return a try_acquire that was refused."""
    return did("try_acquire", lease, invoked, returned, "refused", **fields)


def gave(lease, invoked, returned, outcome="released", **fields):
    """Return a release."""
    return did("release", lease, invoked, returned, outcome, **fields)


def set_to(limit, invoked, returned, outcome="done", **fields):
    """Return a resize."""
    return did("resize", "", invoked, returned, outcome, limit=limit, **fields)


def took_away(invoked, returned, outcome="done", **fields):
    """Return a revoke."""
    return did("revoke", "", invoked, returned, outcome, **fields)


def lowered(lease, invoked, returned, weight, outcome="done", **fields):
    """Return a lower."""
    return did("lower", lease, invoked, returned, outcome, weight=weight, **fields)


def same_lock(*leases):
    """Return a valid history: each of these clients acquires and releases the lock, one after the other."""
    return [
        operation
        for number, lease in enumerate(leases)
        for operation in (
            took(lease, 10 * number, 10 * number + 1, number + 1),
            gave(lease, 10 * number + 5, 10 * number + 6),
        )
    ]


# --- produced by a model


@dataclass
class Lease:
    operation: Operation
    deadline: float = 0.0
    told: bool = False
    """Whether the caller knows that it holds the lease."""


class Play:
    """Callers that use some names until the history has enough operations."""

    def __init__(self, seed, kind="lock", *, operations=20, callers=4, troubles=False, orders=False, names=1):
        self.chance = random.Random(seed)
        self.kind = kind
        # A model has one limit for all names, so a history with resizes has one name.
        self.names = "abcdefgh"[
            : max(names, 2) if kind == "lock_all" else 1 if kind == "semaphore" and orders else names
        ]
        self.troubles = troubles
        self.orders = orders
        self.wanted = operations
        self.state = State()
        self.history = []
        self.leases = {}
        """The requests that are not finished."""
        self.events = []
        self.numbers = itertools.count()
        self.fence = 0
        for caller in range(callers):
            self.at(self.chance.random(), self.begin, f"c{caller}")

    def run(self):
        now = 0.0
        while self.events:
            now, _, event, args = heapq.heappop(self.events)
            event(now, *args)
        return self.history

    def at(self, moment, event, *args):
        heapq.heappush(self.events, (moment, next(self.numbers), event, args))

    def soon(self, mean=0.3):
        return self.chance.expovariate(1 / mean)

    # --- operations of callers

    def begin(self, now, caller):
        if len(self.history) + len(self.leases) >= self.wanted:
            return
        if self.orders and self.chance.random() < 0.1:
            self.order(now, caller)
            return
        weight, limit, names = 1, 1, (self.chance.choice(self.names),)
        if self.kind == "semaphore":
            weight, limit = self.chance.randint(1, 3), 3
        elif self.kind == "rwlock":
            weight, limit = self.chance.choice((1, 1, MAX_PERMITS)), MAX_PERMITS
        elif self.kind == "lock_all" and self.chance.random() < 0.6:
            names = tuple(self.chance.sample(self.names, 2))
        kind = self.chance.choice(("acquire", "acquire", "try_acquire"))
        lease = f"L{next(self.numbers)}"
        operation = Operation(caller, kind, names, lease, now, None, "pending", weight, limit)
        self.leases[lease] = Lease(operation)
        self.at(now + self.soon(), self.ask, lease)

    def ask(self, now, lease):
        operation = self.leases[lease].operation
        request = Request(lease, operation.names, operation.weight, operation.limit)
        if self.troubles and self.chance.random() < 0.1:
            self.mishap(now, lease, request)
        elif operation.kind == "try_acquire":
            asked = self.state.attempt(request)
            self.change(now, asked)
            if not asked.holds(lease):
                self.end(now, lease, "refused")
        elif self.state.exceeds_limit(request):
            self.end(now, lease, "refused")
        else:
            seen = now + self.soon(0.1)
            self.change(now, self.state.ask(request))
            if self.state.waits(lease):
                self.leases[lease].operation = replace(operation, queued=seen)
            if self.chance.random() < 0.3:
                self.at(now + self.soon(2), self.give_up, lease)

    def mishap(self, now, lease, request):
        """Lose the reply: the request is lost, or takes effect now or later, and its lease ends at some time."""
        what = self.chance.choice(("lost", "late", "dead"))
        self.end(now, lease, "pending" if what == "dead" else "failed")
        if what != "lost":
            self.at(now + (self.soon(3) if what == "late" else 0), self.haunt, request)

    def haunt(self, now, request):
        if not self.state.exceeds_limit(request):
            self.change(now, self.state.ask(request))
            self.at(now + self.soon(3), self.vanish, request.who)

    def vanish(self, now, lease):
        self.change(now, self.state.leave(lease))

    def give_up(self, now, lease):
        if lease in self.leases and not self.leases[lease].told:
            self.change(now, self.state.leave(lease))
            self.end(now, lease, "timeout")

    def change(self, now, state):
        """Set the new state, and record the grants that it made."""
        before, self.state = self.state, state
        for request in state.holding:
            if not before.holds(request.who):
                self.fence += self.chance.randint(1, 3)
                if request.who in self.leases:
                    self.grant(now, request.who)

    def grant(self, now, lease):
        held = self.leases[lease]
        heard = now + self.soon(0.1)
        held.deadline = now + TTL
        if heard >= held.deadline:
            heard = held.deadline - 0.001
        held.told = True
        queued = held.operation.queued
        if queued is not None and queued > heard:
            queued = heard
        granted = replace(
            held.operation, returned=heard, outcome="granted", fence=self.fence, deadline=held.deadline, queued=queued
        )
        held.operation = granted
        self.history.append(granted)
        self.at(held.deadline + self.soon(), self.expire, lease)
        if granted.weight == MAX_PERMITS and self.chance.random() < 0.5:
            self.at(heard + self.soon(), self.call_lower, lease)
        else:
            self.at(heard + self.soon(1), self.call_release, lease)

    def expire(self, now, lease):
        if lease in self.leases:
            self.change(now, self.state.leave(lease))

    def call_lower(self, now, lease):
        self.at(now + self.soon(), self.lower, lease, now)

    def lower(self, now, lease, invoked):
        whole = self.is_whole(lease)
        if whole:
            self.change(now, self.state.lower(lease, 1))
        after = self.leases[lease].operation
        done = now + self.soon(0.1)
        outcome = "done" if whole else "lost"
        self.history.append(
            replace(after, kind="lower", invoked=invoked, returned=done, outcome=outcome, weight=1, fence=None)
        )
        self.at(done + self.soon(), self.call_release, lease)

    def call_release(self, now, lease):
        if self.troubles and self.chance.random() < 0.1:
            self.forget(now, lease)
        else:
            self.at(now + self.soon(), self.release, lease, now)

    def forget(self, now, lease):
        """Let the caller die with its lease, with or without a release in flight."""
        held = self.leases[lease]
        if self.chance.random() < 0.5:
            self.history.append(replace(held.operation, kind="release", invoked=now, returned=None, outcome="pending"))
            if self.chance.random() < 0.5:
                self.at(now + self.soon(2), self.vanish, lease)
        self.at(held.deadline + self.soon() + 10, self.leases.pop, None)
        self.at(now + self.soon(), self.begin, held.operation.client)

    def release(self, now, lease, invoked):
        whole = self.is_whole(lease)
        self.change(now, self.state.leave(lease))
        self.end(now, lease, "released" if whole else "lost", kind="release", invoked=invoked, fence=None, queued=None)

    def is_whole(self, lease):
        names = self.leases[lease].operation.names
        return any(request.who == lease and request.names == names for request in self.state.holding)

    def end(self, now, lease, outcome, **fields):
        """Record the end of the operation; its caller goes on."""
        operation = self.leases.pop(lease).operation
        done = now + self.soon(0.1)
        returned = None if outcome == "pending" else done
        self.history.append(replace(operation, **fields | {"returned": returned, "outcome": outcome}))
        self.at(done + self.soon(), self.begin, operation.client)

    # --- operations of operators

    def order(self, now, caller):
        name = self.chance.choice(self.names)
        revokes = self.kind != "semaphore" or self.chance.random() < 0.5
        operation = Operation(caller, "revoke" if revokes else "resize", (name,), "", now, None, "done")
        self.at(now + self.soon(), self.perform, operation)

    def perform(self, now, operation):
        (name,) = operation.names
        if operation.kind == "revoke":
            self.change(now, self.state.revoke(name))
        else:
            operation = replace(operation, limit=self.chance.choice((0, 1, 2, 5)))
            self.change(now, self.state.resize(operation.limit or None))
            self.dismiss(now)
        done = now + self.soon(0.1)
        self.history.append(replace(operation, returned=done))
        self.at(done + self.soon(), self.begin, operation.client)

    def dismiss(self, now):
        """Refuse the waiters whose weight is above the new limit."""
        for request in self.state.queue:
            if self.state.exceeds_limit(request):
                self.change(now, self.state.leave(request.who))
                if request.who in self.leases:
                    self.end(now, request.who, "refused")
