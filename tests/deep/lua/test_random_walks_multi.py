"""Random walks through the scripts of four names: requests for overlapping sets of them, and for single names.

After each step everything that the server has of the names is checked. At the end all live waiters are served.
"""

from __future__ import annotations

import math
import random
import time

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from tests._support.engine import TTL_MS, WAIT_MS, Engine, Several, fence_of, wait_until_of
from tests._support.helpers import more

NAMES = "abcd"
KEYS = [KeySet("hf", "lock", name).key(part) for name in NAMES for part in PARTS]
STEPS = 45
CLAIM_WINDOW_US = 2_000_000
ODDS = {
    "acquire": 6,
    "try": 2,
    "release": 4,
    "cancel": 2,
    "renew": 2,
    "acquire again": 5,
    "revoke": 0.7,
    "sleep": 1.5,
}
ACQUIRING = ("acquire", "try", "acquire again")


class Token:
    """One request, for one name or for several."""

    def __init__(self, raw, text, names, *, single, alive):
        self.text = text
        self.names = names
        self.alive = alive
        self.single = single
        self.scripts = Engine(raw, names[0]) if single else Several(raw, names)
        self.finished = False
        self.copies = True
        """Whether a copy of a request may still arrive. If not, a release is not remembered."""

    def acquire(self, ttl, wait):
        options = {"claim": min(ttl, 2000)} if self.single else {}
        return self.scripts.acquire(self.text, inbox="live" if self.alive else "dead", ttl=ttl, wait=wait, **options)


class Look:
    """Everything that the server has of the names at one instant."""

    def __init__(self, raw, engines):
        pipe = raw.pipeline()  # MULTI: all of it at the same time
        pipe.time()
        for key in KEYS:
            pipe.pttl(key)
        (seconds, micros), *self.ttls = pipe.execute()
        self.now_us = seconds * 10**6 + micros
        stored = {name: engine.stored() for name, engine in engines.items()}
        self.deadlines = {name: one.holders for name, one in stored.items()}
        self.tickets = {name: one.queue for name, one in stored.items()}
        self.queues = {name: [*tickets] for name, tickets in self.tickets.items()}
        self.records = {name: one.records for name, one in stored.items()}

    def holders(self, name):
        """Return the tokens whose lease has not expired."""
        return [token for token, deadline in self.deadlines[name].items() if deadline > self.now_us]

    def held_by(self, token):
        return {name for name in NAMES if token in self.holders(name)}

    def places_of(self, token):
        return {name for name, queue in self.queues.items() if token in queue}

    def wait_until_us(self, name, token):
        return wait_until_of(self.records[name][token])

    def fences(self, token, names):
        return {fence_of(self.records[name][token]) for name in names if token in self.records[name]}


