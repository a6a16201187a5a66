"""The short ways of the scripts do what the rest of each script does: with them and without them, random walks are the same."""

from __future__ import annotations

import random

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.script import LuaScript, load
from tests._support.engine import (
    CLAIM_US,
    NOW_US,
    TOMBSTONE_US,
    TTL_MS,
    TTL_US,
    WAIT_US,
    Engine,
    Several,
    heard,
    weight_of,
)
from tests._support.helpers import more

SHORT_WAYS = {
    "permit_acquire": [("if text and ticket == 0 and #text >= 65 then", "if false then")],
    "permit_release": [
        ("if holder == token and length == 0 and not options then", "if false then"),
        ("if #KEYS == 2 and not options and #busy[1] >= 65 then", "if false then"),
        ("if extra == 0 and not options and holder == token and lease_end > 0 then", "if false then"),
    ],
    "multi_acquire": [("if all_free then", "if false then")],
}
"""The conditions of the short ways, and what is put in their place."""


def load_general(name):
    """Load a script without its short ways."""
    script = load(name)
    source = script.source
    for condition, never in SHORT_WAYS.get(name, ()):
        assert source.count(condition) == 1
        source = source.replace(condition, never)
    return LuaScript(name, source, script.header)


class Names:
    """Three names, and everything that is requested of them, with the scripts as they are or without their short ways."""

    def __init__(self, clock, kind, load):
        self.clock = clock
        self.load = load
        self.kind = kind
        self.tickets = {}
        self.engines = {name: Engine(clock, name, kind=kind) for name in "abc"}
        for engine in self.engines.values():
            engine.load = load

    def scripts(self, names):
        """The scripts of one name, or of several."""
        if len(names) == 1:
            return self.engines[names]
        several = Several(self.clock, names, kind=self.kind)
        several.load = self.load
        return several

    def stored(self):
        return {name: engine.stored() for name, engine in self.engines.items()}


STEPS = 60
SEEDS = 4
ODDS = {
    "acquire": 8,
    "try": 1,
    "acquire again": 5,
    "release": 6,
    "release with copies": 0.5,
    "cancel": 1,
    "renew": 1.5,
    "lower": 0.7,
    "resize": 0.3,
    "revoke": 0.3,
    "later": 4,
    "earlier": 0.2,
    "lose a key": 0.2,
    "maxmemory": 0.6,
}
LATER_US = [1] * 8 + [1000, 2_000_000, CLAIM_US, TTL_US, WAIT_US, TOMBSTONE_US, 3_600_000_000]


