"""Random walks through the scripts: after every step the state of the name is recomputed from scratch and compared."""

from __future__ import annotations

import random
import time

import pytest

from tests.support import Engine, eventually

STEPS = 40
ORDERS = {"ask": 6, "try": 2, "release": 4, "cancel": 2, "renew": 2, "ask again": 3, "revoke": 0.4, "sleep": 2}


class Walk:
    """One name with a random limit, and tokens with random weights, some of whose inboxes nobody hears."""

    def __init__(self, raw, seed, *, losing_keys=False):
        self.random = random.Random(seed)
        self.engine = Engine(raw, limit=self.random.randint(1, 5), kind="semaphore")
        self.weights = {}
        self.inboxes = {}
        self.fence = 0
        self.losing_keys = losing_keys
        self.lost_a_key = False

    def step(self):
        orders = ORDERS | ({"lose a key": 0.8} if self.losing_keys else {})
        order = self.random.choices(list(orders), list(orders.values()))[0]
        if order in ("ask", "try") or not self.weights:
            token = f"t{len(self.weights)}"
            self.weights[token] = self.random.randint(1, self.engine.limit)
            self.inboxes[token] = "live" if self.random.random() < 0.8 else "dead"
        else:
            token = self.random.choice(list(self.weights))
        if order in ("ask", "try", "ask again"):
            return self.engine.acquire(
                token,
                weight=self.weights[token],
                inbox=self.inboxes[token],
                ttl=self.random.choice([2, 5, 30_000, 30_000]),
                claim=self.random.choice([2, 30_000]),
                wait=0 if order == "try" else self.random.choice([60_000, 60_000, 3]),
            )
        if order == "release":
            return self.engine.release(token)
        if order == "cancel":
            return self.engine.cancel(token)
        if order == "renew":
            return self.engine.renew(token, self.random.choice([3, 30_000]))
        if order == "revoke":
            return self.engine.revoke(self.engine.inspect()[2])
        if order == "sleep":
            time.sleep(0.004)
        elif order == "lose a key":
            self.engine.client.delete(self.engine.key(self.random.choice(["holders", "queue", "tokens", "past"])))
            self.lost_a_key = True
        return [order]

    def check(self, reply):
        engine, client = self.engine, self.engine.client
        _, now_us, fence, *_ = engine.inspect()
        holders = dict(client.zrange(engine.key("holders"), 0, -1, withscores=True))
        queue = engine.queue()
        records = client.hgetall(engine.key("tokens"))
        out = sum(self.weights[token] for token in holders)
        live = sum(self.weights[token] for token, deadline in holders.items() if deadline > now_us)
        assert live <= engine.limit
        for part in ("holders", "queue", "tokens", "past"):
            assert client.pttl(engine.key(part)) != -1, f"{part} has no TTL"
        if holders:
            assert client.pttl(engine.key("holders")) * 1000 + 2000 > max(holders.values()) - now_us
        if self.lost_a_key:
            return
        assert fence >= self.fence
        assert reply[0] != "granted" or reply[1] <= fence
        self.fence = fence
        assert not set(holders) & set(queue)
        assert set(records) - {"used", "fence"} == set(holders) | set(queue)
        if holders:
            assert int(records["used"]) == out
        if queue and reply[0] in ("released", "cancelled", "revoked") and not reply[-1]:
            assert out + self.weights[queue[0]] > engine.limit, "the head of the line fits and waits"


@pytest.fixture
def ears(raw):
    pubsub = raw.pubsub()
    pubsub.subscribe("live")
    eventually(lambda: raw.pubsub_numsub("live")[0][1])
    yield
    pubsub.close()


@pytest.mark.parametrize("block", range(4))
def test_a_walk_through_the_scripts_keeps_the_books(raw, ears, block):
    for seed in range(block * 25, block * 25 + 25):
        raw.flushall()
        walk = Walk(raw, seed)
        for _ in range(STEPS):
            walk.check(walk.step())


@pytest.mark.parametrize("block", range(4))
def test_a_walk_on_which_keys_get_lost_never_grants_too_much(raw, ears, block):
    for seed in range(1000 + block * 25, 1000 + block * 25 + 25):
        raw.flushall()
        walk = Walk(raw, seed, losing_keys=True)
        for _ in range(STEPS):
            walk.check(walk.step())
