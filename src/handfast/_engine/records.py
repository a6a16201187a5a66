"""What the server stores of a token, and the text about its owner that clients send. The twin of ``lua/lib/record.lua``.

    weight limit claim_ms wait_until_us fence since_us inbox control label

The last three are the owner: the channels on which it hears of a grant and of the loss of a lease, and a label for people,
which may contain spaces.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Record", "owner_text", "read_record"]


class Record(NamedTuple):
    """One token's record. Times are on the server's clock."""

    weight: int
    limit: int
    claim_ms: int
    wait_until_us: int
    """The end of the wait-lease; 0 once the token holds."""
    fence: int
    """0 while the token waits."""
    since_us: int
    """When it was granted, or when it began to wait."""
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
    *numbers, inbox, control, label = text.decode(errors="replace").split(" ", 8)
    weight, limit, claim_ms, wait_until_us, fence, since_us = map(int, numbers)
    return Record(weight, limit, claim_ms, wait_until_us, fence, since_us, inbox, control, label)
