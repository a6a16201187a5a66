"""The face of a latch: the parts that are done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from handfast._engine.moments import microseconds
from handfast._protocol import latching
from handfast._watch.faces.face import Act, Face
from handfast._watch.facts import Column, Facts, Label, Listing, Seen, Sentence, count_of, joined, waits
from handfast.records import LatchStatus

if TYPE_CHECKING:
    from handfast import Handfast, Latch
    from handfast._protocol.asking import Acted

__all__ = ["FACE", "LatchFace", "latch_version"]

VERSION = r"[0-9]{1,6}\.[0-9]{1,16}"

LISTED = 200
"""Parts that are listed."""


class LatchFace(Face[LatchStatus]):
    """A latch. The server knows how many wait, but not who."""

    acts: ClassVar[tuple[Act, ...]] = ("forget",)
    columns: ClassVar[tuple[Column, ...]] = (Column("LATCH", is_flexible=True), Column("DONE"), Column("WAITING"))

    def facts(self, found: Seen[LatchStatus]) -> Facts:
        return Facts(waiting=found.status.waiting, version=latch_version(found.status))

    def who(self, found: Seen[LatchStatus], facts: Facts) -> Sentence:
        return (f"{count_of(found.status.number, 'part')} done",)

    def cells(self, found: Seen[LatchStatus], facts: Facts) -> tuple[Sentence, ...]:
        counts = found.status.number, facts.waiting
        return (Label(found.name),), *((f"{count:,}",) if count else () for count in counts)

    def says(self, found: Seen[LatchStatus], facts: Facts) -> Sentence:
        return joined(self.who(found, facts), waits(facts))

    def notes(self, found: Seen[LatchStatus], facts: Facts) -> Iterator[Sentence]:
        if facts.waiting:
            yield ("who waits is not recorded",)

    def listings(self, found: Seen[LatchStatus]) -> Iterator[Listing]:
        if found.status.done:
            yield Listing("Parts done", [((), found.status.done[:LISTED])], max(0, found.status.number - LISTED))

    def summary(self, found: Seen[LatchStatus]) -> dict[str, Any]:
        return {"done": found.status.number, "waiting": found.status.waiting}

    def description(self, found: Seen[LatchStatus]) -> dict[str, Any]:
        return {"parts": found.status.done}

    def version(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        return latch_version(_made(client, name, parts).status())

    def forget(self, client: Handfast, name: str, parts: tuple[str, ...], version: str) -> Acted:
        if not re.fullmatch(VERSION, version):
            raise ValueError(f"nothing was done: {version!r} is no version of a latch")
        made = _made(client, name, parts)
        steps = latching.forget_shown(made._request, *map(int, version.split(".")))  # noqa: SLF001 -- no call has it
        return client._driver.run(steps, made.name)  # noqa: SLF001 -- as above

    def recorded(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        return str(replace(_made(client, name, parts).status(), left=None))  # how many parts it has is not known


def latch_version(status: LatchStatus) -> str:
    """Return the version of the parts of a latch; empty without parts."""
    return f"{status.number}.{microseconds(status.changed_at)}" if status.changed_at else ""


def _made(client: Handfast, name: str, parts: tuple[str, ...]) -> Latch:
    made = client.latch(name, 1)
    return made.keyed(*parts) if parts else made


FACE = LatchFace()
