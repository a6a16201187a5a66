"""Nodes that share the slots of a cluster, slots that move from one to the other, and nodes that are replaced.

Each node has its own view of which primary has which slot, and answers by that: a call for a slot of another primary
gets MOVED. While a slot moves, its keys move one by one; the source then answers ASK where it has none of a call's keys
any more, and TRYAGAIN where it has some of them; a script that has begun there is cut off where it comes to a key that
is not there. The target serves calls after ASKING only, and only where it has all of their keys. At the end both nodes
learn in either order that the slot has moved. A slot may also move at once, as newer servers do it. A node that has
lost a slot ends the subscriptions to sharded channels of that slot, and says so.

A replica with all data may take over from a primary. The primary goes on as its replica, with all its connections, and
answers MOVED; or it is gone, unless it is the first node: one of those that clients begin with always stays. The slots
that are on the move go on to do so.

All nodes have the same clock, and they stop and restart together.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from handfast._engine.resp import ErrorReply
from handfast._engine.slots import SLOTS, Node, slot_of_key
from handfast_lab.simulator.links import Command, Wires

__all__ = ["PRIMARIES", "Cluster", "address"]

PRIMARIES = 2
"""How many primaries there are."""

CROSS_SLOT = ErrorReply("CROSSSLOT Keys in request don't hash to the same slot")
TRY_AGAIN = ErrorReply("TRYAGAIN Multiple keys request during rehashing of slot")

TOLD_S = 0.2
"""Within this time all nodes know of a change."""


class _Move(NamedTuple):
    """A slot that moves."""

    source: int
    target: int


def address(number: int) -> Node:
    """Return where a node is."""
    return Node("node", 7000 + number)


class Cluster:
    """The nodes of a network, and the slots of the names with these tags.

    The first nodes are the primaries at first.
    """

    def __init__(self, network: Wires, tags: tuple[str, ...], parts: tuple[str, ...]) -> None:
        self._network = network
        self._world = network.world
        self._model = network.server.model
        self._keys: dict[int, list[bytes]] = {}
        """The keys of each slot that is of interest."""
        for tag in tags:
            keys = [f"{tag}:{part}".encode() for part in parts]
            self._keys.setdefault(slot_of_key(keys[0]), []).extend(keys)
        self._moves: dict[int, _Move] = {}
        self._owners = {slot: slot * PRIMARIES // SLOTS for slot in self._keys}
        """Which primary has each of these slots, or is to have it once it has learnt of that."""
        self._views = [dict(self._owners) for _ in range(PRIMARIES)]
        """For each node, which node it takes for the primary of each of these slots."""
        self._primaries = list(range(PRIMARIES))
        """Which node has taken the place of each of the first ones."""
        self.gone: set[int] = set()
        """The nodes that are gone."""
        self._model[b"unite"]()

    @property
    def nodes(self) -> range:
        """The numbers of all nodes, of replicas too once they have taken over."""
        return range(len(self._views))

    def redirect(self, command: Command, *, asking: bool) -> ErrorReply | None:
        """Return the error reply to a call that its node does not serve; None if it does."""
        keys, node = command.words[: command.key_count], command.link.server
        slot = slot_of_key(keys[0])
        if slot not in self._keys or not set(self._keys[slot]).issuperset(keys):
            return CROSS_SLOT
        owner, move = self._views[node][slot], self._moves.get(slot)
        there = self._model[b"count"](node, self._network.now_us(), *keys)
        if move is not None and move.source == node == owner and there < len(keys):
            return TRY_AGAIN if there else _redirection("ASK", slot, move.target)
        if move is not None and move.target == node != owner and asking:
            return TRY_AGAIN if there < len(keys) else None
        return None if owner == node else _redirection("MOVED", slot, owner)

    def elsewhere(self, node: int, channel: bytes) -> ErrorReply | None:
        """Return the error reply to a node's subscriber, if the slot of the channel is not the node's; else None."""
        slot = slot_of_key(channel)
        owner = self._views[node].get(slot, self._primaries[slot * PRIMARIES // SLOTS])
        return None if owner == node else _redirection("MOVED", slot, owner)

    def shares(self, node: int) -> list[Any]:
        """Return what a node says of the slots."""
        view = self._views[node]
        starts = {
            0,
            *(slot for one in view for slot in (one, one + 1)),
            *(-(-n * SLOTS // PRIMARIES) for n in range(PRIMARIES)),
        }
        rows = []
        for first, after in pairwise([*sorted(starts - {SLOTS}), SLOTS]):
            owner = view.get(first, self._primaries[first * PRIMARIES // SLOTS])
            host, port = address(owner)
            rows.append([first, after - 1, [host.encode(), port, b"%040d" % owner]])
        return rows

    # --- what may happen to it

    def move(self, slot: int, within: float) -> None:
        """Begin to move a slot to the other primary, which takes about so many seconds; 0 for at once."""
        if slot in self._moves:
            return
        source = self._owners[slot]
        target = next(node for node in self._primaries if node != source)
        self._say(f"slot {slot} moves from node {source} to {target}")
        self._moves[slot] = _Move(source, target)
        if within == 0:
            self._arrive(slot)
            self._finish(slot)
            return
        self._model[b"leave"](source, True, *self._keys[slot])
        moments = sorted(self._world.now + within * self._world.chance() for _ in range(len(self._keys[slot]) + 1))
        keys = list(self._keys[slot])
        for moment in moments[:-1]:
            key = keys.pop(self._world.below(len(keys)))
            self._world.at(moment, self._move_key, slot, key)
        self._world.at(moments[-1], self._end, slot)

    def replace(self, place: int, *, is_gone: bool) -> None:
        """Let a replica with all data take over from the primary that has the place of one of the first ones."""
        node, successor = self._primaries[place], len(self._views)
        self._say(f"node {successor} takes over from node {node}")
        if is_gone and node > 0:
            self.lose(node)
        self._primaries[place] = successor
        self._views.append(dict(self._views[node]))
        self._model[b"take_over"](node, successor)
        for slot, move in self._moves.items():
            self._moves[slot] = _Move(*(successor if number == node else number for number in move))
        self._owners = {slot: successor if owner == node else owner for slot, owner in self._owners.items()}
        for other in self.nodes:
            if other in (node, successor):
                for slot, owner in self._views[other].items():
                    if owner == node:
                        self._see(other, slot, successor)
            else:
                self._world.at(self._soon(), self._learn, other)

    def lose(self, node: int) -> None:
        """Let a node be gone."""
        self._say(f"node {node} is gone")
        self.gone.add(node)
        for link in [link for link in self._network.links if link.there and link.server == node]:
            self._network.drop(link)
            self._network.cut(link)

    def settle(self) -> None:
        """Let all slots that move arrive, and all nodes know the same."""
        for slot in list(self._moves):
            self._arrive(slot)
            self._finish(slot)
        for node in self.nodes:
            self._learn(node)

    def slot(self) -> int:
        """Return a random slot of those that are of interest."""
        return [*self._keys][self._world.below(len(self._keys))]

    # --- how

    def _soon(self) -> float:
        return self._world.now + TOLD_S * self._world.chance() ** 2

    def _move_key(self, slot: int, key: bytes) -> None:
        if self._network.stalled or self._network.is_down:
            self._world.at(self._soon(), self._move_key, slot, key)
        elif slot in self._moves:
            self._model[b"move"](*self._moves[slot], key)

    def _end(self, slot: int) -> None:
        """Move the keys that are left, and let the source and the target know, one before the other."""
        if slot not in self._moves:
            return
        if self._network.stalled or self._network.is_down:
            self._world.at(self._soon(), self._end, slot)
            return
        self._arrive(slot)
        first = self._moves[slot][self._world.below(2)]
        self._see(first, slot, self._owners[slot])
        self._world.at(self._soon(), self._finish, slot)

    def _arrive(self, slot: int) -> None:
        """Move the keys that are left. The slot is the target's from now on."""
        source, target = self._moves[slot]
        for key in self._keys[slot]:
            self._model[b"move"](source, target, key)
        self._owners[slot] = target

    def _finish(self, slot: int) -> None:
        """Let the source and the target know, and the others soon."""
        if slot not in self._moves:
            return
        source, target = self._moves.pop(slot)
        self._model[b"leave"](source, False, *self._keys[slot])
        for node in self.nodes:
            if node in (source, target):
                self._see(node, slot, target)
            else:
                self._world.at(self._soon(), self._learn, node)

    def _learn(self, node: int) -> None:
        """Let a node know who has what, but for slots that move: those are for their two nodes to know."""
        for slot, owner in self._owners.items():
            if slot not in self._moves:
                self._see(node, slot, owner)

    def _see(self, node: int, slot: int, owner: int) -> None:
        """Let a node take another one for the primary of a slot.

        One that has lost the slot ends the subscriptions there.
        """
        was, self._views[node][slot] = self._views[node][slot], owner
        if was == node != owner:
            self._network.end_shards(node, slot)

    def _say(self, words: str) -> None:
        if self._world.log is not None:
            self._world.say("FAULT", words)


def _redirection(kind: str, slot: int, node: int) -> ErrorReply:
    host, port = address(node)
    return ErrorReply(f"{kind} {slot} {host}:{port}")
