"""limit_reset.lua: admissions until a time are forgotten, and no later admission, whenever the script arrives."""

from __future__ import annotations

import pytest

from handfast._engine.packing import doubles
from handfast._engine.script import load
from tests._support.engine import NOW_US, runs_through, unchanged
from tests._support.limits import SECOND_US, messages

DONE, MORE = ["reset", 0], ["reset", 1]
NOT_FULL = 500
"""Admissions that a call drops."""


def test_what_was_admitted_is_forgotten_under_every_rate_and_waiters_come_in_their_order(limits, clock, subscribe):
    a, inbox = limits((2, 1000), (3, 60_000)), subscribe("inbox:w1", "inbox:w2", "inbox:w3")
    for token in ("t1", "t2"):
        a.attempt(token)
    for token in ("w1", "w2", "w3"):
        a.acquire(token)
    clock.now_us += 10
    assert a.reset(clock.now_us) == DONE
    assert a.window(1000) == a.window(60_000) == {"w1 1": clock.now_us, "w2 1": clock.now_us}
    assert [message[:2] for message in messages(inbox)[:2]] == [("w1", "admitted"), ("w2", "admitted")]
    assert a.queue() == ["w3"]


def test_twice_and_late_it_forgets_nothing_that_came_since(limits, clock):
    a = limits((2, 60_000))
    a.attempt("t1")
    until_us = clock.now_us
    assert a.reset(until_us) == DONE
    clock.now_us += 5
    a.attempt("t2")
    for _ in range(2):
        with unchanged(a):
            assert a.reset(until_us) == DONE
    assert a.window() == {"t2 1": clock.now_us}
    assert a.settle("t1", 1, 2) == ["settled", 0]
    assert a.used() == 1, "what is forgotten has no window to change"


def test_where_the_clock_was_set_back_all_are_forgotten(limits, clock):
    a = limits((1, 60_000))
    a.attempt("t1")
    clock.now_us -= 3600 * SECOND_US
    assert a.reset(clock.now_us) == DONE
    assert a.window() == {}
    assert a.attempt("t2")[0] == "admitted"


def test_a_pause_and_rates_that_are_set_stay(limits, clock):
    own = limits((9, 1000))
    set_by_others = own.under((2, 1000), follows=True)
    set_by_others.resize()
    own.pause(5000)
    set_by_others.fill(2, NOW_US - 10)
    assert set_by_others.reset(NOW_US) == DONE
    assert set_by_others.inspect() == (0, [(0, 0)])
    assert set_by_others.paused_us == 5 * SECOND_US
    assert own.look()[0] == "rates"


def test_many_are_forgotten_in_several_calls(limits):
    a = limits((10_000, 60_000))
    a.fill(NOT_FULL + 1, NOW_US - 10)
    assert a.reset(NOW_US) == MORE
    assert a.used() == 1
    assert a.reset(NOW_US) == DONE
    assert a.window() == {}


@pytest.mark.parametrize("cost", [1, 5])
def test_it_works_at_maxmemory(limits, listening, raw, cost):
    a = limits((5, 1000))
    listening("w")
    a.attempt("t1", 5)
    a.acquire("w", cost)
    raw.config_set("maxmemory", 1)
    assert a.reset(NOW_US) == DONE
    assert (a.queue(), a.used()) == ([], cost)
    assert a.client.pttl(a.windows[0]) > 0


def test_cut_off_and_sent_again_it_forgets_the_same_and_each_waiter_is_admitted_once(limits, listening, raw):
    listening("w1", "w2")
    a = limits((6, 1000), (9, 5000))
    source, argv = load("limit_reset").source, [doubles(NOW_US + 1000), a.packed_rates]
    done, commands = False, 0
    while not done:
        raw.flushdb()
        a.client.now_us = NOW_US
        a.attempt("old", 6)
        a.acquire("w1", 2)
        a.acquire("w2", 3)
        a.client.now_us += 2000
        done = runs_through(a.client, source, a.keys, argv, commands)
        assert a.reset(NOW_US + 1000) == DONE
        for token, cost in (("w1", 2), ("w2", 3)):
            assert a.acquire(token, cost, ticket=a.tickets[token])[0] == "admitted"
        assert ({*a.window(1000)}, {*a.window(5000)}, a.queue()) == ({"w1 2", "w2 3"}, {"w1 2", "w2 3"}, [])
        assert all(a.client.pttl(key) > 0 for key in a.windows)
        commands += 1
    assert commands > 5
