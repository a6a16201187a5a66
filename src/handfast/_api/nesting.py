"""In which order a client takes names together: two orders that contradict each other wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

__all__ = ["Nesting"]

MOST = 100_000
"""Pairs that are remembered. When there are more, all are forgotten."""


class Nesting:
    """The pairs of names that were taken in this order."""

    def __init__(self) -> None:
        self._pairs: set[tuple[str, str]] = set()

    def note(self, names: Sequence[str]) -> None:
        """Note an order. Raises ValueError if it contradicts an earlier one, or has a name twice."""
        for one, other in combinations(names, 2):
            if one == other:
                raise ValueError(f"{_shown(one)} is taken twice; the second time waits for the first")
            if (other, one) in self._pairs:
                raise ValueError(
                    f"{_shown(one)} is to be taken before {_shown(other)} here, and was after it elsewhere; two such calls would "
                    "wait for each other: use the same order everywhere"
                )
        if len(self._pairs) > MOST:
            self._pairs.clear()
        self._pairs.update(combinations(names, 2))


def _shown(tag: str) -> str:
    """Return the kind and the name of a hash tag."""
    return tag.strip("{}").partition(":")[2] or tag
