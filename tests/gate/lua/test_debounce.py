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
    assert a.ask("t1") == ["superseded"]
    assert a.ask("t2") == ["waits", clock.now_us, clock.now_us + 1]
    clock.now_us += 1
    assert a.ask("t2") == ["runs"]
    assert a.enter("t3") == ["waits", clock.now_us, clock.now_us + 100_000]
    assert superseded(inbox) == [], "the next burst has nothing to do with this one"


def test_a_burst_that_goes_on_runs_in_time(clock):
    a = BurstScripts(clock, 100, 250)
    dues = []
    for number in range(3):
        clock.now_us = NOW_US + 90_000 * number
        dues.append(a.enter(f"t{number}")[2] - NOW_US)
    assert dues == [100_000, 190_000, 250_000]
    clock.now_us = NOW_US + 250_000
    assert a.ask("t2") == ["runs"]
    assert a.enter("t4")[2] == clock.now_us + 100_000, "a new burst"


def test_calls_that_come_faster_than_a_question_travels_run_in_time(clock, subscribe):
    """The first call after `at_most` runs in that reply; no question of an earlier one has arrived yet."""
    a = BurstScripts(clock, 100, 250)
    inbox, ran = subscribe(*(f"inbox:t{number}" for number in range(60))), []
    for number in range(60):
        if a.enter(f"t{number}") == ["runs"]:
            ran.append(number)
        clock.now_us += 20_000
    assert ran == [13, 27, 41, 55], "a burst begins with the call after one that ran"
    assert superseded(inbox) == [f"t{number}" for number in range(59) if number not in ran]


def test_a_call_whose_time_has_come_runs_though_a_later_one_arrives_before_its_question(a, clock, subscribe):
    inbox = subscribe("inbox:t0", "inbox:t1", "inbox:t2")
    for token in ("t0", "t1", "t2"):
        assert a.enter(token) == ["waits", clock.now_us, clock.now_us + 100_000]
        clock.now_us += 100_000
    assert a.ask("t0") == a.ask("t0") == ["runs"]
    assert a.ask("t2") == ["runs"]
    assert a.ask("t1") == ["superseded"], "a newer call has run"
    assert superseded(inbox) == []


@pytest.mark.parametrize("at_most_ms", [inf, 100, 150])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_newest_call_that_is_dead_or_frozen_at_its_time_lends_nothing_to_the_next(
    clock, subscribe, at_most_ms, frozen
):
    a = BurstScripts(clock, 100, at_most_ms)
    inbox = subscribe("inbox:t1" if frozen else "inbox:other")
    a.enter("t1")
    clock.now_us += 100_000 + (2_000_000 if frozen else 0)
    assert a.enter("t2") == ["waits", clock.now_us, clock.now_us + 100_000]
    assert superseded(inbox) == ["t1"] * frozen
    assert a.ask("t1") == ["superseded"]
    clock.now_us += 100_000
    assert a.ask("t2") == ["runs"]


@pytest.mark.parametrize("away_us", [1_000_000, REMEMBERED_US + 1, 3_000_000_000])
@pytest.mark.parametrize("left_us", [0, 1_000_000])
def test_a_call_that_comes_back_never_takes_over_from_a_newer_one(clock, away_us, left_us):
    a = BurstScripts(clock, 4_000_000)
    a.enter("t1")
    clock.now_us += away_us // 2
    a.enter("t2")
    clock.now_us += away_us // 2
    a.enter("t3")
    assert a.ask("t1", left_us) == a.ask("t2", left_us) == ["superseded"]
    assert a.client.hget(a.keys[0], "token") == "t3"


@pytest.mark.parametrize("end", ["ask", "cancel"])
def test_a_call_that_comes_back_does_not_run_after_a_newer_one_has_ended(clock, end):
    a = BurstScripts(clock, 1000)
    a.enter("t1")
    clock.now_us += 1_000_000
    a.enter("t2")
    clock.now_us += 1_000_000
    assert getattr(a, end)("t2")[0] == {"ask": "runs", "cancel": "cancelled"}[end]
    clock.now_us += 3_000_000_000
    assert a.ask("t1") == ["superseded"]
    assert a.ask("t2") == ["runs" if end == "ask" else "superseded"]


