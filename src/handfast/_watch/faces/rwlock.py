"""The face of a read-write lock: the readers, or the writer."""

from __future__ import annotations

from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Label, Seen, Sentence, count_of
from handfast.records import Holder, LockStatus, Waiter

__all__ = ["FACE", "RWLockFace"]


class RWLockFace(LeaseFace):
    """A read-write lock."""

    def aside(self, found: Seen[LockStatus], oldest: Holder) -> str:
        return self.role(oldest)

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        if len(facts.holders) > 1:
            return (f"held by {count_of(facts.holding, 'reader')}",)
        one = facts.holders[0] if facts.holders else None
        return super().held(found, facts) if one is None else (f"held by {self.role(one)} ", Label(one.label))

    def role(self, one: Holder | Waiter) -> str:
        return "writer" if one.exclusive else "reader"

    def is_usual(self, one: Holder | Waiter) -> bool:
        return False

    def is_strong(self, one: Holder | Waiter) -> bool:
        return one.exclusive


FACE = RWLockFace()
