"""The assignment of items to the members of a group: a function of both, which all members compute alike.

Rendezvous hashing with a bound. Each item asks the members in the order of a hash of both; each member keeps a share of these
items, with the smallest hashes, and turns the others down (deferred acceptance, Gale and
Shapley, 1962). So no member has more than a share, the order of items counts for nothing, and few items move when a member
comes or goes. The lock
of each item decides who works on it: if members know different others, or different items, a move is late, and no item is ever
on two workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from heapq import heappush, heappushpop
from typing import NamedTuple

__all__ = ["MAX_ITEMS", "assigned", "check_items"]

MAX_ITEMS = 10_000
"""Items of a partition."""


def assigned(members: Collection[int], items: Iterable[str], most: int | None = None) -> dict[str, int]:
    """Return the member of each item. Items that fit nowhere, since each member has ``most`` items, are left out.

    Args:
        members: The fences of the members.
        items: The items, each once.
        most: How many items a member has at most, beside its share.
    """
    # The order of items counts for nothing as long as two
    # hashes differ. Sorted, equal hashes come out alike, too.
    names = sorted(items)
    if not members:
        return {}
    share = -(-len(names) // len(members))
    # Rounded up, so that all items fit where `most` does not forbid it (invariant 47).
    room = share if most is None else min(share, most)
    keys = [(member.to_bytes(8, "big"), member) for member in members]
    kept: dict[int, list[_Application]] = {member: [] for member in members}
    for item in names:
        name, data = item, item.encode()
        # Reversed, since `pop` takes from the end: the smallest hash is asked first.
        wishes = sorted(((blake2b(key + data, digest_size=8).digest(), member) for key, member in keys), reverse=True)
        # An item without wishes left was turned down by every member, and stays out.
        while wishes:
            digest, member = wishes.pop()
            application = _Application(-int.from_bytes(digest, "big"), name, wishes)
            if len(kept[member]) < room:
                heappush(kept[member], application)
                break
            _, name, wishes = heappushpop(kept[member], application)  # an item which is turned down goes on
    return {application.name: member for member, found in kept.items() for application in found}


class _Application(NamedTuple):
    """An item at a member. Of two, the larger stays."""

    rank: int
    name: str
    wishes: list[tuple[bytes, int]]
    """The members to ask next, the last member first."""


def check_items(items: Iterable[str]) -> frozenset[str]:
    """Check the items of a partition. Raises TypeError and ValueError."""
    from handfast._engine.validate import utf8

    if isinstance(items, str):
        raise TypeError(f"items must be several, such as a list, not the str {items!r}")
    found = list(items)
    if len(found) > MAX_ITEMS:
        raise ValueError(
            f"a partition has at most {MAX_ITEMS:,} items, not {len(found):,}; let an item stand for several, "
            "such as by the first digits of a hash"
        )
    for item in found:
        utf8(item, "an item")
    names = frozenset(found)
    if len(names) < len(found):
        twice = next(item for item in names if found.count(item) > 1)
        raise ValueError(f"an item stands twice: {twice!r}")
    return names