def test_where_the_server_has_an_older_state_the_newer_call_takes_over(a, clock, raw):
    a.enter("t1")
    older = raw.dump(a.keys[0])
    clock.now_us += 10_000
    a.enter("t2")
    raw.restore(a.keys[0], 10_000, older, replace=True)
    assert a.ask("t2", 90_000) == ["waits", clock.now_us, clock.now_us + 90_000]
    assert a.ask("t1") == ["superseded"]


@pytest.mark.parametrize(("left_us", "reply"), [(-3_600_000_000, ["runs"]), (-3_600_000_001, ["superseded"])])
def test_an_hour_after_its_time_a_call_of_which_the_server_knows_nothing_does_not_run(a, raw, left_us, reply):
    a.enter("t1")
    raw.flushall()
    assert a.ask("t1", left_us) == reply


@pytest.mark.parametrize("at_most_ms", [inf, 4000])
def test_a_clock_that_is_set_back_delays_a_call_by_a_second_at_most(clock, at_most_ms):
    a = BurstScripts(clock, 4000, at_most_ms)
    a.enter("t1")
    clock.now_us += 1_000_000 - 3_600_000_000
    assert a.ask("t1", 3_000_000)[2] == clock.now_us + 4_000_000
    clock.now_us += 3_000_000
    assert a.ask("t1", 0) == ["waits", clock.now_us, clock.now_us + 1_000_000]
    clock.now_us += 1_000_000
    assert a.ask("t1", 0) == ["runs"]
    assert a.enter("t2") == ["waits", clock.now_us, clock.now_us + 4_000_000]
    clock.now_us -= 3_600_000_000
    assert a.enter("t3") == ["waits", clock.now_us, clock.now_us + 4_000_000]
    assert a.ask("t2") == ["superseded"], "tickets grow, though the clock does not"


def test_a_clock_that_is_set_back_delays_a_short_call_by_its_time_at_most(a, clock):
    a.enter("t1")
    clock.now_us -= 3_600_000_000
    assert a.ask("t1", 0) == ["waits", clock.now_us, clock.now_us + 100_000]


def test_a_clock_that_is_set_ahead_loses_no_call(a, clock, subscribe):
    subscribe("inbox:t1")
    a.enter("t1")
    clock.now_us += 3_600_000_000
    assert a.enter("t2") == ["waits", clock.now_us, clock.now_us + 100_000]
    clock.now_us += 3_600_000_000
    assert a.ask("t2", 50_000) == ["runs"]


def test_who_is_called_again_over_another_connection_keeps_the_time_and_gets_messages_there(a, clock, subscribe):
    inbox = subscribe("there")
    a.enter("t1")
    clock.now_us += 10
    assert a.ask("t1", 99_990, "there") == ["waits", clock.now_us, NOW_US + 100_000]
    a.enter("t2")
    assert superseded(inbox) == ["t1"]


def test_all_is_answered_the_same_twice(a, clock):
    a.enter("t1")
    with unchanged(a):
        assert a.enter("t1")[2] == a.ask("t1", 100_000)[2] == NOW_US + 100_000
    a.enter("t2")
    with unchanged(a):
        assert a.ask("t1") == a.enter("t1") == ["superseded"]
    clock.now_us += 100_000
    assert a.ask("t2") == a.ask("t2") == ["runs"]
    with unchanged(a):
        assert a.enter("t2") == ["runs"]
    a.enter("t3")
    clock.now_us += 100_000
    assert a.ask("t3") == a.ask("t3") == ["runs"]
    assert a.ask("t2") == ["superseded"], "a newer call has run"
    assert a.cancel("t4") == a.cancel("t4") == CANCELLED


def test_a_copy_that_arrives_late_changes_nothing(a, clock):
    a.cancel("t1")
    assert a.enter("t1") == ["superseded"]
    a.enter("t2")
    a.enter("t3")
    clock.now_us += REMEMBERED_US - 1
    assert a.enter("t2") == ["superseded"]
    assert a.ask("t3") == ["runs"]
    clock.now_us += REMEMBERED_US - 1
    with unchanged(a):
        assert a.enter("t3") == ["runs"]


def test_a_burst_whose_newest_call_is_withdrawn_ends_without_a_run(a, clock):
    for token in ("t1", "t2"):
        a.enter(token)
    assert a.cancel("t2") == CANCELLED
    clock.now_us += 100_000
    assert a.ask("t1") == ["superseded"]
    assert a.enter("t3")[2] == clock.now_us + 100_000


