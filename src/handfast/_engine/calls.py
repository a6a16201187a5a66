"""The engine's scripts, packed for what is wanted as far as they can be before there is a token.

A lock is one permit of one. Whoever wants other limits and weights says so here, and nowhere below. `PermitRequest` are those
of one name; `MultiRequest` is one permit of each of several locks. Protocols and drivers can't tell the two apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from handfast._engine.defaults import DEFAULT_MAX_WAITERS
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.resp import bulk
from handfast._engine.script import LuaScript, load, pack

__all__ = ["MAX_PERMITS", "MultiRequest", "PermitRequest", "Request"]

MAX_PERMITS = 1_000_000_000
"""The most permits that a name may have. A read-write lock has as many: a reader takes one, a writer all."""

CLAIM_MS = 2_000
"""The first lease of a renewed grant that is handed over: a frozen waiter costs this, not a whole ttl."""

WAIT_MS = 60_000
"""How long the server believes in a waiter that says nothing. Each is heard at least every third of it."""

ACQUIRE, RELEASE, RENEW = load("permit_acquire"), load("permit_release"), load("permit_renew")
CANCEL, REVOKE, INSPECT = load("permit_cancel"), load("permit_revoke"), load("permit_inspect")
LOWER, RESIZE = load("permit_lower"), load("permit_resize")
ACQUIRE_ALL, RELEASE_ALL = load("permits_acquire"), load("permits_release")
RENEW_ALL, CANCEL_ALL = load("permits_renew"), load("permits_cancel")

PARTS = "holders", "queue", "tokens", "past"


class Request(ABC):
    """What a caller may ask for and then hold, as calls ready to be sent."""

    __slots__ = ("name", "renew", "ttl_ms")

    def __init__(self, name: str, ttl_ms: int, *, renew: bool) -> None:
        self.name = name
        self.ttl_ms = ttl_ms
        self.renew = renew

    @abstractmethod
    def acquire(self, token: bytes) -> Call:
        """Ask, and stand in line if need be."""

    @abstractmethod
    def try_acquire(self, token: bytes) -> Call:
        """Ask, and go away if need be."""

    @abstractmethod
    def release(self, token: bytes) -> Call:
        """Give a lease up."""

    @abstractmethod
    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease last that long from now, or longer if it already does."""

    @abstractmethod
    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, wherever it got to."""


class PermitRequest(Request):
    """Some permits of one name: ``weight`` of ``limit``."""

    __slots__ = ("_acquire", "_max_waiters", "_queue", "_release", "_try", "limit", "place", "weight")

    def __init__(
        self,
        place: KeySet,
        *,
        ttl_ms: int,
        renew: bool,
        limit: int = 1,
        weight: int = 1,
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> None:
        super().__init__(place.name, ttl_ms, renew=renew)
        self.place = place
        self.limit = limit
        self.weight = weight
        self._max_waiters = max_waiters
        claim_ms = min(ttl_ms, CLAIM_MS) if renew else ttl_ms
        wants = pack((limit, weight, ttl_ms, claim_ms))
        self._acquire = self._keys(ACQUIRE)
        self._queue = wants + pack((WAIT_MS, max_waiters))
        self._try = wants + pack((0, max_waiters))
        self._release = self._keys(RELEASE)

    def with_weight(self, weight: int) -> PermitRequest:
        """The same, but for so many permits."""
        if weight == self.weight:
            return self
        return PermitRequest(
            self.place,
            ttl_ms=self.ttl_ms,
            renew=self.renew,
            limit=self.limit,
            weight=weight,
            max_waiters=self._max_waiters,
        )

    def acquire(self, token: bytes) -> Call:
        """Ask, and stand in line if need be."""
        return Call(ACQUIRE.head, b"%b$%d\r\n%b\r\n%b" % (self._acquire, len(token), token, self._queue), token)

    def try_acquire(self, token: bytes) -> Call:
        """Ask, and go away if need be."""
        return Call(ACQUIRE.head, b"%b$%d\r\n%b\r\n%b" % (self._acquire, len(token), token, self._try), token)

    def release(self, token: bytes) -> Call:
        """Give a lease up."""
        return Call(RELEASE.head, b"%b$%d\r\n%b\r\n" % (self._release, len(token), token))

    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease last that long from now, or longer if it already does."""
        return Call(RENEW.head, self._keys(RENEW) + bulk(token) + bulk(ttl_ms))

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, wherever it got to."""
        return Call(CANCEL.head, self._keys(CANCEL) + bulk(token))

    def lower(self, token: bytes) -> Call:
        """Keep only so many permits of a lease."""
        return Call(LOWER.head, self._keys(LOWER) + bulk(token) + bulk(self.weight))

    def resize(self, limit: int) -> Call:
        """Set how many permits there are, whatever clients say; 0 lets them say it again."""
        return Call(RESIZE.head, self._keys(RESIZE) + bulk(limit))

    def revoke(self, up_to_fence: int, reason: str, start: bytes = b"-inf") -> Call:
        """Take away the leases granted up to that fence, those first that end first, from the start on."""
        return Call(REVOKE.head, self._keys(REVOKE) + pack((up_to_fence, reason, start)))

    def inspect(self, max_shown: int = 100) -> Call:
        """Look."""
        return Call(INSPECT.head, self._keys(INSPECT) + bulk(max_shown))

    def _keys(self, script: LuaScript) -> bytes:
        return pack(self.place.key(part) for part in script.header.keys)


class MultiRequest(Request):
    """Several locks, all or none of them. ``parts`` are the single ones."""

    __slots__ = ("_keys", "_queue", "_try", "parts")

    def __init__(self, places: Sequence[KeySet], *, ttl_ms: int, renew: bool, max_waiters: int) -> None:
        super().__init__(", ".join(place.name for place in places), ttl_ms, renew=renew)
        self.parts = tuple(PermitRequest(place, ttl_ms=ttl_ms, renew=renew) for place in places)
        self._keys = pack(place.key(part) for place in places for part in PARTS)
        self._queue = pack((ttl_ms, WAIT_MS, max_waiters))
        self._try = pack((ttl_ms, 0, max_waiters))

    def acquire(self, token: bytes) -> Call:
        """Ask, and stand in all lines if need be."""
        return self._call(ACQUIRE_ALL, bulk(token) + self._queue, token)

    def try_acquire(self, token: bytes) -> Call:
        """Ask, and go away if need be."""
        return self._call(ACQUIRE_ALL, bulk(token) + self._try, token)

    def release(self, token: bytes) -> Call:
        """Give a lease up, or what is left of it."""
        return self._call(RELEASE_ALL, bulk(token))

    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease that is whole last that long from now, or longer if it already does."""
        return self._call(RENEW_ALL, pack((token, ttl_ms)))

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, wherever it got to."""
        return self._call(CANCEL_ALL, bulk(token))

    def _call(self, script: LuaScript, args: bytes, waiter: bytes = b"") -> Call:
        head = script.head_for(len(self.parts) * len(PARTS), len(script.header.args))
        return Call(head, self._keys + args, waiter)