class Walk:
    """The same calls with the scripts as they are and without their short ways."""

    def __init__(self, clock, pubsub, seed):
        self.random = random.Random(seed)
        self.clock = clock
        self.pubsub = pubsub
        self.sides = Names(clock, "short", load), Names(clock, "general", load_general)
        self.limit = self.random.choice([1, 1, 1, 2, 4])
        self.requests = []
        self.lost_a_key = False
        self.latest = ""

    def step(self):
        self.clock.now_us += 10
        order = self.latest = self.random.choices(list(ODDS), list(ODDS.values()))[0]
        if order == "later":
            self.clock.now_us += self.random.choice(LATER_US)
            self.expire()
        elif order == "earlier":
            self.clock.now_us -= self.random.choice([1, 10, CLAIM_US])
        elif order == "lose a key":
            name, part = self.random.choice("abc"), self.random.choice(PARTS)
            for side in self.sides:
                side.engines[name].lose(part)
            self.lost_a_key = True
        else:
            full = order == "maxmemory"
            if full:
                order = self.random.choice(["acquire", "acquire again", "release", "renew"])
            verb, names, token, options = self.call_of(order)
            self.latest += f" {verb} {names} {token} {options}"
            self.clock.config_set("maxmemory", int(full))
            short, general = [self.answer(side, verb, names, token, options) for side in self.sides]
            self.clock.config_set("maxmemory", 0)
            assert short == general

    def call_of(self, order):
        """Return a verb, the names that it concerns, its token, and its other arguments."""
        if order in ("acquire", "try") or not self.requests:
            self.requests.append(self.new_request())
        row = -1 if order in ("acquire", "try") else self.random.randrange(-min(len(self.requests), 6), 0)
        token, names, options = self.requests[row]
        if order in ("acquire", "try", "acquire again"):
            options = options | {"ttl": self.random.choice([TTL_MS, TTL_MS, 1, 9 * TTL_MS])}
            if self.random.random() < 0.5:
                options["ticket"] = 1
            return "acquire", names, token, options | ({"wait": 0} if order == "try" else {})
        if order == "renew":
            return order, names, token, {"ttl": self.random.choice([1, TTL_MS, 20 * TTL_MS])}
        if order == "lower":
            return order, names[0], token, {"weight": 1}
        if order == "resize":
            return order, names[0], self.random.choice([0, 1, 3]), {}
        if order == "revoke":
            return order, names[0], 2**52, {}
        verb, _, copies = order.partition(" with ")
        return verb, names, token, {"copies": bool(copies)} if verb == "release" else {}

    def new_request(self):
        """Return a token, its names, and its arguments that do not change."""
        token, names = (
            f"t{self.random.getrandbits(32)}",
            self.random.choice(["a", "a", "a", "b", "ab", "bc", "ca", "abc"]),
        )
        options = {
            "inbox": self.random.choice(["live"] * 5 + ["dead"]),
            "max_waiters": self.random.choice([100, 100, 3]),
        }
        if len(names) == 1:
            options |= {"weight": self.random.randint(1, self.limit), "limit": self.limit}
        return token, names, options

    def answer(self, side, verb, names, token, options):
        """Return the reply, and the messages that were sent."""
        if "ticket" in options:
            options = options | {"ticket": side.tickets.get(token, 0)}
        scripts = side.scripts(names)
        try:
            reply = getattr(scripts, verb)(token, **options)
        except redis.ResponseError as error:
            reply = [str(error)[:20]]
        if reply[0] == "queued":
            side.tickets[token] = scripts.tickets[token]
            # A short way has a lower bound of the time until the next lease ends.
            del reply[3:]
            if self.lost_a_key:
                reply[2] = 0  # a length that is too long may be noticed sooner or later
        return [*reply, *heard(self.pubsub)]

    def expire(self):
        """Sweep both sides, or ask no more for tokens that have expired: what is swept by the way is forgotten earlier."""
        engines = [engine for side in self.sides for engine in side.engines.values()]
        if self.random.random() < 0.5:
            for engine in engines:
                engine.revoke(0)
            heard(self.pubsub)
            return
        over = set()
        for stored in (engine.stored() for engine in engines):
            ends = [*stored.holders.items(), *stored.tombstones.items()]
            over |= {token for token, end_us in ends if end_us <= self.clock.now_us}
        self.requests = [request for request in self.requests if request[0] not in over]

    def check(self):
        short, general = (
            [unexpired(engine.stored(), self.clock.now_us) for engine in side.engines.values()] for side in self.sides
        )
        assert short == general


def unexpired(stored, now_us):
    """Leave out what has expired, since short ways do not sweep, and the tickets but for their order."""
    over = {token for token, end_us in stored.holders.items() if end_us <= now_us}
    return stored._replace(
        holders={token: end_us for token, end_us in stored.holders.items() if token not in over},
        tombstones={token: end_us for token, end_us in stored.tombstones.items() if end_us > now_us},
        records={token: record for token, record in stored.records.items() if token not in over},
        used=stored.used - sum(weight_of(stored.records[token]) for token in over if token in stored.records),
        queue=[*stored.queue],
    )


@pytest.mark.parametrize("block", [0, *more(*range(1, 15))])
def test_with_and_without_short_ways_a_walk_is_the_same(raw, clock, live, block):
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        raw.flushall()
        clock.now_us = NOW_US
        walk = Walk(clock, live, seed)
        for number in range(STEPS):
            try:
                walk.step()
                walk.check()
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}: {walk.latest}")
                raise
