"""Slots: how a cluster divides its keys among its primaries, and how it tells a client which primary has a slot.

A key belongs to the slot of the text in its first braces. All keys of a name have the same text there, so all of them,
and every call for the name, are in one slot.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Iterator
from typing import Any, NamedTuple

from handfast._engine.effects import Call
from handfast._engine.resp import ErrorReply
from handfast._engine.script import command, pack

__all__ = [
    "ASKING",
    "SHARES",
    "SLOTS",
    "UNKNOWN_HOST",
    "UNSERVED",
    "Node",
    "Redirection",
    "read_redirection",
    "read_shares",
    "slot_of_call",
    "slot_of_key",
]

SLOTS = 16384

ASKING = b"*1\r\n$6\r\nASKING\r\n"
"""Sent before a call for a slot that this server is only about to get."""

SHARES = Call(command("CLUSTER", 1), pack(("SLOTS",)))
"""Asks which primary has which slots. Redis 6.2 has this and not ``CLUSTER SHARDS``."""

UNSERVED = ErrorReply("CLUSTERDOWN Hash slot not served")
"""What a node replies to a call for a slot that no primary has; here also if nodes name each other for it."""

_WITHOUT_KEYS = frozenset({"CLUSTER", "CONFIG", "INFO", "PUBSUB", "SCAN", "TIME"})
"""The commands that every node answers for itself."""

UNKNOWN_HOST = "?"
"""In place of the name of a node that has none yet, where a cluster prefers names."""

_REDIRECTION = re.compile(r"(MOVED|ASK) (\d+) (.*):(\d+)")


class Node(NamedTuple):
    """Where a server of the cluster is."""

    host: str
    """Empty if the node is where the node that told of it was asked; `UNKNOWN_HOST` if nothing tells where it is."""
    port: int


class Redirection(NamedTuple):
    """A node's reply to a call for a slot that it does not have, or not any more."""

    slot: int
    node: Node
    for_once: bool
    """Whether only this call is to go there, after `ASKING`: the slot is on its way."""


def slot_of_key(key: bytes) -> int:
    """Return the slot of a key."""
    start = key.find(b"{") + 1
    if start and (end := key.find(b"}", start)) > start:
        key = key[start:end]
    return crc_hqx(key, 0) % SLOTS


def slot_of_call(call: Call) -> int | None:
    """Return the slot of a call's first key; None if it has none and any node will do."""
    args = call.args
    if not args or call.prefix.name in _WITHOUT_KEYS:
        return call.slot
    start = args.index(b"\r\n") + 2
    return slot_of_key(args[start : start + int(args[1 : start - 2])])


def read_redirection(text: str) -> Redirection | None:
    """Read an error reply; None if it is no redirection."""
    found = _REDIRECTION.fullmatch(text)
    return found and Redirection(int(found[2]), Node(found[3], int(found[4])), found[1] == "ASK")


def read_shares(reply: Any) -> Iterator[tuple[range, Node]]:
    """Read the reply to `SHARES`: ranges of slots, each with its primary."""
    for first, last, primary, *_ in reply:
        yield range(first, last + 1), _read_node(*primary)


def _read_node(host: bytes | None, port: int, _id: object = None, more: Any = (), *_: object) -> Node:
    """Read where a node is. A node without a name has the address beside it, in pairs or, with RESP3, in a map."""
    name = host or b""
    if name.decode() == UNKNOWN_HOST:
        fields = more if isinstance(more, dict) else dict(zip(more[::2], more[1::2], strict=False))
        name = fields.get(b"ip", name)
    return Node(name.decode(), port)
