"""A state machine of a limiter: its scripts beside a plain model, a list of admissions and a queue.

Time is an operation.
"""

from __future__ import annotations

from itertools import chain
from math import ceil
from types import SimpleNamespace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from handfast._engine.limits import read_limits
from tests._support.engine import NOW_US
from tests._support.limits import LimitScripts, messages

STEPS = 60
TOMBSTONE_US = 20_000_000

RATES = [[(3, 400)], [(1, 300)], [(5, 300), (8, 1000)], [(2, 100), (3, 250), (6, 2000)]]
OTHERS = [[(2, 300)], [(4, 300), (6, 1000)], [(1, 50)]]
"""What an operator sets."""
COSTS = st.sampled_from([1, 1, 1, 2, 3])
SPANS_US = st.one_of(
    st.integers(1, 1000), st.integers(1, 150_000), st.sampled_from([100_000, 250_000, 300_000, 400_000])
)
PICK = st.integers(0, 10**6)


class Admission(NamedTuple):
    """One that counts, in the windows of these periods."""

    at: int
    cost: int
    periods: tuple[int, ...]


class Model:
    """What was admitted, by token, and who waits."""

    def __init__(self, rates):
        self.own = self.rates = rates
        """The rates that clients bring, and those under which they ask: the same, or those that they were told."""
        self.set_rates = None
        self.now = NOW_US
        self.admissions = {}
        self.queue = []
        self.costs = {}
        self.asked_under = {}
        """The rates of the latest request of a token."""
        self.dead = set()
        self.tickets = {}
        self.ended = {}
        """When a token was cancelled or given back."""
        self.messages = []
        self.dropped_at = {}
        """When a call last dropped what had lapsed of a period."""
        self.paused_until = 0

    def window(self, per_ms):
        """Return what was admitted within the last period, the oldest first."""
        start = self.now - per_ms * 1000
        return sorted((at, cost) for at, cost, periods in self.admissions.values() if per_ms in periods and at > start)

    def used(self, per_ms):
        return sum(cost for _, cost in self.window(per_ms))

    def remaining(self, rates):
        if self.paused_until > self.now:
            return 0
        return max(0, min(limit - self.used(per_ms) for limit, per_ms in rates))

    def fits(self, cost, rates):
        return self.paused_until <= self.now and all(self.used(per_ms) + cost <= limit for limit, per_ms in rates)

    def due(self, cost, rates):
        when = max(self.now, self.paused_until)
        for limit, per_ms in rates:
            excess = self.used(per_ms) + cost - limit
            for at, freed in self.window(per_ms):
                if excess > 0:
                    when, excess = max(when, at + per_ms * 1000), excess - freed
        return when

    def admit(self, token, rates, times=1):
        """Count it in each window that has so many times its limit at most then."""
        cost = self.costs[token]
        fitting = tuple(per_ms for limit, per_ms in rates if self.used(per_ms) + cost <= times * limit)
        self.admissions[token] = Admission(self.now, cost, fitting)

    def drops(self, rates):
        self.dropped_at |= {per_ms: self.now for _, per_ms in rates}

    def serve(self, rates, me=None, *, moved=False):
        """Serve those before `me`. Return whether no one is left, and when the first one may fit."""
        while self.queue and self.queue[0] != me:
            head = self.queue[0]
            alike = self.asked_under[head] == rates == (self.set_rates or self.own)
            fits = alike and self.fits(self.costs[head], rates)
            due = self.due(self.costs[head], rates) if alike else self.now
            if not moved and self.remaining(rates) == 0:
                return False, due
            if head in self.dead:
                self.queue.pop(0)
            elif fits:
                self.queue.pop(0)
                self.admit(head, rates)
                self.messages.append((head, "admitted", self.remaining(rates)))
            else:
                if moved:
                    self.messages.append((head, "come", due))
                return False, due
            moved = True
        return True, self.now

    def acquire(self, token, patience, rates):
        """Return the reply, with the ticket at its end."""
        cost = self.costs[token]
        if token in self.ended:
            return ["finished"]
        self.drops(rates)
        if token in self.admissions:
            return ["admitted", self.admissions[token].at, self.remaining(rates)]
        if rates != (self.set_rates or self.own):
            return ["rates", self.set_rates or []]
        waits = token in self.queue
        is_first, due = self.serve(rates, token)
        if patience < 0 and not (is_first and self.fits(cost, rates)):
            due = max(due, self.due(cost, rates))
            self.admit(token, rates, 2)
            return ["exceeded", due - self.now, self.remaining(rates)]
        if is_first and self.fits(cost, rates):
            self.queue = self.queue[waits:]
            self.admit(token, rates)
            left = self.remaining(rates)
            if waits:
                self.serve(rates, moved=True)
            return ["admitted", self.now, left]
        return self.wait(token, patience, rates, max(due, self.due(cost, rates)) - self.now)

    def wait(self, token, patience, rates, due_us):
        """Enter the queue or stay there, unless that takes too long. Return the reply."""
        if token not in self.queue:
            ahead, cost = len(self.queue), self.costs[token]
            least_us = max(due_us, *((ceil((ahead + cost) / limit) - 1) * per_ms * 1000 for limit, per_ms in rates))
            if patience == 0 or least_us > patience:
                return ["refused", least_us, self.remaining(rates)]
            self.tickets[token] = max(self.now, max((self.tickets[one] for one in self.queue), default=0) + 1)
            self.queue.append(token)
        self.asked_under[token] = rates
        return ["queued", self.now, self.queue.index(token), due_us, self.tickets[token]]

    def settle(self, token, new_cost, rates):
        was_first = self.queue[:1] == [token]
        if token in self.queue and new_cost == 0:
            self.queue.remove(token)
        at, cost, periods = self.admissions.get(token, (0, 0, ()))
        if new_cost == 0:
            self.admissions.pop(token, None)
            self.ended[token] = self.now
        elif at:
            live = tuple(per_ms for per_ms in periods if at > self.now - per_ms * 1000)
            self.admissions[token] = Admission(at, new_cost, live)
        is_known = any(at > self.dropped_at.get(per_ms, 0) - per_ms * 1000 for per_ms in periods)
        self.drops(rates)
        self.serve(rates, moved=was_first or (is_known and new_cost < cost))

    def pause(self, ms):
        if ms:
            self.paused_until = max(self.paused_until, self.now + ms * 1000)
        else:
            self.paused_until = 0
            self.drops(self.rates)
            self.serve(self.rates, moved=True)

    def resize(self, rates):
        self.set_rates = rates
        self.drops(rates or self.own)
        self.serve(rates or self.own, moved=True)


