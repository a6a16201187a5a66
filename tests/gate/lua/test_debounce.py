"""The scripts of a debounced name: which call of a burst runs, and when."""

from __future__ import annotations

from math import inf
from struct import unpack

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests._support.bursts import BurstScripts
from tests._support.engine import NOW_US, runs_through, unchanged

REMEMBERED_US = 20_000_000
CANCELLED = ["cancelled", 0]


@pytest.fixture
def a(clock):
    """The scripts of a name that runs after 100 ms of quiet."""
    return BurstScripts(clock)


def superseded(pubsub):
    """Return the tokens that got a message until now."""
    pubsub.ping()
    found = []
    while (message := pubsub.get_message(timeout=10))["type"] != "pong":
        kind, token, numbers = message["data"].split(b" ", 2)
        assert kind == b"granted"
        assert unpack("<3d", numbers)[::2] == (0, 1)
        found.append(token.decode())
    return found


def test_the_newest_call_runs_when_it_has_been_quiet_and_the_others_are_superseded(a, clock, subscribe):
    inbox = subscribe("inbox:t1", "inbox:t2", "inbox:t3")
    assert a.enter("t1") == ["waits", NOW_US, NOW_US + 100_000]
    clock.now_us += 60_000
    assert a.enter("t2") == ["waits", clock.now_us, clock.now_us + 100_000]
    assert superseded(inbox) == ["t1"]
    clock.now_us = NOW_US + 159_999
    assert a.claim("t1") == ["superseded"]
    assert a.claim("t2") == ["waits", clock.now_us, clock.now_us + 1]
    clock.now_us += 1
    assert a.claim("t2") == ["runs"]
    assert a.enter("t3") == ["waits", clock.now_us, clock.now_us + 100_000]
    assert superseded(inbox) == [], "the next burst has nothing to do with this one"


def test_a_burst_that_goes_on_runs_in_time(clock):
    a = BurstScripts(clock, 100, 250)
    dues = []
    for number in range(4):
        clock.now_us = NOW_US + 90_000 * number
        dues.append(a.enter(f"t{number}")[2] - NOW_US)
    assert dues == [100_000, 190_000, 250_000, 270_000], "the last one comes after that time, and runs at once"
    assert a.claim("t3") == ["runs"]
    assert a.enter("t4")[2] == clock.now_us + 100_000, "a new burst"


def test_who_is_called_again_over_another_connection_keeps_the_time_and_gets_messages_there(a, clock, subscribe):
    inbox = subscribe("there")
    a.enter("t1")
    clock.now_us += 10
    assert a.enter("t1", "there") == ["waits", clock.now_us, NOW_US + 100_000]
    a.enter("t2")
    assert superseded(inbox) == ["t1"]


def test_all_is_answered_the_same_twice(a, clock):
    a.enter("t1")
    with unchanged(a):
        assert a.enter("t1")[2] == NOW_US + 100_000
    a.enter("t2")
    with unchanged(a):
        assert a.claim("t1") == a.enter("t1") == ["superseded"]
    clock.now_us += 100_000
    assert a.claim("t2") == a.claim("t2") == ["runs"]
    a.enter("t3")
    clock.now_us += 100_000
    assert a.claim("t3") == a.claim("t2") == ["runs"]
    assert a.cancel("t4") == a.cancel("t4") == CANCELLED


def test_a_copy_that_arrives_late_changes_nothing(a, clock):
    a.cancel("t1")
    assert a.enter("t1") == ["superseded"]
    a.enter("t2")
    a.enter("t3")
    clock.now_us += REMEMBERED_US - 1
    assert a.enter("t2") == ["superseded"]
    assert a.claim("t3") == ["runs"]
    clock.now_us += REMEMBERED_US - 1
    assert a.enter("t3") == ["finished"]


