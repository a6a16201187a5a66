"""Chart of a cluster: which primary has which slot, as far as a client knows. No I/O; a driver asks the nodes.

The chart may be out of date at any moment. So it only says where a call is sent first: the node itself has the last
word.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from handfast._engine.slots import SLOTS, UNKNOWN_HOST, Node, Redirection, read_shares

__all__ = ["Chart"]


_Range = tuple[int, Node | None]
"""A range of slots: its first one, and its primary if one is known. It ends where the next one begins."""

_first = itemgetter(0)


class Chart:
    """``seeds`` are the nodes named by the user; ``remap`` returns the address of a node named by another node."""

    def __init__(self, seeds: Iterable[Node], remap: Callable[[Node], Node]) -> None:
        self._seeds = tuple(seeds)
        self._remap = remap
        self._turn = 0
        self._ranges: list[_Range] = [(0, None)]
        """In order, without gaps. Never changed but replaced, since other threads read it."""

    def node_of(self, slot: int | None) -> Node | None:
        """Return the primary of a slot; None if it is not known. For None, return the primary of any slot."""
        if slot is None:
            return next(iter(self.primaries()), None)
        return self._ranges[bisect_right(self._ranges, slot, key=_first) - 1][1]

    def primaries(self) -> list[Node]:
        """Return the primaries with slots."""
        return [*dict.fromkeys(node for first, node in self._ranges if node and first < SLOTS)]

    def candidates(self) -> list[Node]:
        """Return the nodes to ask for the chart, in the order of asking: the primaries first.

        Each time another primary is the first: a primary which is cut off from the others does not know the new place
        of the slots.
        """
        primaries = self.primaries()
        self._turn += 1
        first = self._turn % len(primaries) if primaries else 0
        return [*dict.fromkeys((*primaries[first:], *primaries[:first], *self._seeds))]

    def learn(self, reply: Any, asked: Node) -> bool:
        """Take the reply of a node. A slot without a primary is unknown from then on.

        Return False if the node knows of no primary: it has left the cluster, or was not in it yet. Others are to be
        asked.
        """
        shares = [(slots, self._place(node, asked)) for slots, node in read_shares(reply)]
        if shares:
            ranges: list[_Range] = [(0, None)]
            for slots, node in shares:
                _assign(ranges, slots, node)
            self._ranges = ranges
        return bool(shares)

    def follow(self, redirection: Redirection, asked: Node) -> Node | None:
        """Take a redirection, and return where it leads; None if it does not say, and the nodes are to be asked."""
        if redirection.node.host == UNKNOWN_HOST:
            return self._only_at(redirection.node.port)
        node = self._place(redirection.node, asked)
        if not redirection.for_once:
            ranges = self._ranges.copy()
            _assign(ranges, range(redirection.slot, redirection.slot + 1), node)
            self._ranges = ranges
        return node

    def _only_at(self, port: int) -> Node | None:
        """Return the node at a port; None if there are several."""
        found = {node for node in (*self.primaries(), *self._seeds) if node.port == port}
        return found.pop() if len(found) == 1 else None

    def _place(self, node: Node, asked: Node) -> Node:
        """Return where a node is. A node may leave out its own host: then the host is where it was asked."""
        return self._remap(node) if node.host else Node(asked.host, node.port)


def _assign(ranges: list[_Range], slots: range, node: Node) -> None:
    """Give some slots to a node, in place."""
    start = bisect_left(ranges, slots.start, key=_first)
    end = bisect_right(ranges, slots.stop, key=_first)
    ranges[start:end] = (slots.start, node), (slots.stop, ranges[end - 1][1])
