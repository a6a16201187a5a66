"""limit_resize.lua, and what the other scripts do where rates are set: those count for all, and no one loses a place."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.limits import read_limits
from handfast._engine.packing import doubles
from tests._support.engine import HOUR_MS, MONTH_MS, NOW_US, runs_through, unchanged
from tests._support.limits import SECOND_US, messages

DONE = ["resized", 0]
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def own(limits):
    """Return the scripts of a limiter under the rates that its clients bring."""
    return limits((1, 1000))


@pytest.fixture
def others(own):
    """Return them under the rates that an operator sets."""
    return own.under((3, 1000), (4, 5000), follows=True)


def told(reply):
    tag, packed = reply
    assert tag == "rates"
    return read_limits(packed)


def test_who_brings_other_rates_hears_which_count_and_changes_nothing(own, others, clock):
    assert others.resize() == DONE
    with unchanged(own):
        assert told(own.attempt("t1")) == told(own.acquire("t1")) == told(own.look()) == [(3, 1000), (4, 5000)]
    assert [others.attempt(f"t{number}")[0] for number in range(4)] == ["admitted"] * 3 + ["refused"]
    assert others.inspect() == (0, [(3, SECOND_US), (3, 5 * SECOND_US)])


def test_who_brings_the_same_rates_hears_nothing_of_them(own):
    own.resize()
    assert own.attempt("t1") == ["admitted", NOW_US, 0]


@pytest.mark.parametrize("is_busy", [True, False])
def test_where_none_are_set_any_more_each_brings_its_own_again(own, others, raw, is_busy):
    others.resize()
    if is_busy:
        assert own.resize(is_set=False) == DONE
    else:
        raw.delete(own.key("settings"))
    assert told(others.attempt("t1")) == told(others.look()) == []
    assert own.attempt("t1") == ["admitted", NOW_US, 0]


def test_a_period_counts_what_was_admitted_in_it_before_and_another_one_begins_empty(own, others):
    own.attempt("t1")
    others.resize()
    assert others.attempt("t2") == ["admitted", NOW_US, 1]
    assert own.resize(is_set=False) == DONE
    assert own.attempt("t3") == ["refused", SECOND_US, 0], "it is above its limit"


def test_what_was_admitted_before_is_answered_as_before(own, others, clock):
    own.attempt("t1")
    others.resize()
    clock.now_us += 10
    assert own.attempt("t1")[:2] == ["admitted", NOW_US]


def test_a_copy_under_former_rates_writes_nothing(own, others, clock):
    more = own.under((1, 1000), (7, 9000))
    more.attempt("t1")
    more.client.delete(more.window_key(9000))
    others.resize()
    with unchanged(more):
        assert more.attempt("t1") == ["admitted", NOW_US, 0]


def test_a_call_under_former_rates_admits_no_waiter_under_those_that_count(own, subscribe):
    inbox, fewer = subscribe("inbox:t3"), own.under((1, 9000), follows=True)
    own.attempt("t1")
    fewer.resize()
    fewer.attempt("t2")
    fewer.acquire("t3")
    assert own.settle("t1", 1, 0)[0] == "settled"
    assert [what for _, what, _ in messages(inbox)] in ([], ["come"])
    assert own.queue() == ["t3"]


def test_the_first_waiter_comes_asks_under_the_new_rates_and_calls_the_next(own, others, subscribe):
    inbox = subscribe("inbox:t2", "inbox:t3")
    own.attempt("t1")
    for token in ("t2", "t3"):
        own.acquire(token)
    assert others.resize() == DONE
    assert messages(inbox) == [("t2", "come", NOW_US)]
    assert told(own.acquire("t2", ticket=own.tickets["t2"])) == [(3, 1000), (4, 5000)]
    assert own.queue() == ["t2", "t3"]
    assert others.acquire("t2", ticket=own.tickets["t2"]) == ["admitted", NOW_US, 1]
    assert messages(inbox) == [("t3", "come", NOW_US)]
    assert others.acquire("t3", ticket=own.tickets["t3"]) == ["admitted", NOW_US, 0]


def test_no_one_overtakes_a_waiter_that_has_not_asked_under_the_new_rates(own, others, listening):
    listening("t2")
    own.attempt("t1")
    own.acquire("t2")
    others.resize()
    assert others.attempt("t3")[0] == "refused"
    assert others.acquire("t4")[:3] == ["queued", NOW_US, 1]


@pytest.mark.parametrize("act", ["settle", "resume"])
def test_no_call_under_former_rates_admits_a_waiter_under_them(own, clock, subscribe, act):
    inbox, fewer = subscribe("inbox:t2"), own.under((1, 9000), follows=True)
    own.attempt("t1")
    own.acquire("t2")
    fewer.resize()
    assert messages(inbox) == [("t2", "come", NOW_US)]
    clock.now_us += SECOND_US
    assert (own.settle("t1", 1, 0) if act == "settle" else own.pause(0))[1] == 0
    assert [what for _, what, _ in messages(inbox)] in ([], ["come"])
    assert own.queue() == ["t2"]
    assert own.window() == {} or act == "resume"


@pytest.mark.parametrize("act", ["settle", "resume", "attempt"])
def test_no_call_admits_a_waiter_under_rates_that_were_removed(own, others, subscribe, act):
    """Its own are stricter, and it has not asked under them yet."""
    inbox, same = subscribe("inbox:t3"), own.under(*others.rates)
    others.resize()
    others.attempt("t1")
    others.attempt("t2")
    others.pause(500)
    others.acquire("t3")
    own.resize(is_set=False)
    (others if act == "resume" else own).pause(0)
    if act == "settle":
        others.settle("t1", 1, 0)
    elif act == "attempt":
        assert same.attempt("t4")[0] == "refused"
    assert {what for _, what, _ in messages(inbox)} == {"come"}
    assert own.queue() == ["t3"]
    assert told(others.acquire("t3", ticket=own.tickets["t3"])) == []
    assert own.acquire("t3", ticket=own.tickets["t3"])[0] == "queued"


@pytest.mark.parametrize("is_set", [True, False])
def test_a_waiter_whose_rates_count_again_is_admitted_at_once(own, others, clock, subscribe, is_set):
    inbox = subscribe("inbox:t2")
    own.attempt("t1")
    own.acquire("t2")
    others.resize()
    messages(inbox)
    clock.now_us += SECOND_US
    assert own.resize(is_set=is_set) == DONE
    assert messages(inbox) == [("t2", "admitted", 0)]


def test_to_set_none_where_none_are_set_stores_nothing(own):
    assert own.resize(is_set=False) == DONE
    assert not own.client.exists(own.key("settings"))


def test_it_goes_on_where_more_has_lapsed_than_one_call_drops(own, others, clock):
    others.fill(501, NOW_US)
    clock.now_us += 10 * SECOND_US
    assert others.resize() == ["resized", 1]
    assert others.resize() == DONE


def test_rates_are_kept_for_30_days_after_the_last_call(own, others, clock):
    others.resize()
    assert MONTH_MS - DAY_MS < own.client.pttl(own.key("settings")) <= MONTH_MS
    own.client.pexpire(own.key("settings"), MONTH_MS - DAY_MS - 1000)
    others.attempt("t1")
    assert own.client.pttl(own.key("settings")) > MONTH_MS - 1000 * 60


def test_the_last_change_is_noted(own, others, clock):
    assert (own.inspect(), own.last) == ((0, [(0, 0)]), b"")
    others.resize()
    others.inspect()
    assert others.last == doubles(clock.now_us) + b"resize me 2 rates"
    others.pause(2500)
    others.inspect()
    assert others.last[8:] == b"pause me 2.500"
    others.pause(1000)
    others.inspect()
    assert others.last[8:] == b"pause me 2.500", "one that changes nothing is not noted"
    clock.now_us += 10
    others.pause(0)
    others.pause(0)
    others.inspect()
    assert others.last[8:] == b"resume me "
    own.resize(is_set=False)
    own.inspect()
    assert own.last[8:] == b"resize me 1 rates"


def test_a_pause_does_not_shorten_the_life_of_rates(own, others):
    others.resize()
    others.pause(5)
    others.pause(0)
    assert own.client.pttl(own.key("settings")) > MONTH_MS - DAY_MS


@pytest.mark.parametrize("paused_ms", [None, 5, 2 * HOUR_MS])
def test_the_note_of_rates_that_were_removed_lives_for_an_hour_or_as_long_as_a_pause(own, others, paused_ms):
    others.resize()
    if paused_ms is not None:
        others.pause(paused_ms)
    own.resize(is_set=False)
    longest = max(HOUR_MS, (paused_ms or 0) + 1000)
    assert longest - 1000 < own.client.pttl(own.key("settings")) <= longest
    own.resize(is_set=False)
    own.inspect()
    assert own.last[8:] == b"resize me 1 rates"


def test_it_goes_on_where_more_are_gone_than_one_call_drops(own, others):
    own.attempt("t0")
    for number in range(102):
        own.acquire(f"w{number}")
    assert others.resize() == ["resized", 1]
    assert others.resize() == DONE
    assert own.queue() == []


def test_at_maxmemory_rates_are_neither_set_nor_is_anything_admitted_and_they_can_be_removed(own, others, raw):
    others.resize()
    raw.config_set("maxmemory", 1)
    for refused in (others.resize, lambda: others.attempt("t1"), lambda: others.acquire("t1")):
        with pytest.raises(redis.ResponseError, match="not allowed when used memory"):
            refused()
    assert own.resize(is_set=False) == DONE
    raw.config_set("maxmemory", 0)
    assert own.attempt("t1")[0] == "admitted"


CUT_OFF = {
    "resize": ("limit_resize", "nothing", [1, "me", "why"]),
    "resize to none": ("limit_resize", "rates", [0, "me", "why"]),
    "pause": ("limit_pause", "nothing", [doubles(500), "me"]),
    "resume": ("limit_pause", "pause", [doubles(0), "me"]),
}
"""The script, what was set before, and its arguments but for the rates."""


@pytest.mark.parametrize("case", CUT_OFF)
def test_what_was_cut_off_is_set_and_noted_when_it_is_sent_again(own, others, raw, listening, case):
    """A waiter that it was about to admit asks again, as test_cut_off has it."""
    listening("w1", "w2")
    name, before, args = CUT_OFF[case]
    script, scripts = own.load(name), others if case == "resize" else own
    argv = [*args, scripts.packed_rates]

    def run(commands):
        raw.flushdb()
        if before == "rates":
            others.resize()
        elif before == "pause":
            own.pause(5000)
        for token in ("w1", "w2"):
            (others if before == "rates" else own).acquire(token)
        done = runs_through(own.client, script.source, scripts.keys, argv, commands)
        assert runs_through(own.client, script.source, scripts.keys, argv, 1000)
        return done, own.dump()[-1]

    (_, whole), commands, done = run(1000), 0, False
    while not done:
        done, found = run(commands)
        assert found == whole, commands
        commands += 1
    assert commands > 3
