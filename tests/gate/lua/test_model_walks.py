"""Random walks through the scripts of one name together with a model of its queue, which foretells every reply and message.

No lease expires by itself: tests end leases and waiters.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from handfast._kinds import MAX_PERMITS
from tests._support.engine import WAIT_MS, Mixed, fence_of, heard, hget, weight_of
from tests._support.helpers import more

STEPS = 40
SEEDS = 10


@dataclass
class Request:
    weight: int
    limit: int
    multi: bool = False
    woken: bool = False
    """A waiter for several names: it was woken to take what is free."""
    expired: bool = False
    """A holder: its lease has expired and was not swept yet."""
    lapsed: bool = False
    dead: bool = False
    """A waiter whose process is gone: what the server knows of it, by its wait-lease or by its inbox."""


@dataclass
class Model:
    """Who holds how many permits, and who waits."""

    holders: dict[str, Request] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    known: dict[str, Request] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    """Tokens with a tombstone."""
    lost: set[str] = field(default_factory=set)
    """Tokens whose tombstone says that the lease was lost."""
    first: str = ""
    """The holder in the state."""
    given_up: str = ""
    """A token that stays there after its release until the next grant."""
    messages: list[tuple[str, bool]] = field(default_factory=list)
    """Tokens that were sent a message, and whether with a grant."""
    set_limit: int = 0

    @property
    def out(self):
        return sum(request.weight for request in self.holders.values())

    def limit_of(self, token):
        return self.set_limit or self.known[token].limit

    def fits(self, token):
        return self.out + self.known[token].weight <= self.limit_of(token)

    def live(self, token):
        return token in self.holders and not self.holders[token].expired

    def sweep(self):
        self.holders = {token: request for token, request in self.holders.items() if not request.expired}

    def grant(self, token):
        if token in self.queue:
            self.queue.remove(token)
        self.known[token].expired = self.known[token].woken = False
        if self.first not in self.holders:
            self.first, self.given_up = token, ""
        self.holders[token] = self.known[token]
        return "granted"

    def drop(self, token):
        """Take a lease away."""
        if self.holders.pop(token, None) and token == self.first:
            self.first, self.given_up = "", token

    def serve(self, me=None, *, may_enter=True):
        """Serve the queue until its head has to wait.

        The caller, ``me``, needs no message, and may be there only to look.
        """
        while self.queue:
            head = self.queue[0]
            request, limit = self.known[head], self.limit_of(head)
            if head == me and not may_enter:
                return
            in_the_way = head != me and ((me and may_enter) or self.out < limit)
            if request.lapsed or (request.dead and (self.fits(head) or request.weight > limit or in_the_way)):
                self.queue.remove(head)
            elif request.weight > limit:
                self.messages.append((head, False))
                self.queue.remove(head)
            elif not self.fits(head):
                return
            elif request.multi:
                if not request.woken and not me:  # the head has asked lately, so another waiter does not wake it
                    self.messages.append((head, False))
                    request.woken = True
                return
            else:
                self.grant(head)
                if head != me:
                    self.messages.append((head, True))
                if self.out >= limit and (self.set_limit or limit == 1):
                    return

    def acquire(self, token, *, waits):
        if token in self.finished:
            return "finished"
        if self.live(token):
            return "granted"
        self.drop(token)
        self.sweep()
        return self._acquire_multi(token, waits) if self.known[token].multi else self._acquire_one(token, waits)

    def _acquire_one(self, token, waits):
        if self.known[token].weight > self.limit_of(token):
            if token in self.queue:
                self.queue.remove(token)
                self.serve()
            return "exceeds_limit"
        if not self.queue and self.fits(token):
            return self.grant(token)
        if not waits and not self.fits(token):
            return "busy"
        self._enter(token)
        if self.out < self.limit_of(token):
            self.serve(token)
        return self._outcome(token, waits)

    def _acquire_multi(self, token, waits):
        self._enter(token)
        self.known[token].woken = False
        self.serve(token, may_enter=False)
        if self.queue[0] == token and not self.holders:
            return self.grant(token)
        return self._outcome(token, waits)

    def _enter(self, token):
        if token not in self.queue:
            self.queue.append(token)
        if token == self.given_up:
            self.given_up = ""

    def _outcome(self, token, waits):
        if token in self.holders:
            return "granted"
        if waits:
            return "queued"
        self.queue.remove(token)
        return "busy"

    def release(self, token):
        if token in self.holders or token == self.given_up or token in self.finished - self.lost:
            self.drop(token)
            return self._go_on("released")
        if token in self.queue:
            self.queue.remove(token)
            self._go_on("unknown")
        return "lost" if token in self.lost else "unknown"

    def cancel(self, token):
        self.drop(token)
        if token in self.queue:
            self.queue.remove(token)
        self.finished.add(token)
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
        self.set_limit = limit
        return self._go_on("resized")

    def revoke(self, tokens):
        self.sweep()
        for token in tokens:
            self.drop(token)
            self.given_up = "" if token == self.given_up else self.given_up
            self.finished.add(token)
            self.lost.add(token)
        return self._go_on("revoked")

    def _go_on(self, tag):
        self.sweep()
        self.serve()
        return tag


ODDS = {
    "acquire": 7,
    "try": 2,
    "acquire again": 4,
    "release": 4,
    "cancel": 1.5,
    "renew": 1,
    "lower": 2,
    "resize": 1,
    "revoke": 0.4,
    "lease ends": 1.5,
    "waiter ends": 1.5,
}


class Walk:
    """One name and its model."""

    def __init__(self, clock, seed, *, limits_differ, multi):
        self.random = random.Random(seed)
        self.clock = clock
        self.engine = Mixed(clock)
        self.model = Model()
        self.limit = self.random.choice([1, 2, 4, MAX_PERMITS])
        self.limits_differ = limits_differ
        self.multi = multi
        self.fences = {}
        self.latest = 0
        self.tickets = {}
        self.grants, self.waited = 0, 0

    def new_token(self):
        token = f"t{len(self.model.known)}"
        limit = self.random.randint(1, 6) if self.limits_differ else self.limit
        weight = self.random.choice([1, 1, 2, 3, limit])
        self.model.known[token] = Request(min(weight, limit), limit)
        if self.multi and self.random.random() < 0.3:
            self.model.known[token] = Request(1, 1, multi=True)
        return token

    def step(self):
        """Do one thing. Return its token, the reply, and the tag that the model foretells."""
        model = self.model
        self.clock.now_us += 1000
        odds = {order: share for order, share in ODDS.items() if order != "resize" or not self.multi}
        order = self.random.choices(list(odds), list(odds.values()))[0]
        able = [token for token in [*list(model.known)[-8:], *model.holders, *model.queue] if not self.gone(token)]
        token = self.new_token() if order in ("acquire", "try") or not able else self.random.choice(able)
        request = model.known[token]
        if order == "acquire again" and request.weight > model.limit_of(token):
            order = "cancel"
        if order in ("acquire", "try", "acquire again"):
            waits = order != "try"
            reply = self.engine.request(
                token, request.weight, request.limit, multi=request.multi, inbox="live", wait=WAIT_MS if waits else 0
            )
            return token, reply, model.acquire(token, waits=waits)
        return token, *self.other(order, token, request)

    def other(self, order, token, request):
        engine, model = self.engine, self.model
        if order in ("release", "cancel", "renew"):
            return getattr(engine, order)(token), getattr(model, order)(token)
        if order == "lower":
            weight = self.random.randint(1, request.weight)
            return engine.lower(token, weight), model.lower(token, weight)
        if order == "resize":
            limit = self.random.choice([0, 1, 2, 5, MAX_PERMITS])
            return engine.resize(limit), model.resize(limit)
        if order == "revoke":
            up_to = self.random.choice([0, self.latest, self.fences.get(token, 0)])
            least = self.random.choice([0, up_to])
            revoked = [one for one in model.holders if least <= self.fences[one] <= up_to and model.live(one)]
            reply = engine.revoke(up_to, least_fence=least)
            assert reply[1] == len(revoked)
            return reply, model.revoke(revoked)
        if order == "lease ends" and token in model.holders:
            engine.end_lease(token)
            model.holders[token].expired = True
        elif order == "waiter ends" and token in model.queue:
            self.end_waiter(token, request)
        return [order], order

    def end_waiter(self, token, request):
        """End the process of a waiter: its wait-lease lapses, or its inbox has no subscriber any more."""
        if self.random.random() < 0.3:
            self.engine.end_wait(token)
            request.lapsed = True
        else:
            record = hget(self.engine.client, self.engine.key("state"), token).replace(b"live ", b"dead ")
            self.engine.client.hset(self.engine.key("state"), token, record)
            request.dead = True

    def gone(self, token):
        return self.model.known[token].dead or self.model.known[token].lapsed

    def check(self, token, reply, foretold):
        model = self.model
        state, stored, _ = self.engine.look()
        holders, queue, records = stored.holders, [*stored.queue], stored.records
        if reply[0] in ("released", "unknown") and model.known[token].expired:
            foretold = reply[0]  # an expired lease is swept sooner or later
        assert reply[0] == foretold
        live = {one: request for one, request in model.holders.items() if not request.expired}
        assert {one for one, end_us in holders.items() if end_us > 1} == set(live)
        assert queue == model.queue
        assert set(records) == set(holders) | set(queue)
        assert {one: weight_of(records[one]) for one in live} == {one: request.weight for one, request in live.items()}
        assert stored.used == sum(weight_of(records[one]) for one in holders)
        used = sum(request.weight for request in live.values())
        assert state[3:7] == [model.set_limit, used, len(live), len(queue)]
        if reply[0] == "queued" and not model.known[token].multi:
            assert reply[2] == queue.index(token)
        for fence, one in sorted((fence_of(records[one]), one) for one in holders):
            if self.fences.get(one) != fence:
                assert fence > self.latest, "a fence that did not grow"
                self.fences[one] = self.latest = fence
                self.grants += 1
                self.waited += self.clock.now_us - self.tickets.get(one, self.clock.now_us)
        assert reply[0] != "granted" or reply[1] == self.fences[token]
        assert (stored.grants, stored.waited) == (self.grants, self.waited)
        self.tickets = stored.queue

    def check_messages(self, live):
        """Assert that the messages are those that the model foretold, in that order."""
        messages = [message.split() for message in heard(live)]
        assert [(token, fence != "0") for _, token, fence, *_ in messages] == self.model.messages
        self.model.messages.clear()


@pytest.mark.parametrize("multi", [False, *more(True)], ids={False: "resized", True: "multi"}.get)
@pytest.mark.parametrize("limits_differ", [*more(False), True], ids={False: "limits equal", True: "limits differ"}.get)
def test_a_walk_is_what_the_model_foretells(clock, live, limits_differ, multi):
    for seed in range(SEEDS):
        clock.flushall()
        walk = Walk(clock, seed, limits_differ=limits_differ, multi=multi)
        for number in range(STEPS):
            try:
                walk.check(*walk.step())
                walk.check_messages(live)
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}")
                raise
