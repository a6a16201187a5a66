"""The face of a semaphore: how many permits are held."""

from __future__ import annotations

from typing import ClassVar

from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Seen, Sentence, count_of
from handfast.records import Holder, LockStatus, Waiter

__all__ = ["FACE", "SemaphoreFace"]


class SemaphoreFace(LeaseFace):
    """A semaphore. Without holders and waiters the server knows the limit only where an operator has set it."""

    noun: ClassVar[str] = "1 permit"

    def limit(self, status: LockStatus) -> int:
        return status.limit

    def aside(self, found: Seen[LockStatus], oldest: Holder) -> str:
        return f"{found.status.held}/{found.status.limit}"

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        return (
            (f"{facts.out:,} of {count_of(facts.limit, 'permit')} held",) if facts.limit else super().held(found, facts)
        )

    def role(self, one: Holder | Waiter) -> str:
        return count_of(one.weight, "permit")


FACE = SemaphoreFace()
