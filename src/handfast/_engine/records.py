"""What the server stores of a token, and the text about its owner that clients send. The twin of ``lua/lib/record.lua``.

    mark weight limit claim_ms, as doubles, and inbox control label, as text

The text is the owner: the channels on which it hears of a grant and of the loss of a lease, and a label for people,
which may contain spaces.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

__all__ = ["Record", "owner_text", "read_record"]

_NUMBERS = Struct("<4d")


class Record(NamedTuple):
    """One token's record."""

    mark: int
    """Of a holder the fence; of a waiter the end of its wait-lease, in microseconds on the server's clock."""
    weight: int
    limit: int
    claim_ms: int
    inbox: str
    control: str
    label: str


def owner_text(inbox: str, control: str, label: str) -> str:
    """The argument ``owner`` of the scripts."""
    return f"{inbox} {control} {label}"


def read_record(text: bytes) -> Record | None:
    """Read a record; None for the empty text, which scripts return where it was evicted."""
    if not text:
        return None
    mark, weight, limit, claim_ms = map(int, _NUMBERS.unpack_from(text))
    inbox, control, label = text[_NUMBERS.size :].decode(errors="replace").split(" ", 2)
    return Record(mark, weight, limit, claim_ms, inbox, control, label)
