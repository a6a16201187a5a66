"""Sequential specifications of the primitives in plain Python, with one FIFO queue.

The models know nothing about servers, clients, time or randomness. A `State` is an immutable value: every operation
returns a new one. States are compared, hashed and kept in sets, which the search through the possible orders of a
history requires. The answer of an operation follows from the state after it: a granted request `holds`, a queued one
`waits`, and a request that does neither was refused.

One class covers all primitives, because each of them consists of permits of names:

    lock        one permit of one name: weight 1, limit 1
    semaphore   ``weight`` permits, granted if the total then does not exceed ``limit``
    rwlock      a reader takes one permit of MAX_PERMITS, a writer takes MAX_PERMITS
    lock_all    one permit of each of several names, all or none
    rlock       `Reentrant`: a lock, and the leases that share a grant of it
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from handfast._kinds import MAX_PERMITS

__all__ = ["MAX_PERMITS", "Reentrant", "Request", "State"]


class Request(NamedTuple):
    """One request. ``who`` identifies it, and is unique among all requests."""

    who: Hashable
    names: tuple[str, ...] = ("a",)
    weight: int = 1
    limit: int = 1


@dataclass(frozen=True)
class State:
    """Holders and waiters. Names without either are free."""

    holding: tuple[Request, ...] = ()
    """In the order of their grants."""
    queue: tuple[Request, ...] = ()
    """In FIFO order: one queue for all names."""
    resized: int | None = None
    """A limit that overrides those of the requests. It applies to all names, so use a state with a single name where
    limits are set.
    """

    # --- queries

    def holds(self, who: Hashable) -> bool:
        """Return whether the request was granted and has not left."""
        return any(request.who == who for request in self.holding)

    def waits(self, who: Hashable) -> bool:
        """Return whether the request is in the queue."""
        return any(request.who == who for request in self.queue)

    def holders(self, name: str) -> list[Request]:
        """Return the holders of the name, in the order of their grants."""
        return [request for request in self.holding if name in request.names]

    def waiters(self, name: str) -> list[Request]:
        """Return the waiters for the name, in FIFO order."""
        return [request for request in self.queue if name in request.names]

    def out(self, name: str) -> int:
        """Return the number of permits of the name that are held."""
        return sum(request.weight for request in self.holders(name))

    def limit_for(self, request: Request) -> int:
        """Return the limit that applies to this request."""
        return self.resized or request.limit

    def exceeds_limit(self, request: Request) -> bool:
        """Return whether the weight exceeds the limit, so that the request can never be granted."""
        return request.weight > self.limit_for(request)

    def fits(self, request: Request) -> bool:
        """Return whether enough permits are free, ignoring waiters."""
        limit = self.resized or request.limit
        for name in request.names:
            out = request.weight
            for other in self.holding:
                if name in other.names:
                    out += other.weight
            if out > limit:
                return False
        return True

    def is_blocked(self, request: Request) -> bool:
        """Return whether an earlier waiter requests one of the same names.

        A request outside the queue comes after all waiters.
        """
        for other in self.queue:
            if other.who == request.who:
                break
            if not self.exceeds_limit(other) and not set(other.names).isdisjoint(request.names):
                return True
        return False

    def is_grantable(self, request: Request) -> bool:
        """Return whether the request may be granted now, from the queue or from outside it."""
        return self.fits(request) and not self.is_blocked(request)

    # --- operations

    def ask(self, request: Request) -> State:
        """Enqueue a request, and grant it if possible. A request above the limit is refused at once."""
        return self if self.exceeds_limit(request) else replace(self, queue=(*self.queue, request)).served()

    def attempt(self, request: Request) -> State:
        """Grant a request at once or refuse it."""
        asked = self.ask(request)
        return asked if asked.holds(request.who) else asked.leave(request.who)

    def leave(self, who: Hashable) -> State:
        """Remove a holder or a waiter, then serve the queue: a release, a timeout, a cancellation."""
        return self.removed(who).served()

    def removed(self, who: Hashable) -> State:
        """Remove a holder or a waiter without serving the queue: an expired lease, a waiter that died."""
        return State(_without(who, self.holding), _without(who, self.queue), self.resized)

    def lower(self, who: Hashable, weight: int) -> State:
        """Reduce the weight of a holder, then serve the queue."""
        return self.lowered(who, weight).served()

    def lowered(self, who: Hashable, weight: int) -> State:
        """Reduce the weight of a holder without serving the queue."""
        lighter = (
            request._replace(weight=min(weight, request.weight)) if request.who == who else request
            for request in self.holding
        )
        return State(tuple(lighter), self.queue, self.resized)

    def revoke(self, name: str) -> State:
        """Take a name away from all its holders. A holder of several names keeps the others until it leaves."""
        return self.revoked(name, [request.who for request in self.holders(name)]).served()

    def revoked(self, name: str, whom: Collection[Hashable]) -> State:
        """Take a name away from these holders without serving the queue."""
        fewer = (
            request._replace(names=_others(name, request.names)) if request.who in whom else request
            for request in self.holding
        )
        return State(tuple(request for request in fewer if request.names), self.queue, self.resized)

    def resize(self, limit: int | None) -> State:
        """Set the limit of all requests, or with None restore the limit of each request.

        Waiters that now exceed the limit learn so later, and then `leave`. Until then they block no other request and
        keep their positions, in case the limit grows again.
        """
        return State(self.holding, self.queue, limit).served()

    def served(self) -> State:
        """Serve the queue: grant each waiter that fits, unless an earlier waiter requests one of the same names."""
        if not self.queue:
            return self
        state = self
        waited_for: set[str] = set()
        for request in self.queue:
            if waited_for.isdisjoint(request.names) and state.fits(request):
                state = state.granted(request)
            elif not self.exceeds_limit(request):
                waited_for.update(request.names)
        return state

    def granted(self, request: Request) -> State:
        """Grant this request."""
        return State((*self.holding, request), _without(request.who, self.queue), self.resized)


def _without(who: Hashable, requests: Iterable[Request]) -> tuple[Request, ...]:
    return tuple(request for request in requests if request.who != who)


@dataclass(frozen=True)
class Reentrant:
    """A reentrant lock: further leases of a caller share its grant, and releasing the last one releases the grant.

    ``who`` of a request is the lease that it is for. Other requests for the lock go through `State`.
    """

    lock: State = State()
    shares: tuple[tuple[Hashable, Hashable, Hashable], ...] = ()
    """Unreleased leases: the lease, the lease whose request was granted, and the caller."""

    def grant_of(self, caller: Hashable) -> Hashable | None:
        """Return the grant that the next lease of the caller will share, or None.

        The grant may be lost; then no further lease is given.
        """
        return next((grant for _, grant, owner in self.shares if owner == caller), None)

    def enter(self, lease: Hashable, caller: Hashable) -> Reentrant:
        """Add a lease of the caller: a share of its existing grant, or of the grant that the lock has just given."""
        grant = self.grant_of(caller)
        return replace(self, shares=(*self.shares, (lease, lease if grant is None else grant, caller)))

    def release(self, lease: Hashable) -> Reentrant:
        """Release a lease, and with the last share the lock."""
        grant = next(grant for own, grant, _ in self.shares if own == lease)
        left = tuple(share for share in self.shares if share[0] != lease)
        goes_on = any(share[1] == grant for share in left)
        return replace(self, shares=left, lock=self.lock if goes_on else self.lock.leave(grant))


def _others(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)
