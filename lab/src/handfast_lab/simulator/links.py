"""Connections and the commands on them, and what the parts of the network need of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from handfast._engine import batches
from handfast._engine.resp import Reader
from handfast_lab.simulator.server import PLAIN, SCRIPT_NAMES, SimulatedServer
from handfast_lab.simulator.world import Process, World

__all__ = ["SPARE", "Command", "Link", "LinkEnd", "Wires"]

SPARE = {one.name.encode(): spare for one, spare in ((batches.ACQUIRE, 8), (batches.RELEASE, 0), (batches.ADMIT, 8))}
"""How many bytes follow each token in the first argument of a batch."""


class LinkEnd(Protocol):
    """The client's end of a connection."""

    def opened(self) -> None:
        """The server has accepted the connection."""

    def refused(self, reply: str | None) -> None:
        """The connection failed: no server listens, or it replied to the handshake with this error."""

    def received(self) -> None:
        """Bytes have arrived: see `Network.arrived`."""

    def broken(self) -> None:
        """The connection has closed."""


class Link:
    """One connection."""

    __slots__ = (
        *("asking", "channels", "deaf", "end", "held_back", "here", "inbound", "mute", "node", "number", "process"),
        *("reader", "server"),
        *("swallows", "there", "to_client", "to_server", "wrote"),
    )

    def __init__(self, number: int, process: Process, end: LinkEnd, node: int = 0) -> None:
        self.number = number
        self.node = node
        """In a cluster, the number of the node that it is for."""
        self.asking = False
        """Whether the next command is for a slot that its node is only about to get."""
        self.process = process
        self.end = end
        self.reader = Reader()
        self.server = 0
        """The number of the server that it leads to."""
        self.channels: list[bytes] = []
        """The channels that the client has subscribed to."""
        self.inbound: list[tuple[float, bytes, Callable[[], None] | None]] = []
        """Bytes on the way to the client, when they arrive, and what is called then."""
        self.here = True
        """Whether it is open for the client."""
        self.there = False
        """Whether it is open for the server."""
        self.mute = False
        """Whether commands get lost."""
        self.deaf = False
        """Whether replies get lost."""
        self.swallows = False
        """Whether commands on the way at the cut are never executed."""
        self.to_server = 0.0
        self.to_client = 0.0
        self.wrote = 0
        """The number of the last write of its commands."""
        self.held_back: list[Command] | None = None
        """The commands behind one that waits for replicas; None if none does."""


class Command:
    """A command on its way. ``name`` is the script's, if it runs one; one of `PLAIN` is executed like a script."""

    __slots__ = (
        "is_plain",
        "is_script",
        "key_count",
        "late",
        "link",
        "lost_reply",
        "name",
        "source",
        "ticket",
        "token",
        "tokens",
        "words",
    )

    def __init__(self, link: Link, words: list[bytes]) -> None:
        verb = words[0]
        self.link = link
        self.is_plain = verb.decode() in PLAIN
        self.is_script = verb in (b"EVALSHA", b"EVAL")
        self.source = verb == b"EVAL"
        """Whether it contains the source of the script."""
        self.late = False
        """Whether it is executed even if its connection has closed."""
        self.lost_reply = False
        self.ticket: int | None = None
        """The ticket that its client has for the token, if any."""
        self.name, self.token, self.key_count, self.words = verb, b"", int(self.is_plain), words[1:]
        if self.is_script:
            self.name, self.key_count, self.words = SCRIPT_NAMES[words[1]], int(words[2]), words[3:]
            self.token = self.words[self.key_count] if len(self.words) > self.key_count else b""
            """The first argument, which is the token of most scripts."""
        self.tokens = _tokens_of_batch(self.token, SPARE[self.name]) if self.name in SPARE else (self.token,)


def _tokens_of_batch(names: bytes, spare: int) -> tuple[bytes, ...]:
    """Return the tokens of a batch, each of which has so many bytes behind it."""
    tokens = []
    while names:
        size = 1 + names[0]
        tokens.append(names[1:size])
        names = names[size + spare :]
    return tuple(tokens)


class Wires(Protocol):
    """The network, as its cluster and its replication know it."""

    world: World
    server: SimulatedServer
    links: list[Link]
    old: int
    stalled: bool
    is_down: bool

    def now_us(self) -> int:
        """Return the time of the server's clock."""

    def travel(self) -> float:
        """Return how long a message takes."""

    def cut(self, link: Link) -> None:
        """Close a connection, for both ends."""

    def drop(self, link: Link) -> None:
        """Close the server's end of a connection."""

    def is_demoted(self, link: Link) -> bool:
        """Return whether the server of a connection is a primary no more."""

    def promote(self, *, goes_on: bool = False) -> None:
        """Make another server the primary."""

    def end_old(self) -> None:
        """End a primary that went on beside its successor."""

    def end_shards(self, node: int, slot: int) -> None:
        """End the subscriptions at a node to the channels of a slot."""

    def end_wait(self, link: Link, count: int) -> None:
        """Reply to a command that waited for replicas."""
