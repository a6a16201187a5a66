"""The face of a partition: the workers, and the items of each. An item is a key of the partition, with one holder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from handfast._engine.keys import read_shown
from handfast._watch.faces.group import GroupFace
from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Label, Listing, Seen, Sentence, count_of
from handfast.records import Holder, LockStatus

__all__ = ["FACE", "PartitionFace"]

LISTED = 200
"""Items that are listed."""


class PartitionFace(GroupFace):
    """A partition, or an item."""

    noun: ClassVar[str] = "worker"
    has_items: ClassVar[bool] = True

    def aside(self, found: Seen[LockStatus], oldest: Holder) -> str:
        return f"{count_of(len(found.items), 'item')}:" if found.items else super().aside(found, oldest)

    def held(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        if any(one.exclusive for one in facts.holders):  # an item
            return LeaseFace.held(self, found, facts)
        items = f"{count_of(len(found.items), 'item')} on " if found.items else ""
        return (f"{items}{count_of(facts.holding, self.noun)}",)

    def listings(self, found: Seen[LockStatus]) -> Iterator[Listing]:
        if not found.items:
            return
        workers = defaultdict[str, list[str]](list)
        for item in found.items[:LISTED]:
            holders = item.status.holders
            workers[holders[0].label if holders else ""].append("|".join(read_shown(found.kind, item.name)[1]))
        idle = {one.label for one in found.status.holders} - workers.keys()
        ordered = sorted(
            (workers | {label: list[str]() for label in idle}).items(), key=lambda each: (not each[0], each[0])
        )
        rows = [
            ((Label(label) if label else "no worker", f", {count_of(len(own), 'item')}"), own) for label, own in ordered
        ]
        yield Listing("Items by worker", rows, max(0, len(found.items) - LISTED))


FACE = PartitionFace()
