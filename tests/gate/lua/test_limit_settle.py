"""limit_settle.lua: what an admission counts for, and what is taken back."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, unchanged
from tests._support.limits import SECOND_US, messages

DONE = ["settled", 0]


@pytest.mark.parametrize(("new_cost", "used"), [(1, 3), (2, 4), (3, 5), (9, 11), (0, 2)])
def test_an_admission_counts_for_its_new_cost_at_its_time(limits, clock, new_cost, used):
    a = limits((10, 1000), (20, 5000))
    a.attempt("t0", 2)
    clock.now_us += 10
    a.attempt("t1", 3)
    clock.now_us += 10
    assert a.settle("t1", 3, new_cost) == DONE
    for per_ms in (1000, 5000):
        assert a.window(per_ms) == {"t0 2": NOW_US} | ({f"t1 {new_cost}": NOW_US + 10} if new_cost else {})
        assert a.used(per_ms) == used
    assert a.tombstones() == ([] if new_cost else ["t1"])


def test_the_only_admission_of_a_window_can_be_settled_and_taken_back(limits):
    a = limits((10, 1000))
    a.attempt("t1", 3)
    assert a.settle("t1", 3, 5) == DONE
    assert a.window() == {"t1 5": NOW_US}
    assert 0 < a.client.pttl(a.windows[0]) <= 2000
    assert a.settle("t1", 5, 0) == DONE
    assert not a.client.exists(*a.windows)


def test_a_cost_above_the_limit_lets_no_one_in_until_enough_has_lapsed(limits, clock):
    a = limits((10, 1000))
    for token in ("t1", "t2"):
        a.attempt(token)
        clock.now_us += 100
    a.settle("t1", 1, 30)
    assert a.inspect() == (0, [(31, SECOND_US - 100)])
    assert a.attempt("t3") == ["refused", SECOND_US - 200, 0]
    clock.now_us = NOW_US + SECOND_US
    assert a.attempt("t3") == ["admitted", clock.now_us, 8]


def test_an_admission_is_settled_until_it_has_lapsed(limits, clock):
    a = limits((10, 1000))
    a.attempt("t1")
    clock.now_us += SECOND_US - 1
    a.settle("t1", 1, 5)
    assert a.used() == 5


def test_what_has_lapsed_is_not_brought_back(limits, clock):
    a = limits((10, 1000), (20, 5000))
    a.attempt("t1")
    clock.now_us += SECOND_US
    assert a.settle("t1", 1, 5) == DONE
    assert a.window(1000) == {}
    assert a.window(5000) == {"t1 5": NOW_US}
    clock.now_us += 4 * SECOND_US
    assert a.settle("t1", 5, 6) == DONE
    assert a.window(5000) == {}


def test_what_has_lapsed_and_is_not_dropped_yet_is_not_changed(limits, clock):
    a = limits((2000, 1000))
    a.fill(600, NOW_US - 700)
    a.attempt("t1")
    clock.now_us += SECOND_US
    assert a.settle("t1", 1, 5) == ["settled", 1]
    assert a.window()["t1 1"] == NOW_US
    assert a.settle("t1", 1, 5) == DONE
    assert a.window() == {}


def test_an_unknown_admission_changes_nothing(limits):
    a = limits((10, 1000))
    a.attempt("t1")
    with unchanged(a):
        assert a.settle("t2", 1, 5) == DONE
        assert a.settle("t1", 2, 5) == DONE
        assert a.settle("t1", 1, 1) == DONE


def test_what_is_given_back_goes_to_the_first_waiters_at_once(limits, clock, listening):
    a = limits((3, 1000))
    inbox = listening("w1", "w2", "w3")
    a.attempt("t1", 3)
    clock.now_us += 10
    for token, cost in (("w1", 1), ("w2", 2), ("w3", 1)):
        a.acquire(token, cost)
    assert a.settle("t1", 3, 2) == DONE
    assert a.queue() == ["w2", "w3"]
    assert a.window() == {"t1 2": NOW_US, "w1 1": clock.now_us}
    assert messages(inbox) == [("w1", "admitted", 0), ("w2", "come", NOW_US + SECOND_US)]
    clock.now_us += 10
    assert a.settle("t1", 2, 0) == DONE
    assert a.queue() == ["w3"]
    assert messages(inbox) == [("w2", "admitted", 0), ("w3", "come", NOW_US + SECOND_US + 10)]


def test_the_first_waiter_learns_a_time_that_has_come_nearer(limits, clock, listening):
    a = limits((4, 1000))
    inbox = listening("w1")
    for token, cost in (("t1", 1), ("t2", 3)):
        a.attempt(token, cost)
        clock.now_us += 100
    assert a.acquire("w1", 3) == ["queued", clock.now_us, 0, SECOND_US - 100]
    a.settle("t2", 3, 2)
    assert messages(inbox) == [("w1", "come", NOW_US + SECOND_US + 100)], "both have to lapse"
    a.settle("t1", 1, 0)
    assert messages(inbox) == [("w1", "come", NOW_US + SECOND_US + 100)]
    a.settle("t2", 2, 1)
    assert messages(inbox) == [("w1", "admitted", 0)]


def test_a_cost_that_is_raised_wakes_no_one(limits, listening):
    a = limits((4, 1000))
    inbox = listening("w1")
    a.attempt("t1", 4)
    a.acquire("w1")
    for cost, new_cost in ((4, 5), (5, 5)):
        a.settle("t1", cost, new_cost)
    assert messages(inbox) == []


# --- leaving the queue


def test_a_waiter_leaves_the_queue_and_the_next_one_learns_its_time(limits, clock, listening):
    a = limits((1, 1000))
    inbox = listening("w1", "w2", "w3")
    a.attempt("t1")
    for token in ("w1", "w2", "w3"):
        a.acquire(token)
    assert a.cancel("w2") == DONE
    assert messages(inbox) == [], "the first one has not changed"
    assert a.queue() == ["w1", "w3"]
    assert a.cancel("w1") == DONE
    assert messages(inbox) == [("w3", "come", NOW_US + SECOND_US)]
    assert a.tombstones() == ["w1", "w2"]


def test_a_large_cost_that_leaves_lets_smaller_ones_in(limits, listening):
    a = limits((10, 1000))
    inbox = listening("large", "w1", "w2")
    a.attempt("t1", 6)
    for token, cost in (("large", 8), ("w1", 2), ("w2", 2)):
        a.acquire(token, cost)
    a.cancel("large", 8)
    assert a.queue() == []
    assert messages(inbox) == [("w1", "admitted", 2), ("w2", "admitted", 0)]


def test_what_was_admitted_while_its_caller_gave_up_is_taken_back(limits, clock, listening):
    a = limits((1, 1000))
    listening("w1")
    a.attempt("t1")
    a.acquire("w1")
    clock.now_us += SECOND_US
    a.attempt("new")
    assert a.window() == {"w1 1": clock.now_us}
    assert a.cancel("w1") == DONE
    assert a.window() == {}
    assert a.queue() == []


# --- tombstones


@pytest.mark.parametrize(
    ("new_cost", "copies", "remembered"), [(0, 0, True), (0, 1, True), (2, 1, True), (2, 0, False)]
)
def test_a_token_is_remembered_if_a_copy_of_its_acquire_could_do_harm(limits, new_cost, copies, remembered):
    a = limits((10, 1000))
    a.attempt("t1")
    a.settle("t1", 1, new_cost, copies=copies)
    assert a.tombstones() == ["t1"] * remembered
    assert a.attempt("t1")[0] == ("finished" if remembered else "admitted")
    assert a.used() == (new_cost if remembered else new_cost + 1)


def test_tombstones_are_forgotten_after_20_seconds_200_a_call(limits, clock):
    a = limits((10, 1000))
    for number in range(250):
        a.cancel(f"t{number:03}")
    clock.now_us += 20 * SECOND_US - 1
    a.cancel("t250")
    assert len(a.tombstones()) == 251
    clock.now_us += 1
    a.cancel("t251")
    assert len(a.tombstones()) == 52
    a.cancel("t252")
    assert a.tombstones() == ["t250", "t251", "t252"]


def test_a_single_tombstone_is_forgotten_too(limits, clock):
    a = limits((10, 1000))
    a.cancel("t1")
    clock.now_us += 20 * SECOND_US
    a.cancel("t2")
    assert a.tombstones() == ["t2"]


def test_a_token_that_is_cancelled_again_is_remembered_for_longer(limits, clock):
    a = limits((10, 1000))
    a.cancel("t1")
    clock.now_us += 20 * SECOND_US
    a.cancel("t1")
    assert a.tombstones() == ["t1"]


# --- bounded work


def test_where_more_has_lapsed_than_one_call_drops_it_says_so(limits, clock):
    a = limits((2000, 1000))
    a.fill(700, NOW_US - 2 * SECOND_US)
    assert a.cancel("t1") == ["settled", 1]
    assert a.cancel("t1") == DONE
    assert a.window() == {}


def test_where_more_waiters_are_gone_than_one_call_drops_it_says_so(limits, clock):
    a = limits((1, 1000))
    a.attempt("t1")
    for number in range(150):
        a.acquire(f"w{number:03}")
    assert a.settle("t1", 1, 0) == ["settled", 1]
    assert len(a.queue()) == 150 - 101
    assert a.settle("t1", 1, 0) == DONE
    assert a.queue() == []
