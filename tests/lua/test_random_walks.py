"""Random walks through the scripts of one name.

After every step of a `Walk`, in which leases run out and keys may get lost, the state is recomputed from scratch and
compared. In a `Guided` walk time is moved by hand, so that a plain model of the line can foretell every reply.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from handfast._engine.script import load
from tests._support.helpers import WAIT_MS, Engine, eventually, slow_only

STEPS = 40
PARTS = ("holders", "queue", "tokens", "tombstones")
ORDERS = {
    "ask": 6,
    "try": 2,
    "release": 4,
    "cancel": 2,
    "renew": 2,
    "ask again": 3,
    "lower": 1.5,
    "resize": 0.7,
    "revoke": 0.4,
    "sleep": 2,
}


class Either(Engine):
    """The scripts of one name, and those for several names with only this one."""

    def several(self, verb, *argv):
        """Run a script for several names; its arguments in their order."""
        script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
        keys = [self.key(part) for part in PARTS]
        return self.client.execute_command("EVAL", script.source, len(keys), *keys, *argv)

    def ask(self, token, weight, limit, *, wait=WAIT_MS, inbox="live", bundle=False, **kwargs):
        if bundle:
            return self.several("acquire", token, 30_000, wait, 1000, f"{inbox} control:{token} me")
        self.limit = limit
        return self.acquire(token, weight=weight, wait=wait, inbox=inbox, **kwargs)

    def end(self, verb, token, *argv, bundle=False):
        """Release, cancel or renew."""
        return self.several(verb, token, *argv) if bundle else getattr(self, verb)(token, *argv)

    def lower(self, token, weight):
        return self.run("lower", token=token, weight=weight)

    def resize(self, limit):
        return self.run("resize", limit=limit)

    def look(self):
        """Everything at once: the reply of inspect, the holders with their deadlines, the line, the records, the TTLs."""
        pipe = self.client.pipeline()
        pipe.zrange(self.key("holders"), 0, -1, withscores=True)
        pipe.zrange(self.key("queue"), 0, -1)
        pipe.hgetall(self.key("tokens"))
        for part in PARTS:
            pipe.pttl(self.key(part))
        holders, queue, records, *ttls = pipe.execute()
        assert -1 not in ttls, f"a key has no TTL: {dict(zip(PARTS, ttls, strict=True))}"
        return self.inspect(), dict(holders), queue, records, dict(zip(PARTS, ttls, strict=True))


class Walk:
    """One name, and tokens with random weights and limits, some of whose inboxes nobody hears."""

    def __init__(self, raw, seed, *, losing_keys=False):
        self.random = random.Random(seed)
        self.engine = Either(raw, kind="semaphore")
        self.limit = self.random.randint(1, 5)
        self.disagreeing = self.random.random() < 0.4
        # A bundle is of locks, and locks are not resized.
        self.without = "resize" if self.random.random() < 0.5 else "bundle"
        self.set = 0
        self.weights = {}
        self.limits = {}
        self.inboxes = {}
        self.bundles = set()
        self.held = {}
        self.fence = 0
        self.losing_keys = losing_keys
        self.lost_a_key = False

    def new_token(self):
        token = f"t{len(self.weights)}"
        self.limits[token] = self.random.randint(1, 6) if self.disagreeing else self.limit
        self.weights[token] = self.random.randint(1, self.limits[token])
        self.inboxes[token] = "live" if self.random.random() < 0.8 else "dead"
        if self.without != "bundle" and self.random.random() < 0.2:
            self.bundles.add(token)
            self.limits[token] = self.weights[token] = 1
        return token

    def step(self):
        orders = ORDERS | ({"lose a key": 0.8} if self.losing_keys else {})
        orders.pop(self.without, None)
        order = self.random.choices(list(orders), list(orders.values()))[0]
        new = order in ("ask", "try") or not self.weights
        token = self.new_token() if new else self.random.choice(list(self.weights))
        if order == "ask again" and self.weights[token] > self.most(token):
            order = "cancel"
        bundle = token in self.bundles
        if order in ("ask", "try", "ask again"):
            return self.engine.ask(
                token,
                self.weights[token],
                self.limits[token],
                inbox=self.inboxes[token],
                bundle=bundle,
                wait=0 if order == "try" else self.random.choice([60_000, 60_000, 3]),
                **({} if bundle else {"ttl": self.random.choice([2, 5, 30_000, 30_000])}),
            )
        return self.other(order, token, bundle)

    def other(self, order, token, bundle):
        if order in ("release", "cancel"):
            return self.engine.end(order, token, bundle=bundle)
        if order == "renew":
            return self.engine.end("renew", token, self.random.choice([3, 30_000]), bundle=bundle)
        if order == "lower":
            weight = self.random.randint(1, self.weights[token])
            reply = self.engine.lower(token, weight)
            if reply[0] == "lowered":
                self.weights[token] = weight
            return reply
        if order == "resize":
            self.set = self.random.choice([0, 1, 2, 4, 7])
            return self.engine.resize(self.set)
        if order == "revoke":
            return self.engine.revoke(self.engine.inspect()[2])
        if order == "sleep":
            time.sleep(0.004)
        elif order == "lose a key":
            part = self.random.choice(PARTS)
            self.engine.client.delete(self.engine.key(part))
            self.set = 0 if part == "tokens" else self.set
            self.lost_a_key = True
        return [order]

    def most(self, token):
        return self.set or self.limits[token]

    def check(self, reply):
        state, holders, queue, records, ttls = self.engine.look()
        _, now_us, fence, limit, *_ = state
        assert limit == self.set
        self.nobody_got_too_much({token for token, deadline in holders.items() if deadline > now_us}, records)
        self.held = {token: self.fence_of(records[token]) for token in holders if token in records}
        if holders:
            assert ttls["holders"] * 1000 + 2000 > max(holders.values()) - now_us
        if self.lost_a_key:
            return
        assert fence >= self.fence
        assert reply[0] != "granted" or reply[1] <= fence
        self.fence = fence
        assert not set(holders) & set(queue)
        assert set(records) - {"used", "fence", "limit"} == set(holders) | set(queue)
        out = sum(self.weights[token] for token in holders)
        assert all(int(records[token].split()[0]) == self.weights[token] for token in holders)
        if holders:
            assert int(records["used"]) == out
        if queue and reply[0] in ("released", "cancelled", "revoked", "lowered", "resized") and not reply[-1]:
            head = queue[0]
            possible = self.weights[head] <= self.most(head) or out >= self.most(head)
            assert possible, "the head of the line is impossible and was not told so"
            fits = out + self.weights[head] <= self.most(head)
            assert not fits or head in self.bundles or self.lone(holders), "the head of the line fits and waits"

    def lone(self, holders):
        """Whether somebody who counts by a limit of 1 got in: nobody looks who may be next then."""
        return self.disagreeing and any(self.most(token) == 1 for token in holders)

    @staticmethod
    def fence_of(record):
        return int(record.split()[4])

    def nobody_got_too_much(self, live, records):
        """Each of those let in by this step found enough free, by its own limit and in the order of the fences."""
        fences = {token: self.fence_of(records[token]) for token in live if token in records}
        # One whose record got lost and that asks again stands in line as well, with a record whose fence is 0.
        new = sorted((fence, token) for token, fence in fences.items() if fence and self.held.get(token) != fence)
        out = sum(self.weights[token] for token in live) - sum(self.weights[token] for _, token in new)
        for _, token in new:
            out += self.weights[token]
            assert out <= self.most(token), f"{token} is one too many"


@pytest.fixture
def ears(raw):
    pubsub = raw.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("live")
    eventually(lambda: raw.pubsub_numsub("live")[0][1])
    yield pubsub
    pubsub.close()


@pytest.mark.parametrize("block", [0, *slow_only(1, 2, 3)])
def test_a_walk_through_the_scripts_keeps_the_books(raw, ears, block):
    for seed in range(block * 6, block * 6 + 6):
        raw.flushall()
        walk = Walk(raw, seed)
        for _ in range(STEPS):
            walk.check(walk.step())


@pytest.mark.parametrize("block", [0, *slow_only(1, 2, 3)])
def test_a_walk_on_which_keys_get_lost_never_grants_too_much(raw, ears, block):
    for seed in range(1000 + block * 6, 1000 + block * 6 + 6):
        raw.flushall()
        walk = Walk(raw, seed, losing_keys=True)
        for _ in range(STEPS):
            walk.check(walk.step())


# --- with a model


@dataclass
class Request:
    weight: int
    limit: int
    bundle: bool = False
    rung: bool = False
    """For a bundle: that it may come and take what is free."""
    over: bool = False
    """For a holder: that its time has come, and nobody has looked yet."""
    lapsed: bool = False
    deaf: bool = False
    """For a waiter whose process is gone: how the server may know, by its wait-lease or by its inbox."""


@dataclass
class Model:
    """What a line is: who has how much, and who waits."""

    holders: dict[str, Request] = field(default_factory=dict)
    line: list[str] = field(default_factory=list)
    known: dict[str, Request] = field(default_factory=dict)
    past: set[str] = field(default_factory=set)
    """Who was released or cancelled, or was found lost when it was to be released."""
    lost: set[str] = field(default_factory=set)
    """Those who were found lost."""
    wakes: list[tuple[str, bool]] = field(default_factory=list)
    """Who was rung, and whether with a grant."""
    set: int = 0

    @property
    def out(self):
        return sum(request.weight for request in self.holders.values())

    def most(self, token):
        return self.set or self.known[token].limit

    def fits(self, token):
        return self.out + self.known[token].weight <= self.most(token)

    def live(self, token):
        return token in self.holders and not self.holders[token].over

    def sweep(self):
        self.holders = {token: request for token, request in self.holders.items() if not request.over}

    def grant(self, token):
        if token in self.line:
            self.line.remove(token)
        self.known[token].over = self.known[token].rung = False
        self.holders[token] = self.known[token]
        return "granted"

    def serve(self, me=None, *, may_enter=True):
        """In the order of arrival, until one has to wait. ``me`` needs no message, and may be one that only looks."""
        while self.line:
            head = self.line[0]
            request, most = self.known[head], self.most(head)
            if head == me and not may_enter:
                return
            in_the_way = head != me and ((me and may_enter) or self.out < most)
            if request.lapsed or (request.deaf and (self.fits(head) or request.weight > most or in_the_way)):
                self.line.remove(head)
            elif request.weight > most:
                self.wakes.append((head, False))
                self.line.remove(head)
            elif not self.fits(head):
                return
            elif request.bundle:
                if not request.rung:
                    self.wakes.append((head, False))
                request.rung = True
                return
            else:
                self.grant(head)
                if head != me:
                    self.wakes.append((head, True))
                if self.out >= most and (self.set or most == 1):
                    return

    def ask(self, token, *, waits):
        if token in self.past:
            return "finished"
        if self.live(token):
            return "granted"
        self.holders.pop(token, None)
        self.sweep()
        return self._ask_bundle(token, waits) if self.known[token].bundle else self._ask_one(token, waits)

    def _ask_one(self, token, waits):
        if self.known[token].weight > self.most(token):
            if token in self.line:
                self.line.remove(token)
                self.serve()
            return "exceeds_limit"
        if not self.line and self.fits(token):
            return self.grant(token)
        if not waits and not self.fits(token):
            return "busy"
        if token not in self.line:
            self.line.append(token)
        if self.out < self.most(token):
            self.serve(token)
        return self._outcome(token, waits)

    def _ask_bundle(self, token, waits):
        if token not in self.line:
            self.line.append(token)
        self.known[token].rung = False
        self.serve(token, may_enter=False)
        if self.line[0] == token and not self.holders:
            return self.grant(token)
        return self._outcome(token, waits)

    def _outcome(self, token, waits):
        if token in self.holders:
            return "granted"
        if waits:
            return "queued"
        self.line.remove(token)
        return "busy"

    def release(self, token):
        if token not in self.holders and (token not in self.past or token in self.lost):
            self.past.add(token)
            self.lost.add(token)
            if token in self.line:
                self.line.remove(token)
                self._go_on("lost")
            return "lost"
        if self.holders.pop(token, None):
            self.past.add(token)
        return self._go_on("released")

    def cancel(self, token):
        self.holders.pop(token, None)
        if token in self.line:
            self.line.remove(token)
        self.past.add(token)
        self.lost.discard(token)
        return self._go_on("cancelled")

    def renew(self, token):
        return "renewed" if self.live(token) else "lost"

    def lower(self, token, weight):
        if not self.live(token):
            return "lost"
        self.holders[token].weight = min(weight, self.holders[token].weight)
        return self._go_on("lowered")

    def resize(self, limit):
        self.set = limit
        return self._go_on("resized")

    def revoke(self, tokens):
        self.sweep()
        for token in tokens:
            self.holders.pop(token, None)
        return self._go_on("revoked")

    def _go_on(self, tag):
        self.sweep()
        self.serve()
        return tag


GUIDED = {
    "ask": 7,
    "try": 2,
    "ask again": 4,
    "release": 4,
    "cancel": 1.5,
    "renew": 1,
    "lower": 2,
    "resize": 1,
    "revoke": 0.4,
    "lease ends": 1.5,
    "dies": 1.5,
}


class Guided:
    """One name, walked through together with its model."""

    def __init__(self, raw, seed, *, disagreeing, bundles):
        self.random = random.Random(seed)
        self.engine = Either(raw, kind="semaphore")
        self.model = Model()
        self.limit = self.random.choice([1, 2, 4, 1_000_000_000])
        self.disagreeing = disagreeing
        self.bundles = bundles
        self.fences = {}
        self.latest = 0
        self.rings = []

    def new_token(self):
        token = f"t{len(self.model.known)}"
        limit = self.random.randint(1, 6) if self.disagreeing else self.limit
        weight = self.random.choice([1, 1, 2, 3, limit])
        self.model.known[token] = Request(min(weight, limit), limit)
        if self.bundles and self.random.random() < 0.3:
            self.model.known[token] = Request(1, 1, bundle=True)
        return token

    def step(self):
        model = self.model
        orders = {order: odds for order, odds in GUIDED.items() if order != "resize" or not self.bundles}
        order = self.random.choices(list(orders), list(orders.values()))[0]
        able = [token for token in [*list(model.known)[-8:], *model.holders, *model.line] if not self.gone(token)]
        token = self.new_token() if order in ("ask", "try") or not able else self.random.choice(able)
        request = model.known[token]
        if order == "ask again" and request.weight > model.most(token):
            order = "cancel"
        if order in ("ask", "try", "ask again"):
            waits = order != "try"
            reply = self.engine.ask(
                token, request.weight, request.limit, wait=WAIT_MS if waits else 0, bundle=request.bundle
            )
            return token, reply, model.ask(token, waits=waits)
        return token, *self.other(order, token, request)

    def other(self, order, token, request):
        engine, model = self.engine, self.model
        if order == "renew":
            return engine.end("renew", token, 40_000, bundle=request.bundle), model.renew(token)
        if order in ("release", "cancel"):
            return engine.end(order, token, bundle=request.bundle), getattr(model, order)(token)
        if order == "lower":
            weight = self.random.randint(1, request.weight)
            return engine.lower(token, weight), model.lower(token, weight)
        if order == "resize":
            limit = self.random.choice([0, 1, 2, 5, 1_000_000_000])
            return engine.resize(limit), model.resize(limit)
        if order == "revoke":
            up_to = self.random.choice([0, self.latest, self.fences.get(token, 0)])
            doomed = [token for token in model.holders if self.fences[token] <= up_to and model.live(token)]
            reply = engine.revoke(up_to)
            assert reply[1] == len(doomed)
            return reply, model.revoke(doomed)
        return self.misfortune(order, token, request)

    def misfortune(self, order, token, request):
        """What happens without a script: a lease ends, or the process of a waiter does."""
        engine, model = self.engine, self.model
        if order == "lease ends" and token in model.holders:
            engine.client.zadd(engine.key("holders"), {token: 1})
            model.holders[token].over = True
        elif order == "dies" and token in model.line:
            words = engine.client.hget(engine.key("tokens"), token).split(" ")
            if self.random.random() < 0.3:
                words[3], request.lapsed = "1", True
            else:
                words[6], request.deaf = "nobody", True
            engine.client.hset(engine.key("tokens"), token, " ".join(words))
        return [order], order

    def gone(self, token):
        """Whether its process is: then it says nothing any more."""
        return self.model.known[token].deaf or self.model.known[token].lapsed

    def check(self, token, reply, foretold):
        model = self.model
        state, holders, queue, records, _ = self.engine.look()
        assert reply[0] == foretold
        assert set(holders) == set(model.holders)
        assert queue == model.line
        assert set(records) - {"used", "fence", "limit"} == set(holders) | set(queue)
        assert {one: int(records[one].split()[0]) for one in holders} == {
            one: request.weight for one, request in model.holders.items()
        }
        assert not holders or int(records["used"]) == model.out
        live = [request.weight for request in model.holders.values() if not request.over]
        assert state[3:7] == [model.set, sum(live), len(live), len(queue)]
        if reply[0] == "queued" and not model.known[token].bundle:
            assert reply[2] == queue.index(token)
        granted = sorted((int(records[one].split()[4]), one) for one in holders)
        for fence, one in granted:
            if self.fences.get(one) != fence:
                assert fence > self.latest, "a fence that did not grow"
                self.fences[one] = self.latest = fence
        assert reply[0] != "granted" or reply[1] == self.fences[token]

    def hear(self, ears):
        """Whether the wakes that rang are those foretold, in that order."""
        rings = []
        while len(rings) < len(self.model.wakes):
            message = eventually(lambda: ears.get_message(timeout=1))
            _, token, fence, *_ = message["data"].split()
            rings.append((token, fence != "0"))
        assert rings == self.model.wakes
        assert ears.get_message() is None


@pytest.mark.parametrize("bundles", [False, True], ids=["resized", "bundles"])
@pytest.mark.parametrize("disagreeing", [*slow_only(False), True], ids=["agreeing", "disagreeing"])
def test_a_walk_is_what_a_plain_model_foretells(raw, ears, disagreeing, bundles):
    for seed in range(10):
        raw.flushall()
        walk = Guided(raw, seed, disagreeing=disagreeing, bundles=bundles)
        for _ in range(STEPS):
            walk.check(*walk.step())
        walk.hear(ears)
