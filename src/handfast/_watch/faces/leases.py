"""The face of a name with leases: common to locks, semaphores, elections and the like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from handfast._engine.moments import microseconds
from handfast._engine.validate import MAX_HEAD_START_S
from handfast._watch.faces.face import Act, Face, action_object
from handfast._watch.facts import (
    Column,
    Facts,
    Label,
    Length,
    Moment,
    Period,
    Seen,
    Sentence,
    Stop,
    count_of,
    joined,
    waits,
)
from handfast._watch.thresholds import LATE_SHARE, SILENT_S
from handfast.records import Hold, Holder, LockStatus, Waiter

__all__ = ["LeaseFace", "hold_version", "standing"]

LEAST_MEAN_S = 0.05
"""A shorter mean wait is none."""


class LeaseFace(Face[LockStatus]):
    """A name with leases."""

    noun: ClassVar[str]
    """The role of every holder and waiter."""
    acts: ClassVar[tuple[Act, ...]] = ("release", "hold")
    has_leases: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("NAME", is_flexible=True, shows="name"),
        Column("KIND", is_word=True),
        Column("HELD BY", is_flexible=True),
        Column("HELD", shows="held"),
        *map(Column, ("ENDS IN", "QUEUE")),
        Column("WAITED", shows="waits"),
        Column("LAST USED", is_extra=True),
    )

    def limit(self, status: LockStatus) -> int:
        """Return the number of permits, where the kind has one."""
        return 0

    def aside(self, found: Seen[LockStatus], oldest: Holder) -> str:
        """Return the words before the label of the oldest holder in a cell."""
        return "released" if oldest.released else ""

    def free(self, found: Seen[LockStatus]) -> Sentence:
        """Return the text of the cell of holders of a name that no one holds."""
        return ()

    def facts(self, found: Seen[LockStatus]) -> Facts:
        status, at = found.status, found.at
        holders = status.holders
        # The server lists holders by the end of the lease, views by age.
        if len(holders) > 1:
            holders = tuple(sorted(holders, key=lambda one: -one.held_for))
        stop = None if status.hold is None else _stop(status.hold, at)
        since = at - holders[0].held_for if holders else None
        ends = at + min([one.remaining for one in holders]) if holders else stop and stop.until
        waiters = status.waiters
        waits = at - waiters[0].waited_for if waiters else None
        limit = self.limit(status)
        # A released lock rests until its lease ends: no one
        # renews it, which is no sign of a process that has died.
        renewed = [one for one in holders if not one.released]
        return Facts(
            waiting=status.waiting,
            waits_since=waits,
            queue=waiters,
            holding=status.holding,
            limit=limit,
            out=limit and status.held,
            holders=holders,
            # By the share of the ttl: renewals come three times per ttl, so seconds alone say nothing.
            soonest=min(renewed or holders, key=lambda one: one.remaining / one.ttl, default=None),
            held_since=since,
            kept_since=since if renewed == [*holders] else at - renewed[0].held_for if renewed else None,
            ends_at=ends,
            stop=stop,
            is_idle=not (status.holding or status.waiting or status.hold),
            doubtful_at=min([at + one.remaining - one.ttl * LATE_SHARE for one in renewed], default=None),
            grants=status.grants,
            waited=status.waited,
            granted_at=None if status.granted_ago is None else at - status.granted_ago,
            fence=status.fence,
            last=status.last,
        )

    def who(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        if not facts.holders:
            return self.free(found) if facts.stop is None else ("on hold ", Label(facts.stop.by))
        oldest, others = facts.holders[0], facts.holding - 1
        aside = self.aside(found, oldest)
        return (
            *((f"{aside} ",) if aside else ()),
            Label(oldest.label),
            *((f" +{others:,}",) if others > 0 else ()),
        )

    def cells(self, found: Seen[LockStatus], facts: Facts) -> tuple[Sentence, ...]:
        return (
            (Label(found.name),),
            (found.kind,),
            self.who(found, facts),
            *(() if one is None else (Moment(one),) for one in (facts.held_since, facts.ends_at)),
            (f"{facts.waiting:,}",) if facts.waiting else (),
            () if facts.waits_since is None else (Moment(facts.waits_since),),
            self.last_used(found, facts),
        )

    def last_used(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        """Return when a name was granted last."""
        return ("now",) if facts.holding else () if facts.granted_at is None else (Moment(facts.granted_at), " ago")

    def says(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        held = self.held(found, facts)
        if facts.held_since is not None:
            held = (*held, ", the first for " if facts.holding > 1 else " for ", Moment(facts.held_since))
        return joined(held, self.waits(facts))

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        """Return who holds, as a clause."""
        if facts.holding > 1:
            return (f"held by {facts.holding:,}",)
        return ("held by ", Label(facts.holders[0].label)) if facts.holders else ("not held",)

    def waits(self, facts: Facts) -> Sentence:
        """Return who waits, as a clause."""
        return waits(facts)

    def notes(self, found: Seen[LockStatus], facts: Facts) -> Iterator[Sentence]:
        if facts.stop is not None:
            stop = facts.stop
            until = f", until {stop.clock}, by "
            yield "on hold for ", Moment(stop.until), until, Label(stop.by), ": ", Label(stop.why)
        if facts.grants:
            mean = facts.waited / facts.grants
            said: Sentence = (count_of(facts.grants, "grant"),)
            if mean >= LEAST_MEAN_S:
                said = (*said, ", ", Length(mean), " mean wait")
            if not facts.holding and facts.granted_at is not None:
                said = (*said, "; the latest ", Moment(facts.granted_at), " ago")
            yield said
        if facts.waiting > len(facts.queue) > 0:
            yield (f"the first {len(facts.queue):,} of the queue are listed",)
        yield from _circles(facts)

    def role(self, one: Holder | Waiter) -> str:
        return "released" if isinstance(one, Holder) and one.released else "lock_all" if one.lock_all else self.noun

    def is_usual(self, one: Holder | Waiter) -> bool:
        return self.role(one) in ("released", self.noun)

    def summary(self, found: Seen[LockStatus]) -> dict[str, Any]:
        status = found.status
        return {
            "holding": status.holding,
            "waiting": status.waiting,
            "limit": status.limit or None,
            "free": status.free if status.limit else None,
            "held_by": [one.label for one in status.holders],
            "held_for": max((one.held_for for one in status.holders), default=None),
            "ends_in": min((one.remaining for one in status.holders), default=None),
            "longest_wait": status.waiters[0].waited_for if status.waiters else None,
            "fence": status.fence,
            "grants": status.grants,
            "waited": status.waited,
            "granted_ago": status.granted_ago,
            "hold": status.hold and _hold_object(status.hold),
        }

    def description(self, found: Seen[LockStatus]) -> dict[str, Any]:
        status = found.status
        return {
            "holders": [
                _common(one)
                | {
                    "fence": one.fence,
                    "held_for": one.held_for,
                    "ends_in": one.remaining,
                    "released": one.released,
                    "value": one.value,
                    "slot": one.slot,
                    "wanted": one.wanted,
                    "ttl": one.ttl,
                }
                for one in status.holders
            ],
            "waiters": [
                _common(one)
                | {
                    "position": one.position,
                    "waited_for": one.waited_for,
                    "value": one.value,
                    "head_start": one.head_start,
                    "silent_for": one.silent_for,
                }
                for one in status.waiters
            ],
            "last": action_object(status.last),
        }


def standing(face: Face[Any], one: Holder | Waiter) -> Sentence:
    """Return the role of a holder or a waiter, and further facts: ``writer``, ``2 permits, slot 0``, ``lock, preempts``."""
    said: list[Sentence] = [(face.role(one),)]
    if isinstance(one, Holder):
        if one.slot is not None:
            said.append((f"slot {one.slot}",))
        if one.wanted is not None:
            said.append(("to end in ", Length(one.wanted)))
    else:
        if one.head_start > MAX_HEAD_START_S:
            said.append(("preempts",))
        elif one.head_start:
            said.append((Period(one.head_start), " ahead"))
        if one.silent_for > SILENT_S:
            said.append(("silent for ", Length(one.silent_for)))
    found: Sentence = said[0]
    for each in said[1:]:
        found = (*found, ", ", *each)
    return found


def hold_version(hold: Hold) -> str:
    """Return the version of a hold."""
    return str(microseconds(hold.until))


def _stop(hold: Hold, at: float) -> Stop:
    clock = f"{hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return Stop("on hold", hold.by, hold.reason, at + hold.remaining, clock, hold_version(hold))


def _hold_object(hold: Hold) -> dict[str, Any]:
    return {"until": hold.until.isoformat(), "remaining": hold.remaining, "by": hold.by, "reason": hold.reason}


def _circles(facts: Facts) -> Iterator[Sentence]:
    """Name the waiters whose own thread, task or client holds the name: the first sign of a program that hangs."""
    threads = {one.owner for one in facts.holders}
    clients = {_client(owner) for owner in threads}
    own = [one.owner in threads for one in facts.queue if _client(one.owner) in clients]
    if count := sum(own):
        they = "1 waits for its" if count == 1 else f"{count} wait for their"
        yield (f"{they} own thread or task, and perhaps without end",)
    if count := len(own) - count:
        they = "1 waits for another thread or task of its" if count == 1 else f"{count} wait for others of their"
        yield (f"{they} own client",)


def _client(owner: str) -> str:
    return owner.partition(".")[0]


def _common(one: Holder | Waiter) -> dict[str, Any]:
    return {
        "token": one.token,
        "owner": one.owner,
        "label": one.label,
        "weight": one.weight,
        "exclusive": one.exclusive,
        "lock_all": one.lock_all,
    }
