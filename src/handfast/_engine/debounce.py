"""The calls of a debounced name, packed as far as they can be before there is a token."""

from __future__ import annotations

from math import inf

from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._engine.script import load, pack

__all__ = ["DebounceRequest"]

ENTER, CLAIM, CANCEL = load("debounce_enter"), load("debounce_claim"), load("debounce_cancel")


class DebounceRequest:
    """What a caller asks: to run once no one has called for ``quiet_ms``, or ``at_most_ms`` after the first call of a burst."""

    __slots__ = ("_at_most_ms", "_durations", "_keys", "_place", "_quiet_ms", "name")

    def __init__(self, place: KeySet, *, quiet_ms: int, at_most_ms: int | None) -> None:
        self.name: str = place.name
        self._place = place
        self._quiet_ms = quiet_ms
        self._at_most_ms = at_most_ms
        self._keys = pack((place.key("burst"), place.key("tombstones")))
        self._durations = bulk(doubles(quiet_ms, inf if at_most_ms is None else at_most_ms))

    def keyed(self, parts: tuple[str, ...]) -> DebounceRequest:
        """Return the same request for a name with these parts behind it."""
        return DebounceRequest(self._place.keyed(parts), quiet_ms=self._quiet_ms, at_most_ms=self._at_most_ms)

    def enter(self, token: bytes) -> Call:
        """Take the burst over, or begin one; or learn again when it is to run."""
        return Call(ENTER.prefix_for(2, 3), self._keys + bulk(token) + self._durations, token)

    def claim(self, token: bytes) -> Call:
        """Ask whether to run."""
        return Call(CLAIM.prefix, self._keys + bulk(token))

    def cancel(self, token: bytes) -> Call:
        """Withdraw the call."""
        return Call(CANCEL.prefix, self._keys + bulk(token))
