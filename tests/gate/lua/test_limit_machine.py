"""A state machine of a limiter: its scripts beside a plain model, a list of admissions and a queue.

Time is an operation.
"""

from __future__ import annotations

from math import ceil
from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests._support.engine import NOW_US
from tests._support.limits import LimitScripts, messages

STEPS = 60
TOMBSTONE_US = 20_000_000

RATES = [[(3, 400)], [(1, 300)], [(5, 300), (8, 1000)], [(2, 100), (3, 250), (6, 2000)]]
COSTS = st.sampled_from([1, 1, 1, 2, 3])
SPANS_US = st.one_of(
    st.integers(1, 1000), st.integers(1, 150_000), st.sampled_from([100_000, 250_000, 300_000, 400_000])
)
PICK = st.integers(0, 10**6)


class Model:
    """What was admitted, as (at, cost) by token, and who waits."""

    def __init__(self, rates):
        self.rates = rates
        self.now = NOW_US
        self.admissions = {}
        self.queue = []
        self.costs = {}
        self.dead = set()
        self.tickets = {}
        self.ended = {}
        """When a token was cancelled or given back."""
        self.messages = []
        self.dropped_at = 0
        """When a call last dropped what had lapsed."""
        self.paused_until = 0

    def window(self, per_ms):
        """Return what was admitted within the last period, the oldest first."""
        return sorted((at, cost) for at, cost in self.admissions.values() if at > self.now - per_ms * 1000)

    def used(self, per_ms):
        return sum(cost for _, cost in self.window(per_ms))

    def remaining(self):
        if self.paused_until > self.now:
            return 0
        return max(0, min(limit - self.used(per_ms) for limit, per_ms in self.rates))

    def fits(self, cost):
        return self.paused_until <= self.now and all(self.used(per_ms) + cost <= limit for limit, per_ms in self.rates)

    def due(self, cost):
        when = max(self.now, self.paused_until)
        for limit, per_ms in self.rates:
            excess = self.used(per_ms) + cost - limit
            for at, freed in self.window(per_ms):
                if excess > 0:
                    when, excess = max(when, at + per_ms * 1000), excess - freed
        return when

    def admit(self, token):
        self.admissions[token] = (self.now, self.costs[token])

    def serve(self, me=None, *, moved=False):
        """Serve those before `me`. Return whether no one is left, and when the first one may fit."""
        while self.queue and self.queue[0] != me:
            head = self.queue[0]
            fits = self.fits(self.costs[head])
            if not fits and not moved and self.remaining() == 0:
                return False, self.due(self.costs[head])
            if head in self.dead:
                self.queue.pop(0)
            elif fits:
                self.queue.pop(0)
                self.admit(head)
                self.messages.append((head, "admitted", self.remaining()))
            else:
                if moved:
                    self.messages.append((head, "come", self.due(self.costs[head])))
                return False, self.due(self.costs[head])
            moved = True
        return True, self.now

    def acquire(self, token, patience):
        """Return the reply, with the ticket at its end."""
        cost = self.costs[token]
        if token in self.ended:
            return ["finished"]
        if token in self.admissions:
            self.dropped_at = self.now
            return ["admitted", self.admissions[token][0], self.remaining()]
        waits, self.dropped_at = token in self.queue, self.now
        is_first, due = self.serve(token)
        if is_first and self.fits(cost):
            self.queue = self.queue[waits:]
            self.admit(token)
            left = self.remaining()
            if waits:
                self.serve(moved=True)
            return ["admitted", self.now, left]
        due_us = max(due, self.due(cost)) - self.now
        if not waits:
            ahead = len(self.queue)
            least_us = max(
                due_us, *((ceil((ahead + cost) / limit) - 1) * per_ms * 1000 for limit, per_ms in self.rates)
            )
            if patience == 0 or least_us > patience:
                return ["refused", least_us, self.remaining()]
            self.tickets[token] = max(self.now, max((self.tickets[one] for one in self.queue), default=0) + 1)
            self.queue.append(token)
        return ["queued", self.now, self.queue.index(token), due_us, self.tickets[token]]

    def settle(self, token, new_cost):
        was_first = self.queue[:1] == [token]
        if token in self.queue and new_cost == 0:
            self.queue.remove(token)
        at, cost = self.admissions.get(token, (0, 0))
        if new_cost == 0:
            self.admissions.pop(token, None)
            self.ended[token] = self.now
        elif at:
            self.admissions[token] = (at, new_cost)
        is_known = at > self.dropped_at - max(per_ms for _, per_ms in self.rates) * 1000
        self.dropped_at = self.now
        self.serve(moved=was_first or (is_known and new_cost < cost))

    def pause(self, ms):
        if ms:
            self.paused_until = max(self.paused_until, self.now + ms * 1000)
        else:
            self.paused_until, self.dropped_at = 0, self.now
            self.serve(moved=True)


