"""The face of an election: the leader, and the candidates standing by."""

from __future__ import annotations

from typing import ClassVar

from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Label, Seen, Sentence, count_of
from handfast.records import Holder, LockStatus, Waiter

__all__ = ["FACE", "ElectionFace"]


class ElectionFace(LeaseFace):
    """An election. Candidates wait for as long as another one leads."""

    has_values: ClassVar[bool] = True
    stands_by: ClassVar[bool] = True

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        return ("led by ", Label(facts.holders[0].label)) if facts.holders else ("no one leads",)

    def waits(self, facts: Facts) -> Sentence:
        """Return how many candidates stand by."""
        return (
            (f"{count_of(facts.waiting, 'candidate')} stand{'s' * (facts.waiting == 1)} by",) if facts.waiting else ()
        )

    def role(self, one: Holder | Waiter) -> str:
        return "leader" if isinstance(one, Holder) else "candidate"

    def is_usual(self, one: Holder | Waiter) -> bool:
        return True


FACE = ElectionFace()
