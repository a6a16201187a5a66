"""The shared parts of both locks: tokens, key names, checks of numbers, and the scripts as calls. No I/O, no clock.

The lock's key is the caller's, and its only value is a token. A finished or granted acquire is remembered in a separate
key for each acquire. The name of this key begins with the lock's, so permissions by prefix include it, and it
hashes to the same slot of a cluster.
"""

from __future__ import annotations

import itertools
import math
import secrets
import weakref
from typing import Any, Final, Self, TypeAlias

from redis.crc import key_slot

from handfast._engine.replies import Reply
from handfast.script import Script

__all__ = [
    "Call",
    "Token",
    "acquire",
    "beside",
    "cancel",
    "check_sleep",
    "check_wait",
    "encoded",
    "extend",
    "held",
    "lifetime_ms",
    "more_ms",
    "note",
    "poll_interval",
    "release",
    "renew",
    "token_of",
]

Call: TypeAlias = tuple[Script, dict[str, Any]]
"""A script and its arguments."""


def _script(verb: str) -> Script:
    return Script.from_package("handfast.compat", f"lua/lock_{verb}.lua")


ACQUIRE: Final = _script("acquire")
CANCEL: Final = _script("cancel")
RELEASE: Final = _script("release")
EXTEND: Final = _script("extend")
RENEW: Final = _script("renew")

MAX_MS = 2**53
"""Milliseconds: above it a number in Lua is not exact any more."""

MAX_POLL_S = 3600.0
"""Seconds after which a waiter asks again in any case; a longer pause overflows a timer."""

EXPIRY_SLACK_S = 0.001
"""Seconds added to a TTL: the server counts in whole milliseconds, and one of them has begun."""


class Token(bytes):
    """The value given to the key by an acquire, and the known state of the acquire.

    It is the token for all who ask for ``lock.local.token``. A caller may give the same token to several acquires, so
    each has a separate id, ``call``; where the token is ours, both are the same.
    """

    call: bytes
    own: bool
    """Whether the token is ours, so that no other acquire has it."""
    asked: bool
    """Whether the server may have heard of it."""
    left: float
    """Seconds until the current holder's key ends, by the latest reply; inf if it has no TTL."""
    owner: weakref.ref[object] | None
    """The lock that acquired it. Another that is given it knows nothing of its past."""

    def __new__(cls, given: bytes | None = None) -> Self:
        """A new acquire, with a given token or a token of ours."""
        call = secrets.token_hex(16).encode()
        token = super().__new__(cls, call if given is None else given)
        token.call, token.own, token.asked, token.left, token.owner = call, given is None, False, math.inf, None
        return token

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        """Elsewhere it is the text alone: plain bytes."""
        return bytes, (bytes(self),)


# --- numbers


def lifetime_ms(timeout: Any, what: str = "timeout") -> int:
    """A lock's TTL in whole milliseconds, rounded up; 0 stands for None, which never ends.

    Raises ValueError for a length below a millisecond (zero and negative ones among them), infinite or not a number.
    """
    if timeout is None:
        return 0
    if not timeout >= 0.001:
        never = ", or None for a lock that never ends" if what == "timeout" else ""
        raise ValueError(f"{what} must be at least a millisecond (0.001){never}, not {timeout!r}")
    return more_ms(timeout, what)


def more_ms(seconds: Any, what: str) -> int:
    """Seconds of either sign in whole milliseconds, rounded up. Raises ValueError for anything but a length of time."""
    if not abs(seconds) * 1000 < MAX_MS:
        raise ValueError(f"{what} must be finite and not that long, not {seconds!r}")
    # 2.007 * 1000 is 2007.0000000000002, which must not be rounded up to 2008.
    ms: int = math.ceil(round(seconds * 1000, 6))
    return ms


def check_sleep(sleep: Any) -> float:
    """Seconds between two requests of a waiter. Raises ValueError for negative ones and NaN."""
    if not sleep >= 0:
        raise ValueError(f"sleep must be seconds, 0 or more, not {sleep!r}")
    return float(sleep)


def check_wait(blocking_timeout: Any) -> float:
    """Seconds that an acquire may wait; None waits indefinitely. Raises ValueError for NaN."""
    if blocking_timeout is None:
        return math.inf
    if blocking_timeout != blocking_timeout:  # noqa: PLR0124 -- that is what NaN is, in all kinds of numbers
        raise ValueError(f"blocking_timeout must be seconds, or None to wait without end, not {blocking_timeout!r}")
    return float(blocking_timeout)


