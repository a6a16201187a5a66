"""The scripts of a limiter, called by hand under a clock that a test sets."""

from __future__ import annotations

from math import inf
from struct import unpack, unpack_from

from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from tests._support.engine import WAIT_MS, Scripts

PARTS = "queue", "waiting", "tombstones", "settings"

SECOND_US = 1_000_000

READ_QUEUE = "return {redis.call('ZRANGE', KEYS[1], 0, -1), redis.call('HKEYS', KEYS[2])}"
"""Both keys of a queue at one instant of the server."""


class LimitScripts(Scripts):
    """The scripts of one name under rates, each ``(limit, per_ms)``, called with the argument names of their headers."""

    follows = False
    """Whether an operator has set the rates, which are not the client's own."""

    def __init__(self, client, *rates, name="a"):
        self.client = client
        self.place = KeySet("hf", "limiter", name)
        self.rates = rates
        self.tickets = {}

    def under(self, *rates, follows=False):
        """Return the scripts of the same name under other rates."""
        other = LimitScripts(self.client, *rates)
        other.place, other.follows, other.tickets = self.place, follows, self.tickets
        return other

    def key(self, part):
        return self.place.key(part)

    def window_key(self, per_ms):
        return self.key(f"window:{per_ms}")

    @property
    def windows(self):
        return [self.window_key(per_ms) for _, per_ms in self.rates]

    @property
    def keys(self):
        return [*map(self.key, PARTS), *self.windows]

    @property
    def packed_rates(self):
        return b"".join(doubles(*rate) for rate in self.rates)

    def arguments(self, token, cost=1, *, wait=WAIT_MS, patience=inf, max_waiters=1000, ticket=0, inbox=None):
        """Return the arguments of limit_acquire. A waiter's inbox is ``inbox:<token>`` by default."""
        wants = doubles(self.follows, cost) + bytes([len(self.packed_rates)]) + self.packed_rates
        wants += f"{inbox or f'inbox:{token}'} control:{token} me".encode()
        return {"token": token, "request": doubles(wait, patience, max_waiters, ticket), "wants": wants}

    def acquire(self, token, cost=1, **options):
        return self.call(self.load("limit_acquire"), self.keys, self.arguments(token, cost, **options))

    def attempt(self, token, cost=1):
        """Ask without entering the queue."""
        return self.acquire(token, cost, patience=0)

    def settle(self, token, cost, new_cost, *, copies=False):
        args = {"token": token, "costs": doubles(cost, new_cost, copies), "rates": self.packed_rates}
        return self.call(self.load("limit_settle"), self.keys, args)

    def cancel(self, token, cost=1):
        return self.settle(token, cost, 0, copies=True)

    def pause(self, ms):
        """Pause for so long, or end that with 0."""
        args = {"pause": doubles(ms, 0), "by": "me", "why": "busy", "rates": self.packed_rates}
        return self.call(self.load("limit_pause"), self.keys, args)

    def resize(self, *, is_set=True):
        """Set these rates for all; or none, so that these are the client's own again."""
        args = {"is_set": int(is_set), "by": "me", "why": f"{len(self.rates)} rates", "rates": self.packed_rates}
        return self.call(self.load("limit_resize"), self.keys, args)

    def reset(self, until_us):
        """Forget admissions until then."""
        args = {"until": doubles(until_us), "rates": self.packed_rates}
        return self.call(self.load("limit_reset"), self.keys, args)

    def inspect(self):
        """Return the number of waiters, and for each rate what is used and until when."""
        tag, now_us, waiting, self.paused_us, self.last, self.set_rates, shown, self.first_us, _ = self.look()
        assert tag == "state"
        assert now_us == getattr(self.client, "now_us", now_us)
        return waiting, list(zip(shown[::2], shown[1::2], strict=True))

    def look(self):
        keys = [self.key("queue"), self.key("waiting"), self.key("settings"), *self.windows]
        return self.call(self.load("limit_inspect"), keys, {"periods": doubles(*(per_ms for _, per_ms in self.rates))})

    def window(self, per_ms=None):
        """Return the admissions of a window, by default the first one: the times of tokens with their costs.

        Check its sum.
        """
        key = self.windows[0] if per_ms is None else self.window_key(per_ms)
        found = {member: int(score) for member, score in self.client.zrange(key, 0, -1, withscores=True)}
        total = -found.pop("=", 0)
        assert total == sum(int(member.split()[1]) for member in found), "the sum is wrong"
        return found

    def used(self, per_ms=None):
        return sum(int(member.split()[1]) for member in self.window(per_ms))

    def queue(self):
        """Return the waiters in their order. Check that each of them has a record, and no one else."""
        queue, records = self.client.execute_command("EVAL", READ_QUEUE, 2, self.key("queue"), self.key("waiting"))
        assert sorted(queue) == sorted(records)
        return queue

    def tombstones(self):
        return self.client.zrange(self.key("tombstones"), 0, -1)

    def dump(self):
        """Return everything stored of the name, without the TTLs."""
        read = [
            self.client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES", NEVER_DECODE=True)
            for key in (self.key("queue"), self.key("tombstones"), *self.windows)
        ]
        hashes = self.key("waiting"), self.key("settings")
        return [*read, *(self.client.execute_command("HGETALL", key, NEVER_DECODE=True) for key in hashes)]

    def fill(self, count, at_us, *, cost=1, per_ms=None):
        """Store so many admissions at that time, a microsecond apart."""
        key = self.windows[0] if per_ms is None else self.window_key(per_ms)
        scores = {f"{at_us}:{number} {cost}": at_us + number for number in range(count)}
        used = -int(self.client.zscore(key, "=") or 0)
        self.client.zadd(key, scores | {"=": -(used + count * cost)})
        self.client.pexpire(key, 10**8)

    def lapse(self, *tokens):
        """Let wait-leases lapse without moving the clock."""
        for token in tokens:
            record = self.client.execute_command("HGET", self.key("waiting"), token, NEVER_DECODE=True)
            self.client.hset(self.key("waiting"), token, doubles(1) + record[8:])

    def wait_until(self, token):
        """Return the end of a wait-lease."""
        record = self.client.execute_command("HGET", self.key("waiting"), token, NEVER_DECODE=True)
        return int(unpack_from("<d", record)[0])


def messages(pubsub):
    """Return the messages that were sent until now: the token, and what is left after its admission or when to come."""
    pubsub.ping()
    found = []
    while (message := pubsub.get_message(timeout=10))["type"] != "pong":
        kind, token, numbers = message["data"].split(b" ", 2)
        assert kind == b"granted"
        number, _, admitted = map(int, unpack("<3d", numbers))
        assert admitted in (0, 1)
        found.append((token.decode(), "admitted" if admitted else "come", number))
    return found