class Walk:
    """The names and their tokens. Some have an inbox without a subscriber, and some never ask again."""

    def __init__(self, raw, seed, *, losing_keys=False):
        self.raw = raw
        self.random = random.Random(seed)
        self.tokens = {}
        self.fences = dict.fromkeys(NAMES, 0)
        self.granted = {}
        self.losing_keys = losing_keys
        self.lost_a_key = False
        self.engines = {name: Engine(raw, name) for name in NAMES}
        self.look = Look(raw, self.engines)

    def step(self):
        odds = ODDS | ({"lose a key": 0.8} if self.losing_keys else {})
        order = self.random.choices(list(odds), list(odds.values()))[0]
        new = order in ("acquire", "try") or not self.tokens
        token = self.new_token() if new else self.random.choice(list(self.tokens.values()))
        if order in ACQUIRING and not token.copies:
            order = "cancel"
        reply = self.perform(order, token)
        self.check(order, token, reply)

    def new_token(self):
        names = self.random.sample(NAMES, self.random.choice((1, 1, 2, 2, 2, 3)))
        single = len(names) == 1 and self.random.random() < 0.7
        text = f"t{len(self.tokens)}"
        self.tokens[text] = Token(self.raw, text, names, single=single, alive=self.random.random() < 0.8)
        return self.tokens[text]

    def perform(self, order, token):
        if order in ACQUIRING:
            ttl = self.random.choice([2, 5, TTL_MS, TTL_MS])
            wait = self.random.choice([WAIT_MS, WAIT_MS, WAIT_MS, 3])
            return token.acquire(ttl, 0 if order == "try" else wait)
        if order in ("release", "cancel"):
            token.finished = True
            if order == "cancel":
                return token.scripts.cancel(token.text)
            token.copies = token.copies and self.random.random() < 0.5
            return token.scripts.release(token.text, copies=token.copies)
        if order == "renew":
            return token.scripts.renew(token.text, self.random.choice([3, TTL_MS]))
        if order == "revoke":
            engine = self.engines[self.random.choice(token.names)]
            return engine.revoke(engine.inspect()[2])
        if order == "sleep":
            time.sleep(0.004)
        elif order == "lose a key":
            self.engines[self.random.choice(NAMES)].lose(self.random.choice(PARTS))
            self.lost_a_key = True
        return [order]

    def check(self, order, token, reply):
        before, self.look = self.look, Look(self.raw, self.engines)
        look = self.look
        assert -1 not in look.ttls, "a key has no TTL"
        for name in NAMES:
            assert len(look.holders(name)) <= 1, "two hold one lock"
            self.check_fence(name)
            if not self.lost_a_key:
                assert not set(look.deadlines[name]) & set(look.queues[name])
                assert set(look.records[name]) == {*look.deadlines[name], *look.queues[name]}
        for other in self.tokens.values():
            self.check_token(other, before, asked=other is token and order in ACQUIRING)
        if order in ACQUIRING:
            self.check_reply(token, reply)
        if order in ("release", "cancel") and reply[0] in ("released", "cancelled") and not self.lost_a_key:
            for name in token.names:
                self.check_head(name)

    def check_fence(self, name):
        """Fences grow with every grant."""
        for holder in self.look.deadlines[name]:
            for fence in self.look.fences(holder, name):
                if self.granted.get((name, holder)) != fence:
                    assert fence > self.fences[name]
                    self.granted[name, holder] = self.fences[name] = fence

    def check_token(self, token, before, *, asked):
        look = self.look
        held, places = look.held_by(token.text), look.places_of(token.text)
        assert not held or not places, "it holds while it waits"
        assert len(look.fences(token.text, held)) <= 1, "its names have different fences"
        if held and before.held_by(token.text) != held and asked:
            assert held == set(token.names), "it was granted a part"
            self.check_turn(token, before)
        if not asked:
            assert places <= before.places_of(token.text), "it entered a queue without asking"
        if self.lost_a_key:
            return
        assert not token.finished or not held | places, "it came back"
        for name in before.places_of(token.text) - places:
            if token.text in look.deadlines[name]:  # granted, and perhaps expired already
                continue
            lapsed = before.wait_until_us(name, token.text) < look.now_us
            assert token.finished or asked or not token.alive or lapsed, "a live waiter was dropped"

    def check_turn(self, token, before):
        """Assert that the new holder has overtaken no live waiter."""
        ticket = max((tickets.get(token.text, 0) for tickets in before.tickets.values()), default=0) or math.inf
        for name in token.names:
            for other in (other for other, its_ticket in before.tickets[name].items() if its_ticket < ticket):
                if other != token.text and self.tokens[other].alive and other in before.records[name]:
                    lapsed = before.wait_until_us(name, other) < self.look.now_us
                    assert lapsed or other not in self.look.queues[name], "it overtook a live waiter"

    def check_reply(self, token, reply):
        held, places = self.look.held_by(token.text), self.look.places_of(token.text)
        if token.finished and not self.lost_a_key:
            assert reply == ["finished"]
        if reply[0] == "granted" and (reply[2] > 5_000_000 or held):
            assert held == set(token.names)
            assert self.look.fences(token.text, held) == {reply[1]}
        elif reply[0] == "queued":
            assert places == set(token.names)
        elif reply[0] == "busy":
            assert not places
            assert not held

    def check_head(self, name):
        """Assert that the head of a free name waits for several names and was woken."""
        look = self.look
        if look.queues[name] and not look.deadlines[name]:
            head = look.queues[name][0]
            assert look.records[name][head].split()[4] == "0", "the head fits and waits"
            assert look.wait_until_us(name, head) <= look.now_us + CLAIM_WINDOW_US, (
                "the head of a free name was not woken"
            )

    def end(self, *, freezing=False):
        """Let all live waiters ask again until they are served, but for three that freeze."""
        waiting = [token for token in self.tokens.values() if not token.finished and token.alive]
        frozen = self.random.sample(waiting, min(3, len(waiting))) if freezing else []
        for token in self.tokens.values():
            if token.finished:
                token.scripts.cancel(token.text)  # without its tombstone it may have come back
            elif token.alive and token not in frozen and self.look.held_by(token.text):
                token.scripts.release(token.text)
        for token in self.tokens.values():  # a grant whose holder is gone would last for its ttl
            for name in self.look.held_by(token.text) if token in frozen or not token.alive else ():
                self.engines[name].revoke(2**53)
        waiting = [
            token for token in waiting if token not in frozen and token.acquire(TTL_MS, WAIT_MS)[0] != "finished"
        ]
        until = time.monotonic() + (10 if freezing else 0)
        rounds = 0
        while waiting:
            rounds += 1
            served = []
            for token in self.random.sample(waiting, len(waiting)):
                reply = token.acquire(TTL_MS, WAIT_MS)
                if reply[0] == "granted":
                    assert token.scripts.release(token.text)[0] == "released"
                    served.append(token)
                else:
                    assert reply[0] == "queued"
            waiting = [token for token in waiting if token not in served]
            assert served or time.monotonic() < until or rounds < 4, (
                f"no waiter is served: {vars(Look(self.raw, self.engines))}"
            )
            if not served and freezing:
                time.sleep(0.1)


def walk(raw, seeds, steps=STEPS, *, freezing=False, **options):
    for seed in seeds:
        raw.flushall()
        walk = Walk(raw, seed, **options)
        for number in range(steps):
            try:
                walk.step()
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}")
                raise
        walk.end(freezing=freezing)


@pytest.mark.parametrize("block", [0, *more(1)])
@pytest.mark.parametrize("losing_keys", [*more(False), True])
def test_a_walk_grants_no_lock_twice_and_serves_all_live_waiters(raw, live, losing_keys, block):
    first = block * 10 + 1000 * losing_keys
    walk(raw, range(first, first + 10), losing_keys=losing_keys)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("losing_keys", [False, True])
def test_long_walks(raw, live, losing_keys):
    walk(raw, range(10_000, 10_050), 120, losing_keys=losing_keys)


@pytest.mark.timeout(300)
def test_long_walks_after_which_some_waiters_freeze(raw, live):
    walk(raw, range(20_000, 20_006), 80, freezing=True)
