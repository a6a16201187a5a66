"""Random walks through the scripts of one name: leases expire, keys get lost, and after each step all counts are recomputed.

Those with a model are in test_model_walks.py, those of several names in test_random_walks_multi.py.
"""

from __future__ import annotations

import random
import time

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import Mixed, fence_of, weight_of
from tests._support.helpers import more

STEPS = 40
SEEDS = 6
ODDS = {
    "acquire": 6,
    "try": 2,
    "release": 4,
    "cancel": 2,
    "renew": 2,
    "acquire again": 3,
    "lower": 1.5,
    "resize": 0.7,
    "revoke": 0.4,
    "sleep": 2,
}


class Walk:
    """One name, and tokens with random weights and limits. Some have an inbox without a subscriber."""

    def __init__(self, raw, seed, *, losing_keys=False):
        self.random = random.Random(seed)
        self.engine = Mixed(raw)
        self.limit = self.random.randint(1, 5)
        self.limits_differ = self.random.random() < 0.4
        # Requests for several names are of locks, and locks are not resized.
        self.without = "resize" if self.random.random() < 0.5 else "multi"
        self.set_limit = 0
        self.weights = {}
        self.limits = {}
        self.inboxes = {}
        self.multi = set()
        self.held = {}
        self.fence = 0
        self.losing_keys = losing_keys
        self.lost_a_key = False

    def new_token(self):
        token = f"t{len(self.weights)}"
        self.limits[token] = self.random.randint(1, 6) if self.limits_differ else self.limit
        self.weights[token] = self.random.randint(1, self.limits[token])
        self.inboxes[token] = "live" if self.random.random() < 0.8 else "dead"
        if self.without != "multi" and self.random.random() < 0.2:
            self.multi.add(token)
            self.limits[token] = self.weights[token] = 1
        return token

    def step(self):
        odds = ODDS | ({"lose a key": 0.8} if self.losing_keys else {})
        odds.pop(self.without, None)
        order = self.random.choices(list(odds), list(odds.values()))[0]
        new = order in ("acquire", "try") or not self.weights
        token = self.new_token() if new else self.random.choice(list(self.weights))
        if order == "acquire again" and self.weights[token] > self.limit_of(token):
            order = "cancel"
        if order in ("acquire", "try", "acquire again"):
            multi = token in self.multi
            return self.engine.request(
                token,
                self.weights[token],
                self.limits[token],
                multi=multi,
                inbox=self.inboxes[token],
                wait=0 if order == "try" else self.random.choice([60_000, 60_000, 3]),
                ttl=30_000 if multi else self.random.choice([2, 5, 30_000, 30_000]),
            )
        return self.other(order, token)

    def other(self, order, token):
        if order in ("release", "cancel"):
            return getattr(self.engine, order)(token)
        if order == "renew":
            return self.engine.renew(token, self.random.choice([3, 30_000]))
        if order == "lower":
            weight = self.random.randint(1, self.weights[token])
            reply = self.engine.lower(token, weight)
            if reply[0] == "lowered":
                self.weights[token] = weight
            return reply
        if order == "resize":
            self.set_limit = self.random.choice([0, 1, 2, 4, 7])
            return self.engine.resize(self.set_limit)
        if order == "revoke":
            return self.engine.revoke(self.engine.inspect()[2])
        if order == "sleep":
            time.sleep(0.004)
        elif order == "lose a key":
            part = self.random.choice(PARTS)
            self.engine.lose(part)
            self.set_limit = 0 if part == "state" else self.set_limit
            self.lost_a_key = True
        return [order]

    def limit_of(self, token):
        return self.set_limit or self.limits[token]

    def check(self, reply):
        state, stored, ttls = self.engine.look()
        holders, queue, records = stored.holders, [*stored.queue], stored.records
        _, now_us, fence, limit, *_ = state
        assert limit == self.set_limit
        self.check_permits({token for token, deadline in holders.items() if deadline > now_us}, records)
        self.held = {token: fence_of(records[token]) for token in holders if token in records}
        if holders:
            assert ttls["state"] * 1000 + 2000 > max(holders.values()) - now_us or self.lost_a_key
        if self.lost_a_key:
            return
        assert fence >= self.fence
        assert reply[0] != "granted" or reply[1] <= fence
        self.fence = fence
        assert not set(holders) & set(queue)
        assert set(records) == set(holders) | set(queue)
        assert all(weight_of(records[token]) == self.weights[token] for token in holders)
        out = sum(self.weights[token] for token in holders)
        assert stored.used == out
        if queue and reply[0] in ("released", "cancelled", "revoked", "lowered", "resized") and not reply[-1]:
            head = queue[0]
            possible = self.weights[head] <= self.limit_of(head) or out >= self.limit_of(head)
            assert possible, "the head wants more than the limit and was not woken"
            fits = out + self.weights[head] <= self.limit_of(head)
            assert not fits or head in self.multi or self.has_lock_like_holder(holders), "the head fits and waits"

    def has_lock_like_holder(self, holders):
        """Return whether a request with a limit of 1 was granted: the scripts do not look at the next waiter then."""
        return self.limits_differ and any(self.limit_of(token) == 1 for token in holders)

    def check_permits(self, live, records):
        """Assert that each new holder, in the order of the fences, found enough permits free by its own limit."""
        fences = {token: fence_of(records[token]) for token in live if token in records}
        new = sorted((fence, token) for token, fence in fences.items() if self.held.get(token) != fence)
        out = sum(self.weights[token] for token in live) - sum(self.weights[token] for _, token in new)
        for _, token in new:
            out += self.weights[token]
            assert out <= self.limit_of(token), f"{token} is one too many"


@pytest.mark.parametrize("block", [0, *more(1, 2, 3)])
@pytest.mark.parametrize("losing_keys", [False, True])
def test_a_walk_grants_no_permit_too_many_and_keeps_all_counts(raw, live, losing_keys, block):
    first = block * SEEDS + 1000 * losing_keys
    for seed in range(first, first + SEEDS):
        raw.flushall()
        walk = Walk(raw, seed, losing_keys=losing_keys)
        for number in range(STEPS):
            try:
                walk.check(walk.step())
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}")
                raise
