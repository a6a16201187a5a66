"""Find the primaries of a cluster: a question to a whole server goes to each of them."""

from __future__ import annotations

from handfast._engine.effects import Answer, Steps
from handfast._engine.slots import SHARES, Node, read_shares

__all__ = ["slots_of_primaries"]


def slots_of_primaries() -> Steps[list[int]]:
    """Return a slot of each primary, in its largest share: nodes that know of different moves likely agree on it."""
    answer: Answer = yield SHARES
    shares: dict[Node, range] = {}
    for slots, node in read_shares(answer.reply):
        shares[node] = max(shares.get(node, range(0)), slots, key=len)
    return [slots.start for slots in shares.values()]