def poll_interval(token: Token, sleep: float, left: float) -> float:
    """Return the seconds until a waiter asks again: ``sleep``, or earlier if the key or the time ``left`` ends."""
    return max(0.0, min(sleep, token.left, left, MAX_POLL_S))


# --- names


_numbers = itertools.count()
_tags: dict[int, bytes] = {}


def _tag(slot: int) -> bytes:
    """Return a number whose digits hash to the slot. The first 109,758 numbers have one for every slot."""
    while slot not in _tags:
        number = b"%d" % next(_numbers)
        _tags.setdefault(key_slot(number), number)
    return _tags[slot]


def beside(key: bytes, call: bytes) -> bytes:
    """Return the key of one call: it begins with the lock's key and hashes to the same slot.

    If the lock's key has a hash tag, the same tag does it. If it has no brace, the new key gets a tag for the same
    slot. For a key with a brace but no hash tag, names are tried until one hashes to it.
    """
    start = key.find(b"{")
    if start < 0:
        return b"%b:handfast:{%b}:%b" % (key, _tag(key_slot(key)), call)
    if key.find(b"}", start) > start + 1:
        return b"%b:handfast:%b" % (key, call)
    slot = key_slot(key)
    names = (b"%b:handfast:%b:%d}" % (key, call, number) for number in itertools.count())
    return next(name for name in names if key_slot(name) == slot)


def token_of(client: Any, text: Any) -> Token:
    """Return the token itself, or a new one with the same text."""
    return text if isinstance(text, Token) else Token(encoded(client, text))


def held(lock: Any, client: Any) -> Token:
    """Return the token for a lock to release, as a Token even if a text was assigned to ``local.token``.

    With another lock's token, a second release of it would be answered like the first, and not with an error.
    """
    token = lock.local.token
    if not isinstance(token, Token) or token.owner is None or token.owner() is not lock:
        token = Token(encoded(client, token))
        token.owner = weakref.ref(lock)
    return token


def encoded(client: Any, text: Any) -> bytes:
    """Encode a key or a token as the client does. Raises DataError for a type refused by the client."""
    return bytes(client.get_encoder().encode(text))


# --- calls


def acquire(client: Any, name: Any, token: Token, timeout: Any) -> Call:
    """Ask for the lock."""
    key = encoded(client, name)
    names = {"lock": key, "past": beside(key, token.call)}
    return ACQUIRE, names | {"token": token, "ttl_ms": lifetime_ms(timeout), "own": int(token.own)}


def cancel(client: Any, name: Any, token: Token) -> Call:
    """Take back the lock that an acquire may have got."""
    key = encoded(client, name)
    names = {"lock": key, "past": beside(key, token.call)}
    return CANCEL, names | {"token": token, "own": int(token.own)}


def release(client: Any, name: Any, token: Token) -> Call:
    """Give the lock up."""
    key = encoded(client, name)
    return RELEASE, {"lock": key, "past": beside(key, token.call), "token": token}


def extend(client: Any, name: Any, token: bytes, additional_time: Any) -> Call:
    """Add to the lock's TTL."""
    key = encoded(client, name)
    call = secrets.token_hex(16).encode()
    more = more_ms(additional_time, "additional_time")
    return EXTEND, {"lock": key, "past": beside(key, call), "token": token, "more_ms": more}


def renew(client: Any, name: Any, token: bytes, ttl: Any, what: str, *, even_endless: bool) -> Call:
    """Set the lock's TTL; ``even_endless`` where it has none, too."""
    key = encoded(client, name)
    ttl_ms = lifetime_ms(ttl, what)
    return RENEW, {"lock": key, "token": token, "ttl_ms": ttl_ms, "even_endless": int(even_endless)}


def note(token: Token, reply: Reply) -> bool:
    """Whether an acquire was granted; if not, how long it may take is noted with the token."""
    token.left = math.inf
    if reply.tag == "busy" and reply.left_ms >= 0:
        token.left = reply.left_ms / 1000 + EXPIRY_SLACK_S
    return reply.tag == "granted"
