"""The face of a name that this version cannot read: the kind is not known, or the layout is newer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from handfast._watch.faces.face import Face
from handfast._watch.facts import Column, Facts, Label, Seen, Sentence, Unreadable

__all__ = ["UnknownFace"]


class UnknownFace(Face[Unreadable]):
    """A name and why it is not read."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("NAME", is_flexible=True),
        Column("KIND", is_word=True),
        Column("NOT READ", is_flexible=True),
    )

    def facts(self, found: Seen[Unreadable]) -> Facts:
        return Facts()

    def who(self, found: Seen[Unreadable], facts: Facts) -> Sentence:
        return (found.status.why,)

    def cells(self, found: Seen[Unreadable], facts: Facts) -> tuple[Sentence, ...]:
        return (Label(found.name),), (found.kind,), self.who(found, facts)

    def says(self, found: Seen[Unreadable], facts: Facts) -> Sentence:
        return ("not read: ", *self.who(found, facts))

    def notes(self, found: Seen[Unreadable], facts: Facts) -> Iterator[Sentence]:
        yield ("upgrade handfast here to the version that has written it",)

    def summary(self, found: Seen[Unreadable]) -> dict[str, Any]:
        return {"unreadable": found.status.why}
