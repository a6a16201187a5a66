"""The face of a debounced name: when the newest call runs, and how many items wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from typing import Any, ClassVar

from handfast._watch.faces.face import Face
from handfast._watch.facts import Column, Facts, Label, Length, Moment, Seen, Sentence, count_of, joined
from handfast.records import DebounceStatus

__all__ = ["FACE", "DebounceFace"]


class DebounceFace(Face[DebounceStatus]):
    """A debounced name."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("DEBOUNCE", is_flexible=True),
        *map(Column, ("RUNS IN", "CALLS FOR", "ITEMS")),
    )

    def facts(self, found: Seen[DebounceStatus]) -> Facts:
        status = found.status
        return Facts(
            waiting=status.waiting,
            ends_at=None if status.due_in is None else found.at + status.due_in,
            doubtful_at=-inf,
        )

    def who(self, found: Seen[DebounceStatus], facts: Facts) -> Sentence:
        return (count_of(found.status.items, "item"),) if found.status.items else ("a call waits",)

    def cells(self, found: Seen[DebounceStatus], facts: Facts) -> tuple[Sentence, ...]:
        status = found.status
        return (
            (Label(found.name),),
            *(() if one is None else (Length(one),) for one in (status.due_in, status.burst_for)),
            (f"{status.items:,}",) if status.items else (),
        )

    def says(self, found: Seen[DebounceStatus], facts: Facts) -> Sentence:
        status = found.status
        if facts.ends_at is None or status.burst_for is None:
            return ("no call waits",)
        return joined(("runs in ", Moment(facts.ends_at)), ("calls for ", Moment(found.at - status.burst_for)))

    def notes(self, found: Seen[DebounceStatus], facts: Facts) -> Iterator[Sentence]:
        yield (f"{count_of(found.status.items, 'item')} that no run has done",)

    def summary(self, found: Seen[DebounceStatus]) -> dict[str, Any]:
        return asdict(found.status)


FACE = DebounceFace()
