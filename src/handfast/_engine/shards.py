"""Sharded inboxes: in a cluster, further channels of a connection, each for the names of a slot. No I/O.

A message on a sharded channel stays with the primary of the slot and the replicas; a message on another channel goes to
all nodes of the cluster. So a connection subscribes to the sharded inbox of a slot when a caller waits for a name
there. Until the server has confirmed the subscription, and for good where it knows no such channels, messages come to
the classic inbox of the connection.
"""

from __future__ import annotations

from itertools import chain, product
from string import ascii_lowercase
from typing import Any

from handfast._engine.effects import Call
from handfast._engine.keys import sharded_channel
from handfast._engine.resp import ErrorReply
from handfast._engine.script import pack
from handfast._engine.server_errors import is_transient
from handfast._engine.slots import read_redirection, slot_of_call, slot_of_key

__all__ = ["Shards", "word_of"]

MOST = 1024
"""Sharded inboxes of one connection. Each costs its server some 250 bytes; beyond that the classic one serves."""


class Shards:
    """The sharded inboxes of a connection. ``owner`` is the owner text, which begins with the classic inbox."""

    def __init__(self, owner: bytes) -> None:
        inbox, _, rest = owner.partition(b" ")
        self._inbox, self._rest, self._classic = inbox.decode(), rest, owner
        self._asked: set[int] = set()
        """The slots whose inboxes were asked for."""
        self._owners: dict[int | None, bytes] = {}
        """The owner text with it, once the server has confirmed it."""
        self._is_refused = False

    def owner(self, call: Call) -> bytes:
        """Return the owner text for a call."""
        return self._owners.get(slot_of_call(call), self._classic) if self._owners else self._classic

    def subscribe(self, slot: int) -> bytes:
        """Return the command to subscribe to the inbox of a slot; nothing if it was sent before, or is of no use.

        The response is a push, for `take`; or an error reply, for `refuse`.
        """
        if slot in self._asked or len(self._asked) >= MOST or self._is_refused:
            return b""
        self._asked.add(slot)
        return b"*2\r\n" + pack(("SSUBSCRIBE", sharded_channel(self._inbox, word_of(slot))))

    def take(self, channel: bytes) -> None:
        """Use an inbox from now on: the server has confirmed it."""
        self._owners[slot_of_key(channel)] = channel + b" " + self._rest

    def drop(self, channel: bytes) -> int:
        """Use an inbox no more: the slot has left the server. Return the slot."""
        slot = slot_of_key(channel)
        self._asked.discard(slot)
        self._owners.pop(slot, None)
        return slot

    def refuse(self, slot: int, reply: Any) -> None:
        """Take note of an error: the slot is elsewhere, or not served now; or the server has no inboxes of this kind for us."""
        self._asked.discard(slot)
        may_pass = isinstance(reply, ErrorReply) and (read_redirection(reply) is not None or is_transient(reply))
        self._is_refused = self._is_refused or not may_pass


_words: dict[int, str] = {}
_unused = map("".join, chain(*(product(ascii_lowercase, repeat=length) for length in (1, 2, 3, 4))))
"""Four letters are enough for all slots."""


def word_of(slot: int) -> str:
    """Return a word that, as a key, is in this slot."""
    while slot not in _words:
        word = next(_unused)
        _words.setdefault(slot_of_key(word.encode()), word)
    return _words[slot]