def test_a_burst_whose_newest_call_is_withdrawn_ends_without_a_run(a, clock):
    for token in ("t1", "t2"):
        a.enter(token)
    assert a.cancel("t2") == CANCELLED
    clock.now_us += 100_000
    assert a.claim("t1") == ["superseded"]
    assert a.enter("t3")[2] == clock.now_us + 100_000


def test_to_withdraw_one_that_is_superseded_leaves_the_newest_one(a, clock):
    for token in ("t1", "t2"):
        a.enter(token)
    assert a.cancel("t1") == CANCELLED
    clock.now_us += 100_000
    assert a.claim("t2") == ["runs"]
    assert a.client.hgetall(a.keys[0]) == {"ran": "t2"}


def test_a_withdrawal_that_comes_late_does_not_keep_the_newest_one_from_being_superseded(a, subscribe):
    inbox = subscribe("inbox:t2")
    for token in ("t1", "t2"):
        a.enter(token)
    a.cancel("t1")
    a.enter("t3")
    assert superseded(inbox) == ["t2"]


def test_who_has_run_hears_so_for_longer_than_tombstones_live(a, clock):
    for token in ("t1", "t2"):
        a.enter(token)
        clock.now_us += 100_000
        assert a.claim(token) == ["runs"]
    clock.now_us += REMEMBERED_US + 1
    a.cancel("t3")
    assert a.client.zrange(a.keys[1], 0, -1) == ["t3"]
    assert a.claim("t2") == ["runs"]
    assert a.claim("t1") == ["superseded"]


def test_to_ask_again_writes_nothing_and_who_is_not_there_gets_no_message(a, raw):
    raw.config_resetstat()
    a.enter("t1")
    assert raw.info("commandstats")["cmdstat_hset"]["calls"] == 1
    a.enter("t1")
    a.enter("t2")
    assert raw.info("commandstats")["cmdstat_hset"]["calls"] == 2
    assert "cmdstat_publish" not in raw.info("commandstats")


def test_one_that_missed_its_message_for_long_does_not_run_behind_the_newest(clock):
    a = BurstScripts(clock, 60_000, 60_000)
    a.enter("t1")
    clock.now_us += 1_000_000
    a.enter("t2")
    clock.now_us = NOW_US + 60_000_000
    assert a.claim("t2") == ["runs"]
    assert a.client.zrange(a.keys[1], 0, -1) == ["!t2"], "t1 is not remembered any more"
    assert a.claim("t1") == ["superseded"]


def test_where_the_server_has_lost_all_a_call_runs_at_its_time(a, raw):
    a.enter("t1")
    raw.flushall()
    assert a.claim("t1") == ["runs"]
    assert a.enter("t1") == ["finished"]


@pytest.mark.parametrize(("quiet_ms", "at_most_ms", "wait_ms"), [(100, inf, 100), (100, 100, 100), (10**9, inf, 10**9)])
def test_a_burst_lives_a_minute_longer_than_its_call_waits(clock, quiet_ms, at_most_ms, wait_ms):
    a = BurstScripts(clock, quiet_ms, at_most_ms)
    a.enter("t1")
    assert wait_ms + 59_000 < a.client.pttl(a.keys[0]) <= wait_ms + 60_000
    clock.now_us += wait_ms * 1000
    a.claim("t1")
    assert 59_000 < a.client.pttl(a.keys[0]) <= 60_000
    assert 79_000 < a.client.pttl(a.keys[1]) <= 80_000


def test_no_more_is_remembered_than_of_the_last_seconds(a, clock):
    for number in range(300):
        a.enter(f"t{number}")
        clock.now_us += 1_000_000
    assert a.client.zcard(a.keys[1]) == 20


def test_at_maxmemory_no_call_enters_and_those_that_wait_go_on(a, clock, raw, subscribe):
    inbox = subscribe("there")
    a.enter("t1")
    raw.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="not allowed when used memory"):
        a.enter("t2")
    assert a.enter("t1", "there")[0] == "waits"
    clock.now_us += 100_000
    assert a.claim("t1") == ["runs"]
    assert a.cancel("t3") == CANCELLED
    raw.config_set("maxmemory", 0)
    assert superseded(inbox) == []


