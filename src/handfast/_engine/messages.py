"""The messages that scripts publish, and who receives them.

A waiter hears of a grant; a holder hears of a lease taken away, or of a request to end it.
``lua/lib/inbox.lua``, ``lua/permit_release.lua``, ``lua/lib/revoke.lua`` and ``lua/permit_overtake.lua`` write them.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from handfast._engine.effects import GrantMessage
from handfast._engine.packing import MAX_DOUBLES, read_doubles
from handfast._engine.records import printable
from handfast._engine.resp import Push
from handfast._engine.script import pack

__all__ = ["Message", "Subscription", "Told", "Wanted", "parse_message"]


class Subscription(NamedTuple):
    """The channels of a connection, and the owner text in its requests."""

    channels: tuple[str, ...]
    owner: str = ""

    @property
    def handshake(self) -> bytes:
        """SUBSCRIBE, whose confirmations are pushes, and the command whose reply shows that messages will arrive.

        Scripts count the subscribers of an inbox in the same way before they grant anything to a waiter.
        """
        subscribe = b"*%d\r\n" % (1 + len(self.channels)) + pack(("SUBSCRIBE", *self.channels))
        return subscribe + b"*3\r\n" + pack(("PUBSUB", "NUMSUB", self.channels[0]))

    @property
    def probe(self) -> bytes:
        """A grant of nothing to no waiter, published to the own inbox: it comes back if messages come through.

        It comes before the reply to the next command, whatever the server's order of message and reply. A
        connection without an owner text has no waiters, and needs none.
        """
        return b"*3\r\n" + pack(("PUBLISH", self.channels[0], _PROBE)) if self.owner else b""

    @property
    def proof_key(self) -> str:
        """A key of this connection's own, for a server that has to prove something."""
        return f"{self.channels[0]}:proof"


_MESSAGES = (b"message", b"smessage")
"""What a server pushes for a message, on a classic and on a sharded channel."""


class Wanted(NamedTuple):
    """A later request asks the holder of a lease to end."""

    grace: float
    """Seconds after which the lease is taken away."""
    held: float
    """Seconds from its grant until then, on the server's clock."""
    by: str
    """The label of the client that asks."""
    reason: str
    heard_at: float = inf
    """When the message came, in seconds of the local clock."""


Told: TypeAlias = str | Wanted
"""A message for a holder: why its lease was taken away, or that it is to end."""

Message: TypeAlias = tuple[bytes, GrantMessage | Told]
"""A token, with its grant or with a message for its holder."""

_GRANT = Struct("<ddd")
"""Fence, granted_us and lease_us, packed as the replies of scripts are."""

_PROBE = b"granted - " + _GRANT.pack(0, 0, 0)


def parse_message(frame: Any) -> Message | None:
    """Read the message in a frame; None for other frames, such as the confirmation of a subscription, and foreign messages."""
    # The type first: a reply may be a list of the same shape, and anyone may publish to the channel.
    if type(frame) is not Push or len(frame) != 3 or frame[0] not in _MESSAGES or not isinstance(frame[2], bytes):
        return None
    kind, _, rest = frame[2].partition(b" ")
    token, _, rest = rest.partition(b" ")
    if kind == b"revoked":
        return token, printable(rest.decode(errors="replace"))
    # The label is percent-encoded, so the first blank ends it. The reason comes last, and may have blanks.
    if kind == b"wanted":
        grace_ms, _, rest = rest.partition(b" ")
        held_ms, _, rest = rest.partition(b" ")
        by, _, reason = rest.decode(errors="replace").partition(" ")
        if not (grace_ms.isdigit() and held_ms.isdigit()):
            return None
        # Other clients wrote label and reason. They are escaped here, so that no view and no log has to.
        return token, Wanted(int(grace_ms) / 1000, int(held_ms) / 1000, printable(unquote(by)), printable(reason))
    # Three numbers are the grant of a lease, the most frequent message. A limiter's has more of them.
    if kind != b"granted" or len(rest) != _GRANT.size:
        return _read_more(token, rest) if kind == b"granted" and token else None
    fence, granted_us, lease_us = _GRANT.unpack(rest)
    return token, GrantMessage(int(fence), int(granted_us), int(lease_us))


def _read_more(token: bytes, packed: bytes) -> Message | None:
    """Read a grant with more numbers behind it; None if it is none."""
    if not _GRANT.size < len(packed) <= 8 * MAX_DOUBLES or len(packed) % 8:
        return None
    fence, granted_us, lease_us, *more = read_doubles(packed)
    return token, GrantMessage(fence, granted_us, lease_us, tuple(more))