class LimiterMachine(RuleBasedStateMachine):
    """Every reply, every message, the queue and the windows are those of the model."""

    world = None

    @initialize(rates=st.sampled_from(RATES))
    def start(self, rates):
        self.world.raw.flushall()
        messages(self.world.inbox)
        self.world.clock.now_us = NOW_US
        self.scripts = LimitScripts(self.world.clock, *rates)
        self.model = Model(rates)

    def ask(self, token, patience):
        expected = self.model.acquire(token, patience)
        inbox = "dead" if token in self.model.dead else "live"
        options = {"patience": patience, "inbox": inbox, "ticket": self.model.tickets.get(token, 0)}
        reply = self.scripts.acquire(token, self.model.costs[token], **options)
        if reply[0] == "queued":
            reply.append(self.scripts.tickets[token])
        assert reply == expected

    def pick(self, tokens, number):
        """Return one of these tokens; None if there is none."""
        return tokens[number % len(tokens)] if tokens else None

    @rule(cost=COSTS, patience=st.sampled_from([0, 200_000, 10**12, 10**12, 10**12]), dead=st.booleans())
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
        longest_us = self.model.rates[-1][1] * 1000
        admitted = [token for token, (at, _) in self.model.admissions.items() if at > self.model.now - longest_us]
        ended = [token for token, at in self.model.ended.items() if at > self.model.now - TOMBSTONE_US]
        known = [token for token in admitted if self.model.costs[token] == self.model.admissions[token][1]]
        if token := self.pick(known + ended, number):
            self.ask(token, 10**12)

    @rule(number=PICK, new_cost=st.integers(0, 4))
    def settle(self, number, new_cost):
        if token := self.pick([*self.model.admissions], number):
            cost = self.model.admissions[token][1]
            self.model.settle(token, new_cost)
            assert self.scripts.settle(token, cost, new_cost) == ["settled", 0]

    @rule(number=PICK)
    def cancel(self, number):
        if token := self.pick(self.model.queue, number):
            self.model.settle(token, 0)
            assert self.scripts.cancel(token, self.model.costs[token]) == ["settled", 0]

    @rule(ms=st.sampled_from([0, 0, 1, 50, 400]))
    def pause(self, ms):
        self.model.pause(ms)
        assert self.scripts.pause(ms) == ["paused", 0]

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
        model, scripts = self.model, self.scripts
        assert sorted(messages(self.world.inbox)) == sorted(model.messages)
        model.messages.clear()
        assert scripts.queue() == model.queue
        used = [(model.used(per_ms), model.window(per_ms)) for _, per_ms in model.rates]
        resets = [
            window[-1][0] + per_ms * 1000 - model.now if window else 0
            for (_, window), (_, per_ms) in zip(used, model.rates, strict=True)
        ]
        assert scripts.inspect() == (
            len(model.queue),
            [(total, reset) for (total, _), reset in zip(used, resets, strict=True)],
        )
        assert scripts.paused_us == max(0, model.paused_until - model.now)
        for _, per_ms in model.rates:
            lately = [at for at in scripts.window(per_ms).values() if at > model.now - per_ms * 1000]
            assert lately == [at for at, _ in model.window(per_ms)]


def test_a_limiter_does_what_a_list_and_a_queue_would(raw, clock, subscribe):
    machine = type(
        "Machine", (LimiterMachine,), {"world": SimpleNamespace(raw=raw, clock=clock, inbox=subscribe("live"))}
    )
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=STEPS))