@pytest.mark.parametrize("verb", ["enter", "claim", "cancel"])
def test_a_script_that_was_cut_off_and_is_sent_again_does_what_it_would_have_done(a, raw, clock, verb):
    """At most one call runs, and the newest one does unless it is withdrawn."""
    script = a.load(f"debounce_{verb}")
    token = "t2" if verb == "enter" else "t1"
    args = {"token": token, "durations": b"\0" * 6 + b"Y@" + b"\0" * 6 + b"Y@", "wants": f"inbox:{token} control me"}
    done, commands = False, 0
    while not done:
        raw.flushdb()
        clock.now_us = NOW_US
        a.enter("t1")
        clock.now_us += 100_000
        done = runs_through(clock, script.source, a.keys, [args[name] for name in script.header.args], commands)
        reply = getattr(a, verb)(token)
        clock.now_us += 100_000
        outcomes = a.claim("t1"), a.claim("t2")
        expected = {
            "enter": ("waits", ["superseded"], ["runs"]),
            "claim": ("runs", ["runs"], ["superseded"]),
            "cancel": ("cancelled", ["superseded"], ["runs"]),
        }
        assert (reply[0], *outcomes) == expected[verb], commands
        commands += 1
    assert commands > 3


class Bursts(RuleBasedStateMachine):
    """Every reply and message is that of a plain model: the newest call, its time, and how each other one ended."""

    world = None

    @initialize(at_most_ms=st.sampled_from([inf, 100, 250]))
    def start(self, at_most_ms):
        raw, self.clock, self.inbox = self.world
        raw.flushall()
        superseded(self.inbox)
        self.scripts = BurstScripts(self.clock, 100, at_most_ms)
        self.at_most_us = at_most_ms * 1000
        self.newest = self.first = self.due = None
        self.over, self.told, self.count = {}, [], 0

    def end(self, token, outcome):
        self.over[token] = outcome
        self.newest = None

    @rule()
    def call(self):
        token, self.count = f"t{self.count}", self.count + 1
        if self.newest:
            self.told.append(self.newest)
            self.end(self.newest, "superseded")
        else:
            self.first = self.clock.now_us
        due = min(self.clock.now_us + 100_000, self.first + self.at_most_us)
        self.newest, self.due = token, max(self.clock.now_us, int(due))
        assert self.scripts.enter(token, "live") == ["waits", self.clock.now_us, self.due]

    @rule(number=st.integers(0, 10**6))
    def copy_arrives(self, number):
        if self.count:
            token = f"t{number % self.count}"
            expected = ["waits", self.clock.now_us, self.due]
            if token != self.newest:
                expected = ["finished" if self.over[token] == "runs" else "superseded"]
            assert self.scripts.enter(token, "live") == expected

    @rule(number=st.integers(0, 10**6))
    def claim(self, number):
        if self.count:
            token = f"t{number % self.count}"
            if token == self.newest and self.clock.now_us < self.due:
                assert self.scripts.claim(token) == ["waits", self.clock.now_us, self.due]
                return
            if token == self.newest:
                self.end(token, "runs")
            assert self.scripts.claim(token) == [self.over[token]]

    @rule()
    def withdraw(self):
        if self.newest:
            token = self.newest
            self.end(token, "superseded")
            assert self.scripts.cancel(token) == CANCELLED

    @rule(us=st.sampled_from([1, 30_000, 60_000, 100_000]))
    def time_passes(self, us):
        self.clock.now_us += us

    @invariant()
    def messages_are_those_of_the_model(self):
        if hasattr(self, "told"):
            assert superseded(self.inbox) == self.told
            self.told = []


def test_bursts_do_what_a_plain_model_does(raw, clock, subscribe):
    machine = type("Machine", (Bursts,), {"world": (raw, clock, subscribe("live"))})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=40))
