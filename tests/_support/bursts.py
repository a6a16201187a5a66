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
        self.tickets = {}
        """The last ticket of each token, which a reply leaves out here."""

    @property
    def keys(self):
        return [self.place.key("burst"), self.place.key("tombstones")]

    def args(self, token, left_us, ticket, inbox=None):
        return {
            "token": token,
            "times": doubles(self.quiet_ms, self.at_most_ms, left_us, ticket),
            "wants": f"{inbox or f'inbox:{token}'} control me",
        }

    def enter(self, token, inbox=None):
        """Call. The inbox is ``inbox:<token>`` by default."""
        return self._enter(self.args(token, self.quiet_ms * 1000, 0, inbox))

    def ask(self, token, left_us=0, inbox=None):
        """Ask again, by default when the time of the call has come."""
        return self._enter(self.args(token, left_us, self.tickets.get(token, 0), inbox))

    def cancel(self, token):
        return self.call(self.load("debounce_cancel"), self.keys, {"token": token})

    def dump(self):
        """Return everything stored of the name, without the TTLs."""
        return self.client.hgetall(self.keys[0]), self.client.zrange(self.keys[1], 0, -1, withscores=True)

    def _enter(self, args):
        token = args["token"]
        reply = self.call(self.load("debounce_enter"), self.keys, args)
        if reply[0] == "waits":
            self.tickets[token] = reply.pop()
        return reply
