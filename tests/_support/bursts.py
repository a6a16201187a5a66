"""The scripts of a debounced name, called by hand under a clock that a test sets."""

from __future__ import annotations

from math import inf

from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from tests._support.engine import Scripts


class BurstScripts(Scripts):
    """The scripts of one name, called with the argument names of their headers."""

    def __init__(self, client, quiet_ms=100, at_most_ms=inf):
        self.client = client
        self.place = KeySet("hf", "debounce", "a")
        self.quiet_ms, self.at_most_ms = quiet_ms, at_most_ms

    @property
    def keys(self):
        return [self.place.key("burst"), self.place.key("tombstones")]

    def enter(self, token, inbox=None):
        """Call. The inbox is ``inbox:<token>`` by default."""
        args = {
            "token": token,
            "durations": doubles(self.quiet_ms, self.at_most_ms),
            "wants": f"{inbox or f'inbox:{token}'} control me",
        }
        return self.call(self.load("debounce_enter"), self.keys, args)

    def claim(self, token):
        return self.call(self.load("debounce_claim"), self.keys, {"token": token})

    def cancel(self, token):
        return self.call(self.load("debounce_cancel"), self.keys, {"token": token})

    def dump(self):
        """Return everything stored of the name, without the TTLs."""
        return self.client.hgetall(self.keys[0]), self.client.zrange(self.keys[1], 0, -1, withscores=True)
