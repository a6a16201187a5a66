"""The engine's scripts, packed for one name as far as they can be before there is a token.

A lock is one permit of one. Whoever wants other limits and weights says so here, and nowhere below.
"""

from __future__ import annotations

from holdfast.wire.effects import Call
from holdfast.wire.keys import Place
from holdfast.wire.resp import bulk
from holdfast.wire.script import LuaScript, load

__all__ = ["Permits"]

CLAIM_MS = 2_000
"""The first lease of a renewed grant that is handed over: a frozen waiter costs this, not a whole ttl."""

WAIT_MS = 60_000
"""How long the server believes in a waiter that says nothing. Each is heard at least every third of it."""

ACQUIRE, RELEASE, RENEW = load("permit_acquire"), load("permit_release"), load("permit_renew")
CANCEL, REVOKE, INSPECT = load("permit_cancel"), load("permit_revoke"), load("permit_inspect")


class Permits:
    """Permits of one name that a caller may ask for, as calls ready to be sent."""

    __slots__ = ("_acquire", "_limit", "_place", "_queue", "_release", "_try", "name", "renew", "ttl_ms")

    def __init__(
        self, place: Place, *, ttl_ms: int, renew: bool, limit: int = 1, weight: int = 1, max_waiters: int = 100_000
    ) -> None:
        self.name = place.name
        self.ttl_ms = ttl_ms
        self.renew = renew
        self._place = place
        self._limit = bulk(limit)
        claim_ms = min(ttl_ms, CLAIM_MS) if renew else ttl_ms
        wants = b"".join(map(bulk, (limit, weight, ttl_ms, claim_ms)))
        self._acquire = self._keys(ACQUIRE)
        self._queue = wants + bulk(WAIT_MS) + bulk(max_waiters)
        self._try = wants + bulk(0) + bulk(max_waiters)
        self._release = self._keys(RELEASE)

    def acquire(self, token: bytes) -> Call:
        """Ask, and stand in line if need be."""
        return Call(ACQUIRE.head, b"%b$%d\r\n%b\r\n%b" % (self._acquire, len(token), token, self._queue), signed=True)

    def try_acquire(self, token: bytes) -> Call:
        """Ask, and go away if need be."""
        return Call(ACQUIRE.head, b"%b$%d\r\n%b\r\n%b" % (self._acquire, len(token), token, self._try), signed=True)

    def release(self, token: bytes) -> Call:
        """Give a lease up."""
        return Call(RELEASE.head, b"%b$%d\r\n%b\r\n%b" % (self._release, len(token), token, self._limit))

    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease last that long from now, or longer if it already does."""
        return Call(RENEW.head, self._keys(RENEW) + bulk(token) + bulk(ttl_ms))

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, wherever it got to."""
        return Call(CANCEL.head, self._keys(CANCEL) + bulk(token) + self._limit)

    def revoke(self, up_to_fence: int, reason: str) -> Call:
        """Take away the leases granted up to that fence."""
        return Call(REVOKE.head, self._keys(REVOKE) + self._limit + bulk(up_to_fence) + bulk(reason))

    def inspect(self, max_shown: int = 100) -> Call:
        """Look."""
        return Call(INSPECT.head, self._keys(INSPECT) + bulk(max_shown))

    def _keys(self, script: LuaScript) -> bytes:
        return b"".join(bulk(self._place.key(part)) for part in script.header.keys)