def test_to_withdraw_one_that_is_superseded_leaves_the_newest_one(a, clock):
    for token in ("t1", "t2"):
        a.enter(token)
    assert a.cancel("t1") == CANCELLED
    clock.now_us += 100_000
    assert a.ask("t2") == ["runs"]
    assert set(a.client.hgetall(a.keys[0])) == {"came", "ran", "ran_ticket"}


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
        assert a.ask(token) == ["runs"]
    clock.now_us += REMEMBERED_US + 1
    a.cancel("t3")
    assert a.client.zrange(a.keys[1], 0, -1) == ["t3"]
    assert a.ask("t2") == ["runs"]
    assert a.ask("t1") == ["superseded"]


def test_to_ask_again_writes_nothing_and_who_is_not_there_gets_no_message(a, raw):
    raw.config_resetstat()
    a.enter("t1")
    assert raw.info("commandstats")["cmdstat_hset"]["calls"] == 1
    a.ask("t1", 100_000)
    a.enter("t2")
    stats = raw.info("commandstats")
    assert stats["cmdstat_hset"]["calls"] == 2
    assert "cmdstat_publish" not in stats


@pytest.mark.parametrize("evicted", [False, True])
def test_where_the_server_has_lost_all_a_call_goes_on_with_the_time_that_is_left(a, clock, raw, evicted):
    a.enter("t1")
    raw.delete(a.keys[0]) if evicted else raw.flushall()
    assert a.ask("t1", 30_000) == ["waits", clock.now_us, clock.now_us + 30_000]
    raw.delete(a.keys[0]) if evicted else raw.flushall()
    assert a.ask("t1") == a.enter("t1") == ["runs"]
    assert 3_599_000 < raw.pttl(a.keys[0]) <= 3_600_000


@pytest.mark.parametrize(("quiet_ms", "at_most_ms", "wait_ms"), [(100, inf, 100), (100, 100, 100), (10**9, inf, 10**9)])
def test_a_burst_lives_an_hour_longer_than_its_call_waits(clock, quiet_ms, at_most_ms, wait_ms):
    a = BurstScripts(clock, quiet_ms, at_most_ms)
    a.enter("t1")
    assert wait_ms + 3_599_000 < a.client.pttl(a.keys[0]) <= wait_ms + 3_600_000
    clock.now_us += wait_ms * 1000
    a.ask("t1")
    assert a.client.pttl(a.keys[0]) > 3_599_000
    assert 79_000 < a.client.pttl(a.keys[1]) <= 80_000


def test_a_call_that_waits_for_less_time_shortens_no_life(a):
    BurstScripts(a.client, 10**9).enter("t1")
    a.enter("t2")
    assert a.client.pttl(a.keys[0]) > 10**9


def test_no_more_is_remembered_than_of_the_last_seconds(clock):
    a = BurstScripts(clock, 10_000)
    for number in range(300):
        a.enter(f"t{number}")
        clock.now_us += 1_000_000
    assert a.client.zcard(a.keys[1]) == 20


def test_at_maxmemory_no_call_enters_and_those_that_wait_go_on(a, clock, raw, subscribe):
    inbox = subscribe("there")
    a.enter("t0")
    clock.now_us += 100_000
    subscribe("inbox:t0")
    a.enter("t1")
    raw.config_set("maxmemory", 1)
    for elapsed_us in (0, 100_000):
        clock.now_us += elapsed_us
        with pytest.raises(redis.ResponseError, match="not allowed when used memory"):
            a.enter("t2")
    assert a.ask("t0") == ["runs"], "its time had come when t1 came"
    clock.now_us -= 100_000
    assert a.ask("t1", 100_000, "there")[0] == "waits"
    clock.now_us += 100_000
    assert a.ask("t1") == ["runs"]
    assert a.cancel("t3") == CANCELLED
    raw.config_set("maxmemory", 0)
    assert superseded(inbox) == []


CUT = {
    "takes over": (100, inf, lambda a: a.args("t2", 100_000, 0), "waits", ["superseded"], ["runs"]),
    "takes over after its time": (250, 250, lambda a: a.args("t2", 250_000, 0), "waits", ["superseded"], ["runs"]),
    "asks": (100, inf, lambda a: a.args("t1", 0, NOW_US), "runs", ["runs"], ["superseded"]),
    "is withdrawn": (100, inf, lambda _: {"token": "t1"}, "cancelled", ["superseded"], ["superseded"]),
}
"""The times of a name, whose call t1 waits when this script runs; its reply, and how t1 and t2 end."""


