"""What the server says on its own account: a grant to somebody who waits, or a lease that was taken away.

The words are those that the scripts publish; see ``lua/lib/queue.lua`` and ``lua/permit_revoke.lua``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from handfast._engine.effects import GrantMessage
from handfast._engine.resp import Push

__all__ = ["Granted", "Revoked", "Ring", "parse_message"]


class Granted(NamedTuple):
    """A waiter's turn has come."""

    token: bytes
    bell: GrantMessage


class Revoked(NamedTuple):
    """An operator took this lease away."""

    token: bytes
    reason: str


Ring: TypeAlias = Granted | Revoked


def parse_message(frame: Any) -> Ring | None:
    """The ring in a frame; None for what is none, such as the confirmation of a subscription or a stranger's words."""
    if type(frame) is not Push or len(frame) != 3 or frame[0] != b"message" or not isinstance(frame[2], bytes):
        return None
    kind, _, rest = frame[2].partition(b" ")
    token, _, rest = rest.partition(b" ")
    if kind == b"revoked":
        return Revoked(token, rest.decode(errors="replace"))
    if kind != b"granted":
        return None
    try:
        fence, granted_us, lease_us = map(int, rest.split())
    except ValueError:
        return None
    return Granted(token, GrantMessage(fence, granted_us, lease_us))