class LimiterMachine(RuleBasedStateMachine):
    """Every reply, every message, the queue and the windows are those of the model."""

    world = None

    @initialize(rates=st.sampled_from(RATES))
    def start(self, rates):
        self.world.raw.flushall()
        messages(self.world.inbox)
        self.world.clock.now_us = NOW_US
        self.own = LimitScripts(self.world.clock, *rates)
        self.model = Model(rates)

    @property
    def scripts(self):
        """The scripts under the rates that all clients believe in."""
        return self.under(self.model.rates)

    def under(self, rates):
        return self.own if rates == self.model.own else self.own.under(*rates, follows=True)

    def ask(self, token, patience, rates=None):
        """Ask under these rates, or under those that clients believe in, and then under those of the reply."""
        rates = rates or self.model.rates
        expected = self.model.acquire(token, patience, rates)
        inbox = "dead" if token in self.model.dead else "live"
        options = {"patience": patience, "inbox": inbox, "ticket": self.model.tickets.get(token, 0)}
        reply = self.under(rates).acquire(token, self.model.costs[token], **options)
        if reply[0] == "queued":
            reply.append(self.own.tickets[token])
        elif reply[0] == "rates":
            reply[1] = read_limits(reply[1])
        assert reply == expected
        if reply[0] == "rates":
            self.model.rates = self.model.set_rates or self.model.own
            self.model.costs[token] = min(self.model.costs[token], *(limit for limit, _ in self.model.rates))
            self.ask(token, patience)

    def pick(self, tokens, number):
        """Return one of these tokens; None if there is none."""
        return tokens[number % len(tokens)] if tokens else None

    @rule(cost=COSTS, patience=st.sampled_from([-1, 0, 200_000, 10**12, 10**12, 10**12]), dead=st.booleans())
    def newcomer(self, cost, patience, dead):
        token = f"t{len(self.model.costs)}"
        self.model.costs[token] = min(cost, *(limit for limit, _ in self.model.rates))
        if dead:
            self.model.dead.add(token)
        self.ask(token, patience)

    @rule(number=PICK)
    def ask_again(self, number):
        waiters = [token for token in self.model.queue if token not in self.model.dead]
        if token := self.pick(waiters, number):
            self.ask(token, 10**12)

    @rule(number=PICK)
    def a_copy_arrives(self, number):
        ended = [token for token, at in self.model.ended.items() if at > self.model.now - TOMBSTONE_US]
        known = [token for token, rates in self.rates_of_admissions() if self.is_whole(token, rates)]
        if token := self.pick(known + ended, number):
            self.ask(token, 10**12, dict(self.rates_of_admissions()).get(token))

    def rates_of_admissions(self):
        for token, (_, _, periods) in self.model.admissions.items():
            for rates in (self.model.own, *OTHERS):
                if periods == tuple(per_ms for _, per_ms in rates):
                    yield token, rates

    def is_whole(self, token, rates):
        """Whether it has what it asked for, and its longest window has it still."""
        at, cost, _ = self.model.admissions[token]
        return at > self.model.now - rates[-1][1] * 1000 and cost == self.model.costs[token]

    @rule(number=PICK, new_cost=st.integers(0, 4))
    def settle(self, number, new_cost):
        rates_of = dict(self.rates_of_admissions())
        if token := self.pick([*rates_of], number):
            cost = self.model.admissions[token].cost
            self.model.settle(token, new_cost, rates_of[token])
            assert self.under(rates_of[token]).settle(token, cost, new_cost) == ["settled", 0]

    @rule(number=PICK)
    def cancel(self, number):
        if token := self.pick(self.model.queue, number):
            self.model.settle(token, 0, self.model.rates)
            assert self.scripts.cancel(token, self.model.costs[token]) == ["settled", 0]

    @rule(ms=st.sampled_from([0, 0, 1, 50, 400]))
    def pause(self, ms):
        self.model.pause(ms)
        assert self.scripts.pause(ms) == ["paused", 0]

    @rule(rates=st.sampled_from([None, *OTHERS]))
    def resize(self, rates):
        self.model.resize(rates)
        scripts = self.under(rates or self.model.own)
        assert scripts.resize(is_set=rates is not None) == ["resized", 0]

    @rule(number=PICK)
    def die(self, number):
        if token := self.pick(self.model.queue, number):
            self.model.dead.add(token)
            record = self.world.raw.execute_command("HGET", self.scripts.key("waiting"), token, NEVER_DECODE=True)
            self.world.raw.hset(self.scripts.key("waiting"), token, record.replace(b"live", b"dead"))

    @rule(us=SPANS_US)
    def time_passes(self, us):
        self.model.now += us
        self.world.clock.now_us = self.model.now

    @invariant()
    def all_is_as_the_model_says(self):
        if not hasattr(self, "model"):
            return
        model = self.model
        assert sorted(messages(self.world.inbox)) == sorted(model.messages)
        model.messages.clear()
        assert self.own.queue() == model.queue
        rates = model.set_rates or model.own
        scripts = self.under(rates)
        used = [(model.used(per_ms), model.window(per_ms)) for _, per_ms in rates]
        resets = [
            window[-1][0] + per_ms * 1000 - model.now if window else 0
            for (_, window), (_, per_ms) in zip(used, rates, strict=True)
        ]
        assert scripts.inspect() == (
            len(model.queue),
            [(total, reset) for (total, _), reset in zip(used, resets, strict=True)],
        )
        assert scripts.paused_us == max(0, model.paused_until - model.now)
        for _, per_ms in (*model.own, *chain(*OTHERS)):
            lately = [at for at in scripts.window(per_ms).values() if at > model.now - per_ms * 1000]
            assert lately == [at for at, _ in model.window(per_ms)]


def test_a_limiter_does_what_a_list_and_a_queue_would(raw, clock, subscribe):
    machine = type(
        "Machine", (LimiterMachine,), {"world": SimpleNamespace(raw=raw, clock=clock, inbox=subscribe("live"))}
    )
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=STEPS))
