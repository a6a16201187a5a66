"""A state machine of a key of once: its scripts beside a plain model, a record, one that runs and a queue.

Time is an operation.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests._support.engine import NOW_US, TOMBSTONE_US, heard
from tests._support.once import OnceScripts

STEPS = 60

TTL_MS, CLAIM_MS, REFRESH_MS, PAUSE_MS = 1000, 400, 300, 700

SPANS_US = st.one_of(st.integers(1, 1000), st.sampled_from([REFRESH_MS * 1000, CLAIM_MS * 1000, TTL_MS * 1000]))
PICK = st.integers(0, 10**6)
REFRESH = st.sampled_from([-1, REFRESH_MS])
USUALLY, RARELY = st.sampled_from([True, True, True, False]), st.sampled_from([False, False, False, True])
FINGERPRINTS = st.sampled_from(["", "", "", "one", "two"])
OUTCOMES = st.sampled_from(["begun", "begun", "done", "done", "done", "failed", "unstored", "dropped"])


class Record(NamedTuple):
    outcome: str
    at: int
    token: str
    fence: int
    fingerprint: str
    value: str


class Run(NamedTuple):
    token: str
    end: int
    fence: int


class Model:
    """What is recorded, who runs, and who waits."""

    def __init__(self):
        self.now = NOW_US
        self.record = None
        self.pause = 0, 0
        """When the record was made that no one makes anew for a while, and until when."""
        self.run = None
        self.fence = 0
        self.queue = []
        self.tickets = {}
        self.dead = set()
        self.ended = {}
        """When a token got its tombstone."""
        self.messages = []

    @property
    def runner(self):
        """The token that runs now."""
        return self.run.token if self.run and self.run.end > self.now else None

    def grant(self, token, ms):
        self.fence = max(self.fence + 1, self.now)
        self.run = Run(token, self.now + ms * 1000, self.fence)

    def hand_over(self, me=None):
        while self.queue and not self.runner:
            head = self.queue.pop(0)
            if head == me:
                self.grant(me, TTL_MS)
            elif head not in self.dead:
                self.grant(head, CLAIM_MS)
                self.messages.append((head, self.fence))

    def dismiss(self):
        self.messages += [(token, 0) for token in self.queue if token not in self.dead]
        self.queue.clear()

    def leave(self, token):
        """Give up what the token has."""
        if token in self.queue:
            self.queue.remove(token)
        if self.run and self.run.token == token:
            self.run = None

    def is_answer(self, token, refresh):
        """Return whether the record is the answer for a token."""
        if self.record.outcome == "begun":
            return self.runner != self.record.token
        is_stale = self.record.outcome == "done" and 0 <= refresh * 1000 <= self.now - self.record.at
        begins = not self.runner and not self.queue and not self.is_paused()
        return not (is_stale and (self.runner == token or begins))

    def is_paused(self):
        """Return whether it is too early to make the record anew."""
        at, until = self.pause
        return at == self.record.at and self.now < until

    def begin_pause(self):
        self.pause = self.record.at, self.now + PAUSE_MS * 1000

    def acquire(self, token, refresh, fingerprint, *, waits):
        """Return the reply."""
        if token in self.ended:
            return ["finished"]
        return self.find(token, refresh, fingerprint) or self.ask_to_run(token, waits=waits)

    def find(self, token, refresh, fingerprint):
        """Return the reply if it is there; else None."""
        record = self.record
        is_reused = record and fingerprint and record.fingerprint and fingerprint != record.fingerprint
        if not record or not (is_reused or self.is_answer(token, refresh)):
            return None
        if self.runner == token or self.queue:
            self.leave(token)
            self.dismiss()
        return ["reused"] if is_reused else ["done", record.outcome, self.now - record.at, record.fence, record.value]

    def ask_to_run(self, token, *, waits):
        if self.runner == token:
            return ["granted", self.run.fence, self.run.end - self.now]
        held = self.runner
        if not held and not self.queue:
            self.grant(token, TTL_MS)
            if self.record:
                self.begin_pause()
            return ["granted", self.fence, TTL_MS * 1000]
        if held and not waits:
            return ["busy", self.run.end - self.now]
        if token not in self.queue:
            ticket = self.tickets.get(token, self.now + 10**9)
            self.queue.append(token)
            self.queue.sort(key=lambda one: ticket if one == token else self.tickets[one])
        self.hand_over(token)
        if not held and self.runner == token:
            return ["granted", self.fence, TTL_MS * 1000]
        if not waits:
            self.queue.remove(token)
            return ["busy", self.run.end - self.now]
        return ["queued", self.now, self.queue.index(token), self.run.end - self.now]

    def end(self, token, outcome, fingerprint, value, *, copies):
        earlier, ends = self.record, outcome != "begun"
        is_mine = earlier and earlier.token == token and (earlier.outcome != "begun" or not ends)
        is_lost = self.runner != token and not is_mine
        if (
            self.runner == token
            and outcome in ("failed", "unstored", "dropped")
            and earlier
            and earlier.outcome == "done"
        ):
            self.begin_pause()
        elif self.runner == token and outcome != "dropped":
            self.record = Record(outcome, self.now, token, self.run.fence, fingerprint, value)
        if ends:
            self.leave(token)
            if copies:
                self.ended.setdefault(token, self.now)
        if is_lost:
            return ["lost"]
        if outcome == "dropped" and not earlier:
            self.hand_over()
        elif ends:
            self.dismiss()
        return ["recorded", 0]

    def cancel(self, token):
        if self.record and (self.record.outcome, self.record.token) == ("begun", token):
            self.record = None
        self.leave(token)
        self.ended[token] = self.now
        self.hand_over()


class OnceMachine(RuleBasedStateMachine):
    """Every reply, every message, the record, the one that runs and the queue are those of the model."""

    world = None

    @initialize()
    def start(self):
        self.world.raw.flushall()
        heard(self.world.inbox)
        self.world.clock.now_us = NOW_US
        self.scripts = OnceScripts(self.world.clock)
        self.model = Model()
        self.tokens, self.values = [], 0

    def ask(self, token, refresh, fingerprint, *, waits=True):
        expected = self.model.acquire(token, refresh, fingerprint, waits=waits)
        reply = self.scripts.acquire(
            token,
            ttl=TTL_MS,
            claim=CLAIM_MS,
            wait=10**9 if waits else 0,
            refresh=refresh,
            pause=PAUSE_MS,
            fingerprint=fingerprint,
            ticket=self.model.tickets.get(token, 0),
            inbox="dead" if token in self.model.dead else "live",
        )
        assert reply == expected
        if reply[0] == "queued":
            self.model.tickets[token] = self.scripts.tickets[token]

    def pick(self, tokens, number):
        """Return one of these tokens; None if there is none."""
        return tokens[number % len(tokens)] if tokens else None

    def current(self):
        """Return who runs and who waits, and the last tokens, whatever has become of them."""
        return [*([self.model.runner] * bool(self.model.runner)), *self.model.queue, *self.tokens[-2:]]

    @rule(refresh=REFRESH, fingerprint=FINGERPRINTS, waits=USUALLY, dead=RARELY)
    def newcomer(self, refresh, fingerprint, *, waits, dead):
        token = f"t{len(self.tokens)}"
        self.tokens.append(token)
        if dead:
            self.model.dead.add(token)
        self.ask(token, refresh, fingerprint, waits=waits)

    @rule(number=PICK, refresh=REFRESH, fingerprint=FINGERPRINTS)
    def ask_again(self, number, refresh, fingerprint):
        """One that waits, that runs, or that has lost what it had."""
        tokens = [token for token in self.current() if token not in self.model.dead | {*self.model.ended}]
        if token := self.pick(tokens, number):
            self.ask(token, refresh, fingerprint)

    @rule(number=PICK, refresh=REFRESH)
    def a_copy_arrives(self, number, refresh):
        ended = [token for token, at in self.model.ended.items() if at > self.model.now - TOMBSTONE_US]
        if token := self.pick(ended, number):
            self.ask(token, refresh, "")

    @rule(outcome=OUTCOMES, fingerprint=FINGERPRINTS, copies=RARELY)
    def end(self, outcome, fingerprint, *, copies):
        if token := self.model.runner:
            self.record(token, outcome, fingerprint, copies=copies)

    @rule(number=PICK, outcome=OUTCOMES, copies=st.booleans())
    def end_late(self, number, outcome, *, copies):
        """Also of one that waits, or that has recorded before."""
        if token := self.pick([*self.tokens, "unknown"], number):
            self.record(token, outcome, "", copies=copies)

    def record(self, token, outcome, fingerprint, *, copies):
        self.values += 1
        args = token, outcome, f"v{self.values}"
        expected = self.model.end(token, outcome, fingerprint, args[2], copies=copies)
        assert self.scripts.end(*args, fingerprint=fingerprint, copies=copies, pause=PAUSE_MS) == expected

    @rule(number=PICK)
    def cancel(self, number):
        """Also of one that has ended."""
        if token := self.pick(self.current(), number):
            self.model.cancel(token)
            assert self.scripts.cancel(token) == ["cancelled", 0]

    @rule()
    def release(self):
        if token := self.model.runner:
            self.model.leave(token)
            self.model.hand_over()
            assert self.scripts.release(token) == ["released", 0]

    @rule(forgets=RARELY)
    def forget(self, *, forgets):
        if not forgets:
            return
        self.model.record = None
        self.world.raw.delete(self.scripts.key("result"))

    @rule(us=SPANS_US)
    def time_passes(self, us):
        self.model.now += us
        self.world.clock.now_us = self.model.now

    @invariant()
    def all_is_as_the_model_says(self):
        if not hasattr(self, "model"):
            return
        model, stored = self.model, self.scripts.stored()
        messages = [(token, int(fence)) for _, token, fence, *_ in map(str.split, heard(self.world.inbox))]
        assert sorted(messages) == sorted(model.messages)
        model.messages.clear()
        assert [*stored.queue] == model.queue
        runs = {token: end for token, end in stored.holders.items() if end > model.now}
        assert runs == ({model.run.token: model.run.end} if model.runner else {})
        assert self.scripts.recorded() == (model.record and (model.record.outcome, model.record.value))


def test_a_key_does_what_a_record_a_lock_and_a_queue_would(raw, clock, subscribe):
    machine = type("Machine", (OnceMachine,), {"world": SimpleNamespace(raw=raw, clock=clock, inbox=subscribe("live"))})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=STEPS))
