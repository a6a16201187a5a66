"""The order in which a client takes names together: calls with contradicting orders wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product

__all__ = ["Nesting"]

MOST = 100_000
"""Pairs that are remembered. When there are more, all are forgotten."""


class Nesting:
    """The first name of each pair of names taken together.

    Threads share it. A single operation of a dictionary reads and stores a pair, so of two calls at the same time with
    contradicting orders at most one passes. No lock is held that a fork could copy.
    """

    def __init__(self) -> None:
        self._first: dict[frozenset[str], str] = {}

    def note(self, groups: Iterable[Sequence[str]]) -> None:
        """Note the order of groups; the names of a group are taken in one step, in no order.

        Raises ValueError if it contradicts an earlier order, or has a name in two groups.
        """
        pairs = [pair for one, other in combinations(groups, 2) for pair in product(one, other)]
        for one, other in pairs:
            if one == other:
                raise ValueError(f"{_shown(one)} is taken twice; the second time waits for the first")
            if self._first.get(frozenset((one, other)), one) != one:
                raise _contradiction(one, other)
        if len(self._first) > MOST:
            self._first.clear()
        for one, other in pairs:
            if self._first.setdefault(frozenset((one, other)), one) != one:
                raise _contradiction(one, other)


def _contradiction(one: str, other: str) -> ValueError:
    return ValueError(
        f"{_shown(one)} is to be taken before {_shown(other)} here, and was after it elsewhere; two such calls would "
        "wait for each other: use the same order everywhere, or lock_all(), which takes its names in one step"
    )


def _shown(tag: str) -> str:
    """Return the kind and the name of a hash tag."""
    return tag.strip("{}").partition(":")[2] or tag
