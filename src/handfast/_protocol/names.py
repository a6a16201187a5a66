"""Find the names that the server knows, and inspect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from handfast._engine.effects import Answer, Steps
from handfast._engine.keys import KeySet
from handfast._engine.names import INSPECTED, LIMITS, NamePattern, inspect_all
from handfast._protocol.admin import read_status
from handfast.arguments import Kind
from handfast.errors import UnknownLayout
from handfast.records import NameStatus

__all__ = ["names"]

FENCE, GRANTS = 2, 7
"""Places in the reply of ``permit_inspect``. If all from the one to the other is 0, the server does not know the
name."""


def names(
    pattern: NamePattern, cursor: bytes, max_shown: int, slot: int | None = None
) -> Steps[tuple[bytes, list[NameStatus], UnknownLayout | None]]:
    """Look for names from a cursor on.

    Return the next cursor, which is ``0`` at the end, the names that were found, and the error for a name in another layout.

    In a cluster those of the primary that has this slot. A name that the server does not know is left out. One may be
    found twice: a SCAN promises no more.
    """
    if pattern.exact is None:
        scanned: Answer = yield pattern.scan(cursor)._replace(slot=slot)
        cursor, places = scanned.reply[0], pattern.found(scanned.reply[1])
    else:
        cursor, places = b"0", pattern.places()
    found, refused = list[NameStatus](), None
    size = INSPECTED if slot is None else 1  # one call can't inspect names of several slots
    batches = [places[start : start + size] for start in range(0, len(places), size)]
    while batches:
        batch = batches.pop()
        try:
            found += yield from _inspected(batch, max_shown)
        except UnknownLayout as error:
            if len(batch) > 1:
                batches += [[place] for place in batch]
            else:
                refused = UnknownLayout(batch[0].name, error.layout, reply=error.reply)
    return cursor, found, refused


def _inspected(batch: Sequence[KeySet], max_shown: int) -> Steps[list[NameStatus]]:
    answer: Answer = yield inspect_all(batch, max_shown)
    states = [answer.reply] if len(batch) == 1 else answer.reply
    return [
        NameStatus(cast("Kind", place.kind), place.name, read_status(fields, LIMITS[place.kind]))
        for place, fields in zip(batch, states, strict=True)
        if any(fields[FENCE:GRANTS])
    ]
