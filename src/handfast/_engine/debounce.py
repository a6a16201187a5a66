"""The calls of a debounced name, packed as far as they can be before there is a token."""

from __future__ import annotations

from math import inf

from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._engine.script import load, pack

__all__ = ["DebounceRequest"]

ENTER, CANCEL = load("debounce_enter"), load("debounce_cancel")


class DebounceRequest:
    """Run once no other call has come for ``quiet_ms``, or ``at_most_ms`` after the first call of a burst."""

    __slots__ = ("_at_most_ms", "_keys", "_place", "name", "quiet_ms")

    def __init__(self, place: KeySet, *, quiet_ms: int, at_most_ms: int | None) -> None:
        self.name: str = place.name
        self.quiet_ms: int = quiet_ms
        self._place = place
        self._at_most_ms = at_most_ms
        self._keys = pack((place.key("burst"), place.key("tombstones")))

    def keyed(self, parts: tuple[str, ...]) -> DebounceRequest:
        """Return the same request for a name with these parts behind it."""
        return DebounceRequest(self._place.keyed(parts), quiet_ms=self.quiet_ms, at_most_ms=self._at_most_ms)

    def enter(self, token: bytes, left_s: float, ticket: int = 0) -> Call:
        """Take the burst over, or begin one; with a ticket, ask again whether to run.

        ``left_s``: how long the call still has to wait, in seconds; below zero once its time is over.
        """
        at_most_ms = inf if self._at_most_ms is None else self._at_most_ms
        times = doubles(self.quiet_ms, at_most_ms, round(left_s * 1e6), ticket)
        return Call(ENTER.prefix_for(2, 3), self._keys + bulk(token) + bulk(times), waiter=token)

    def cancel(self, token: bytes) -> Call:
        """Withdraw the call."""
        return Call(CANCEL.prefix, self._keys + bulk(token))
