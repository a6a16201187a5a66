"""What locks and their relatives promise, in plain Python: sequential specifications with one line, first come first served.

Nothing in here knows of servers, clients, time or chance. A `State` is a value: every operation gives the next one and
leaves this one as it was, and states are compared, hashed and kept in sets, which is what a search through the possible
orders of a history needs. What an operation answers is read off the states before and after it: who got in `holds`, who
has to stand in line `waits`, and who asked and does neither was told no.

One class serves all kinds, since all of them are permits of names:

    lock        one permit of one name: weight 1, limit 1
    semaphore   ``weight`` permits, let in when no more than ``limit`` of them are out then
    rwlock      a reader takes one of EVERYTHING, a writer EVERYTHING
    lock_all    one permit of each of several names, all or none
    rlock       `Reentrant`: a lock, and the leases that share a grant of it
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from handfast._engine.calls import MAX_PERMITS

__all__ = ["MAX_PERMITS", "Ask", "Reentrant", "State"]


class Ask(NamedTuple):
    """One request: ``who`` is asked for by that name ever after, so no two requests have the same."""

    who: Hashable
    names: tuple[str, ...] = ("a",)
    weight: int = 1
    limit: int = 1


@dataclass(frozen=True)
class State:
    """Who holds and who waits. Names that nobody asks for are free."""

    holding: tuple[Ask, ...] = ()
    """In the order of their grants."""
    line: tuple[Ask, ...] = ()
    """First come first: one line for all names."""
    resized: int | None = None
    """The limit that counts instead of those that requests bring along. There is one for all names, so where limits are
    set a state is that of one name."""

    # --- looking

    def holds(self, who: Hashable) -> bool:
        """Whether it was let in, and has not left."""
        return any(ask.who == who for ask in self.holding)

    def waits(self, who: Hashable) -> bool:
        """Whether it stands in line."""
        return any(ask.who == who for ask in self.line)

    def holders(self, name: str) -> list[Ask]:
        """Those who hold the name, in the order of their grants."""
        return [ask for ask in self.holding if name in ask.names]

    def waiters(self, name: str) -> list[Ask]:
        """Those who wait for the name, first come first."""
        return [ask for ask in self.line if name in ask.names]

    def out(self, name: str) -> int:
        """How many permits of it are held."""
        return sum(ask.weight for ask in self.holders(name))

    def limit_for(self, ask: Ask) -> int:
        """How many permits there are, as far as this request is concerned."""
        return self.resized or ask.limit

    def is_too_much(self, ask: Ask) -> bool:
        """Whether it wants more permits than there are, so that it can never get in."""
        return ask.weight > self.limit_for(ask)

    def fits(self, ask: Ask) -> bool:
        """Whether the permits are there, whoever waits for them."""
        limit = self.resized or ask.limit
        for name in ask.names:
            out = ask.weight
            for other in self.holding:
                if name in other.names:
                    out += other.weight
            if out > limit:
                return False
        return True

    def is_kept_waiting(self, ask: Ask) -> bool:
        """Whether somebody who came before waits for one of the same names; of all in line, if it does not stand there."""
        for other in self.line:
            if other.who == ask.who:
                break
            if not self.is_too_much(other) and not set(other.names).isdisjoint(ask.names):
                return True
        return False

    def lets_in(self, ask: Ask) -> bool:
        """Whether it may get in now, from its place or from outside."""
        return self.fits(ask) and not self.is_kept_waiting(ask)

    # --- operations

    def ask(self, ask: Ask) -> State:
        """Stand in line, and get in if nobody is before. Who wants too much is told so at once."""
        return self if self.is_too_much(ask) else replace(self, line=(*self.line, ask)).served()

    def attempt(self, ask: Ask) -> State:
        """Get in at once, or not at all."""
        asked = self.ask(ask)
        return asked if asked.holds(ask.who) else asked.leave(ask.who)

    def leave(self, who: Hashable) -> State:
        """Give up what is held, or the place in line: a release, a timeout, a cancellation."""
        return self.gone(who).served()

    def gone(self, who: Hashable) -> State:
        """Like `leave`, but without a word: a lease is over, or a waiter has died. The line goes on when somebody looks."""
        return State(_without(who, self.holding), _without(who, self.line), self.resized)

    def lower(self, who: Hashable, weight: int) -> State:
        """Keep only so many permits."""
        return self.lowered(who, weight).served()

    def lowered(self, who: Hashable, weight: int) -> State:
        """Like `lower`, but before the line goes on."""
        lighter = (ask._replace(weight=min(weight, ask.weight)) if ask.who == who else ask for ask in self.holding)
        return State(tuple(lighter), self.line, self.resized)

    def revoke(self, name: str) -> State:
        """Take a name away from whoever holds it. Those who hold others as well keep these, until they leave."""
        return self.revoked(name, [ask.who for ask in self.holders(name)]).served()

    def revoked(self, name: str, whom: Collection[Hashable]) -> State:
        """Take a name away from some, before the line goes on."""
        fewer = (ask._replace(names=_others(name, ask.names)) if ask.who in whom else ask for ask in self.holding)
        return State(tuple(ask for ask in fewer if ask.names), self.line, self.resized)

    def resize(self, limit: int | None) -> State:
        """Set how many permits there are for everybody, or let each request count by its own limit again.

        Those in line who want too much now are told so sooner or later: then they `leave`. Until then they keep nobody
        waiting, and their place, in case there are more permits again.
        """
        return State(self.holding, self.line, limit).served()

    def served(self) -> State:
        """Go through the line: who fits gets in, unless somebody who came before waits for one of the same names."""
        if not self.line:
            return self
        state = self
        waited_for: set[str] = set()
        for ask in self.line:
            if waited_for.isdisjoint(ask.names) and state.fits(ask):
                state = state.admitted(ask)
            elif not self.is_too_much(ask):
                waited_for.update(ask.names)
        return state

    def admitted(self, ask: Ask) -> State:
        """Let this one in."""
        return State((*self.holding, ask), _without(ask.who, self.line), self.resized)


def _without(who: Hashable, asks: Iterable[Ask]) -> tuple[Ask, ...]:
    return tuple(ask for ask in asks if ask.who != who)


@dataclass(frozen=True)
class Reentrant:
    """A lock whose callers may come again: further leases of a caller share its grant, and the last one gives it up.

    The ``who`` of a request is the lease that it is to give. Others may ask for the lock by `State` meanwhile.
    """

    lock: State = State()
    shares: tuple[tuple[Hashable, Hashable, Hashable], ...] = ()
    """Of each lease that was not released: itself, the lease whose request was granted, and the caller."""

    def grant_of(self, caller: Hashable) -> Hashable | None:
        """What the caller's next lease will share. It may be lost: then there is no further one."""
        return next((grant for _, grant, owner in self.shares if owner == caller), None)

    def enter(self, lease: Hashable, caller: Hashable) -> Reentrant:
        """The caller has this lease now: one more of its grant, or of one that the lock has just given."""
        grant = self.grant_of(caller)
        return replace(self, shares=(*self.shares, (lease, lease if grant is None else grant, caller)))

    def release(self, lease: Hashable) -> Reentrant:
        """Give up a lease, and with the last one the lock."""
        grant = next(grant for own, grant, _ in self.shares if own == lease)
        left = tuple(share for share in self.shares if share[0] != lease)
        goes_on = any(share[1] == grant for share in left)
        return replace(self, shares=left, lock=self.lock if goes_on else self.lock.leave(grant))


def _others(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)
