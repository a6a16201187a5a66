"""Numbers as the scripts of locks send and store them: doubles in bulk strings, which cost a server a tenth of an array.

All numbers are whole and below 2^53, so a double holds each of them exactly.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

__all__ = ["MAX_DOUBLES", "double", "doubles", "read_doubles", "read_reply"]

double = Struct("<d").pack
"""Pack a number."""

MAX_DOUBLES = 16
"""Upper bound of the numbers in a reply, a message or an argument."""

_FORMATS = [Struct(f"<{count}d") for count in range(MAX_DOUBLES + 1)]

_RELEASED = b"released " + _FORMATS[1].pack(0)
"""The most frequent reply to a release: no waiters are left over."""


def doubles(*numbers: float) -> bytes:
    """Pack up to 16 numbers."""
    return _FORMATS[len(numbers)].pack(*numbers)


def read_doubles(packed: bytes) -> list[int]:
    """Read up to 16 whole numbers."""
    return [*map(int, _FORMATS[len(packed) // 8].unpack(packed))]


def read_reply(reply: Any, ttl_ms: int = 0) -> list[Any]:
    """Read a reply: the tag and the numbers. An array, for a reply with texts, is unchanged.

    The most frequent reply of all is short: an integer is the fence of a grant for the whole ttl of the request.
    """
    if type(reply) is int:
        return [b"granted", reply, ttl_ms * 1000]
    if type(reply) is list:
        return reply
    if type(reply) is float:  # from a Lua that has integers, too, as Dragonfly's
        return read_reply(int(reply), ttl_ms)
    if reply == _RELEASED:
        return [b"released", 0]
    tag, _, numbers = reply.partition(b" ")
    return [tag, *map(int, _FORMATS[len(numbers) // 8].unpack(numbers))]
