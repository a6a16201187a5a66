"""The face of a group: the members."""

from __future__ import annotations

from typing import ClassVar

from handfast._watch.faces.face import Act
from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Seen, Sentence, count_of
from handfast.records import LockStatus

__all__ = ["FACE", "GroupFace"]


class GroupFace(LeaseFace):
    """A group. Any number of members hold it, and no one waits."""

    noun: ClassVar[str] = "member"
    acts: ClassVar[tuple[Act, ...]] = ("release",)
    has_values: ClassVar[bool] = True

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        return (count_of(facts.holding, self.noun),)


FACE = GroupFace()