@pytest.mark.parametrize("case", CUT)
def test_a_script_that_was_cut_off_and_is_sent_again_does_what_it_would_have_done(raw, clock, case):
    """At most one call runs, and the newest one does unless it is withdrawn. No key is left without a TTL."""
    quiet_ms, at_most_ms, args, tag, *ends = CUT[case]
    done, commands = False, 0
    while not done:
        raw.flushdb()
        clock.now_us = NOW_US
        a = BurstScripts(clock, quiet_ms, at_most_ms)
        script = a.load("debounce_cancel" if tag == "cancelled" else "debounce_enter")
        a.enter("t1")
        clock.now_us += 60_000 if tag == "waits" else 100_000
        packed = args(a)
        done = runs_through(clock, script.source, a.keys, [packed[name] for name in script.header.args], commands)
        if not done and tag == "waits":
            assert a.ask("t1", 1)[0] in ("waits", "superseded"), "the call before waits on, or a later one does"
        clock.now_us += 0 if tag == "waits" else 1
        reply = a.cancel("t1") if tag == "cancelled" else a._enter(packed)
        assert reply[0] == tag, commands
        assert -1 not in map(raw.pttl, a.keys), commands
        a.tickets.setdefault("t1", NOW_US)
        a.tickets.setdefault("t2", NOW_US - 1)
        clock.now_us += 250_000
        assert [a.ask("t1"), a.ask("t2")] == ends, commands
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
        self.over, self.ended_us, self.told, self.count, self.ran = {}, {}, [], 0, -1

    def end(self, number, outcome):
        self.over[number], self.ended_us[number] = outcome, self.clock.now_us
        self.newest = None

    def is_remembered(self, number):
        return self.clock.now_us < self.ended_us.get(number, inf) + REMEMBERED_US

    def run(self, number):
        self.end(number, "ran")
        self.ran = max(self.ran, number)

    def outcome(self, number):
        """Return how a call is answered that is not the newest."""
        if number == self.ran:
            return "runs"
        may_run = self.over[number] != "superseded" and self.is_remembered(number)
        return "runs" if may_run and number > self.ran else "superseded"

    @rule()
    def call(self):
        number, now, self.count = self.count, self.clock.now_us, self.count + 1
        is_over = self.newest is not None and self.due <= now
        if is_over and now < self.due + 2_000_000 and self.first + self.at_most_us > now:
            self.end(self.newest, "may run")
        elif is_over and now >= self.due + 2_000_000:
            self.told.append(f"t{self.newest}")
            self.end(self.newest, "superseded")
        if self.newest is None:
            self.first = now
        else:
            self.told.append(f"t{self.newest}")
            self.end(self.newest, "superseded")
        self.newest, self.due = number, max(now, int(min(now + 100_000, self.first + self.at_most_us)))
        expected = ["waits", now, self.due]
        if self.due == now:
            self.run(number)
            expected = ["runs"]
        assert self.scripts.enter(f"t{number}", "live") == expected

    @rule(pick=st.integers(0, 10**6))
    def copy_arrives(self, pick):
        """It has no ticket."""
        number = pick % max(1, self.count)
        if self.count and self.is_remembered(number):
            self.expect(number, self.scripts.enter(f"t{number}", "live"))

    @rule(pick=st.integers(0, 10**6), left_us=st.sampled_from([-1, 0, 50_000]))
    def ask(self, pick, left_us):
        if not self.count:
            return
        number = pick % self.count
        if f"t{number}" in self.scripts.tickets:  # else it ran at once
            self.expect(number, self.scripts.ask(f"t{number}", left_us, "live"))

    def expect(self, number, reply):
        """Compare the reply to a call that comes once more."""
        expected = ["waits", self.clock.now_us, self.due]
        if number == self.newest and self.due <= self.clock.now_us:
            self.run(number)
        if number != self.newest:
            expected = [self.outcome(number)]
            if expected == ["runs"]:
                self.over[number], self.ran = "ran", max(self.ran, number)
        assert reply == expected

    @rule()
    def withdraw(self):
        if self.newest is not None:
            number = self.newest
            self.end(number, "superseded")
            assert self.scripts.cancel(f"t{number}") == CANCELLED

    @rule(us=st.sampled_from([1, 30_000, 60_000, 100_000, 2_000_000]))
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
