"""Find the primaries of a cluster: what is asked of a whole server is asked of each of them."""

from __future__ import annotations

from handfast._engine.effects import Answer, Steps
from handfast._engine.slots import SHARES, Node, read_shares

__all__ = ["slots_of_primaries"]


def slots_of_primaries() -> Steps[list[int]]:
    """Return a slot of each primary: one of its largest share, of which nodes that know of different moves are most likely to agree."""
    answer: Answer = yield SHARES
    shares: dict[Node, range] = {}
    for slots, node in read_shares(answer.reply):
        shares[node] = max(shares.get(node, range(0)), slots, key=len)
    return [slots.start for slots in shares.values()]
