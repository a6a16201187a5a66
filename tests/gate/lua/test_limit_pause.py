"""limit_pause.lua: while a limiter pauses no one is admitted, and no one loses a place."""

from __future__ import annotations

import pytest
import redis

from tests._support.engine import NOW_US
from tests._support.limits import SECOND_US, messages

DONE = ["paused", 0]


def test_no_one_is_admitted_in_a_pause_and_all_learn_when_it_ends(limits, clock, subscribe):
    a, inbox = limits((10, 1000)), subscribe("inbox:t4")
    assert a.pause(300) == DONE
    clock.now_us += 100_000
    assert a.attempt("t1") == ["refused", 200_000, 0]
    assert a.acquire("t2", patience=199_999) == ["refused", 200_000, 0]
    assert a.acquire("t3", patience=200_000) == ["queued", clock.now_us, 0, 200_000]
    assert a.acquire("t4") == ["queued", clock.now_us, 1, 200_000]
    assert (a.inspect(), a.paused_us) == ((2, [(0, 0)]), 200_000)
    assert a.window() == {}
    clock.now_us = NOW_US + 300_000
    assert a.acquire("t3", ticket=a.tickets["t3"]) == ["admitted", clock.now_us, 9]
    assert messages(inbox) == [("t4", "admitted", 8)]
    assert (a.inspect()[0], a.paused_us) == (0, 0)


def test_who_waits_already_keeps_the_place_and_learns_the_new_time_when_asking(limits, clock, subscribe):
    a, inbox = limits((1, 1000)), subscribe("inbox:t2", "inbox:t3")
    a.attempt("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    assert a.pause(5000) == DONE
    assert messages(inbox) == []
    clock.now_us += SECOND_US
    assert a.acquire("t2", ticket=a.tickets["t2"]) == ["queued", clock.now_us, 0, 4 * SECOND_US]
    assert a.settle("t1", 1, 0) == ["settled", 0], "what is given back admits no one either"
    assert messages(inbox) == []
    assert a.queue() == ["t2", "t3"]


def test_what_was_admitted_before_is_answered_as_before(limits, clock):
    a = limits((10, 1000))
    first = a.acquire("t1")
    a.pause(500)
    clock.now_us += 10
    assert a.acquire("t1")[:2] == first[:2]
    assert a.window() == {"t1 1": NOW_US}


def test_a_pause_becomes_longer_and_never_shorter(limits, clock):
    a = limits((10, 1000))
    for ms, left_us in ((300, 300_000), (100, 300_000), (300, 300_000), (400, 400_000)):
        assert a.pause(ms) == DONE
        a.inspect()
        assert a.paused_us == left_us
    clock.now_us += 200_000
    a.pause(300)
    a.inspect()
    assert a.paused_us == 300_000


@pytest.mark.parametrize("ms", [1, 1000, 366 * 24 * 3600 * 1000])
def test_a_pause_ends_by_itself_also_where_the_clock_is_set_back(limits, ms):
    a = limits((10, 1000))
    a.pause(ms)
    assert ms < a.client.pttl(a.key("settings")) <= ms + 1000


def test_to_end_a_pause_admits_all_who_fit_and_tells_the_next_one(limits, clock, subscribe):
    a, inbox = limits((2, 1000)), subscribe("inbox:t1", "inbox:t2", "inbox:t3")
    a.pause(5000)
    for token in ("t1", "t2", "t3"):
        a.acquire(token)
    clock.now_us += 10
    assert a.pause(0) == DONE
    assert messages(inbox) == [("t1", "admitted", 1), ("t2", "admitted", 0), ("t3", "come", clock.now_us + SECOND_US)]
    assert a.queue() == ["t3"]
    assert not a.client.hexists(a.key("settings"), "paused_until")
    assert a.pause(0) == DONE
    assert a.attempt("t4")[0] == "refused"


def test_where_the_first_one_does_not_fit_yet_it_gets_a_message_when_to_come(limits, clock, subscribe):
    a, inbox = limits((1, 1000)), subscribe("inbox:t2")
    a.attempt("t1")
    a.pause(5000)
    a.acquire("t2")
    assert a.pause(0) == DONE
    assert messages(inbox) == [("t2", "come", NOW_US + SECOND_US)]


def test_to_end_a_pause_where_there_is_none_stores_nothing(limits):
    a = limits((1, 1000))
    assert a.pause(0) == DONE
    assert not a.client.exists(a.key("settings"))


def test_to_end_a_pause_goes_on_where_more_has_lapsed_than_one_call_drops(limits, clock):
    a = limits((1000, 1000))
    a.fill(501, NOW_US)
    clock.now_us += 10 * SECOND_US
    assert a.pause(0) == ["paused", 1]
    assert a.pause(0) == DONE


def test_to_end_a_pause_goes_on_where_more_are_gone_than_one_call_drops(limits):
    a = limits((1, 1000))
    a.pause(5000)
    for number in range(102):
        a.acquire(f"t{number}")
    assert a.pause(0) == ["paused", 1]
    assert a.pause(0) == DONE
    assert a.queue() == []


def test_at_maxmemory_a_pause_is_refused_and_its_end_is_not(limits, raw):
    a = limits((10, 1000))
    a.pause(5000)
    a.acquire("t1")
    raw.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="not allowed when used memory"):
        a.pause(9000)
    assert a.pause(0) == DONE
    raw.config_set("maxmemory", 0)
    assert a.queue() == []
