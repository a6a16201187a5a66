"""limit_inspect.lua: how full the windows are, and how many wait."""

from __future__ import annotations

from tests._support.engine import NOW_US, WAIT_US, unchanged
from tests._support.limits import SECOND_US


def test_an_idle_limiter_is_empty_and_has_no_keys(limits):
    a = limits((10, 1000), (20, 5000))
    with unchanged(a):
        assert a.inspect() == (0, [(0, 0), (0, 0)])
    assert a.client.keys() == []


def test_it_shows_what_is_used_and_when_that_is_over(limits, clock):
    a = limits((10, 1000), (20, 5000))
    a.attempt("t1", 3)
    clock.now_us += 400_000
    a.attempt("t2", 4)
    with unchanged(a):
        assert a.inspect() == (0, [(7, SECOND_US), (7, 5 * SECOND_US)])
        clock.now_us += 600_000
        assert a.inspect() == (0, [(4, 400_000), (7, 5 * SECOND_US - 600_000)])
        clock.now_us += 400_000
        assert a.inspect() == (0, [(0, 0), (7, 4 * SECOND_US)])


def test_it_counts_the_waiters(limits):
    a = limits((1, 1000))
    a.attempt("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    with unchanged(a):
        assert a.inspect() == (2, [(1, SECOND_US)])


def test_it_does_not_count_waiters_whose_wait_lease_is_over(limits, clock):
    a = limits((1, 10**9))
    a.attempt("t1")
    for token in ("dead", "alive", "gone"):
        a.acquire(token)
    a.client.hdel(a.key("waiting"), "gone")
    clock.now_us += WAIT_US
    a.acquire("alive")
    clock.now_us += 1
    assert a.inspect()[0] == 1


def test_a_window_that_is_read_after_the_clock_was_set_back_is_used_for_longer(limits, clock):
    a = limits((10, 1000))
    a.attempt("t1")
    clock.now_us -= 10
    with unchanged(a):
        assert a.inspect() == (0, [(1, SECOND_US + 10)])


def test_much_that_has_lapsed_is_not_counted(limits):
    a = limits((10_000, 1000))
    a.fill(3000, NOW_US - 2 * SECOND_US, cost=3)
    a.fill(5, NOW_US, cost=2)
    assert a.inspect()[1][0][0] == 10
