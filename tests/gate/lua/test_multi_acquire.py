"""multi_acquire: all names are granted with one fence, or the token waits in every queue and holds nothing.

How the head of a queue is woken is in test_lib_handoff.py.
"""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import (
    CLAIM_MS,
    HOUR_MS,
    NOW_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    WAIT_US,
    Several,
    holding,
    holding_several,
    unchanged,
    waiting,
    waiting_for_several,
)

# --- superseded


@pytest.mark.parametrize("number", [0, 1])
def test_a_request_that_another_one_replaces_in_one_queue_is_superseded_in_all(both, listening, number):
    one = both.engines[number]
    listening("t2", "t3")
    both.acquire("t1")
    both.acquire("t2")
    one.acquire("t3")
    assert one.run("overtake", token="t3", grace_ms=-1, by="", reason="")[0] == "asked"
    assert both.acquire("t2") == ["superseded"]


# --- granted


def test_a_grant_of_free_names_has_a_fence_above_all_that_they_had(both, a, b, clock):
    b.acquire("t0")
    clock.now_us += 10
    b.release("t0")
    b.set_fence(NOW_US + 50)
    assert both.acquire("t1") == ["granted", NOW_US + 51, TTL_US]
    for engine in (a, b):
        assert engine.stored().holders == {"t1": NOW_US + 10 + TTL_US}
        assert engine.record("t1") == holding_several("t1", fence=NOW_US + 51)
        assert (engine.stored().used, engine.stored().fence) == (1, NOW_US + 51)
    a.lives(WAIT_MS + TTL_MS)
    clock.now_us += 5
    with unchanged(both):
        assert both.acquire("t1") == ["granted", NOW_US + 51, TTL_US - 5]


def test_names_that_were_used_before_get_a_fence_above_all_that_they_had(both, a, b):
    both.acquire("t0")
    both.release("t0")
    for number, engine in enumerate((a, b)):
        engine.set_fence(NOW_US + 50 + 50 * number)
        assert both.acquire("t1") == ["granted", NOW_US + 51 + 50 * number, TTL_US]
        assert both.fences("t1") == [NOW_US + 51 + 50 * number] * 2
        both.release("t1")


def test_a_grant_after_a_wait_has_a_fence_above_all_that_the_names_had(both, a, b, listening):
    listening("t2")
    a.acquire("t1")
    both.acquire("t2")
    a.release("t1")
    b.set_fence(NOW_US + 100)
    assert both.acquire("t2")[:2] == ["granted", NOW_US + 101]


def test_a_dead_head_that_is_skipped_does_not_split_the_fence(both, a):
    a.acquire("t1")
    a.acquire("dead1")
    a.acquire("dead2")
    a.end_lease("t1")
    assert both.acquire("t2")[0] == "granted"
    first, second = both.fences("t2")
    assert first == second
    assert both.acquire("t2")[:2] == ["granted", first]


def test_a_lease_ends_with_the_first_of_its_names_and_has_the_largest_fence(both, a, b, clock):
    both.acquire("t1")
    a.renew("t1", 2 * TTL_MS)
    clock.now_us += 7
    assert both.acquire("t1") == ["granted", NOW_US, TTL_US - 7]
    b.renew("t1", 3 * TTL_MS)
    assert both.acquire("t1") == ["granted", NOW_US, 2 * TTL_US - 7]


def test_of_leases_with_different_fences_the_largest_counts_wherever_it_is(both, a, b, clock):
    a.acquire("t0")
    a.release("t0")
    a.set_fence(NOW_US + 50)
    for engine in (a, b):
        engine.acquire("t1")
    assert both.fences("t1") == [NOW_US + 51, NOW_US]
    for names in ("ab", "ba"):
        assert Several(clock, names).acquire("t1") == ["granted", NOW_US + 51, TTL_US]


def test_names_that_become_free_are_taken_when_the_last_one_does(both, a, b, clock, listening):
    listening("t2")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2")
    a.release("t1")
    assert both.acquire("t2") == ["queued", NOW_US, 0, TTL_US], "one of them is not free"
    clock.now_us += 5
    b.release("t0")
    assert both.acquire("t2", ttl=2 * TTL_MS) == ["granted", NOW_US + 5, 2 * TTL_US]
    for engine in (a, b):
        engine.has(
            holders={"t2": NOW_US + 5 + 2 * TTL_US},
            t2=holding_several("t2", fence=NOW_US + 5),
            used=1,
            fence=NOW_US + 5,
        )


def test_expired_leases_of_all_names_are_swept(both, a, b, clock):
    a.acquire("t1")
    b.acquire("t2")
    clock.now_us += TTL_US
    assert both.acquire("t3", wait=0) == ["granted", clock.now_us, TTL_US]
    for engine in (a, b):
        engine.has(
            holders={"t3": clock.now_us + TTL_US},
            t3=holding_several("t3", fence=clock.now_us),
            used=1,
            fence=clock.now_us,
        )


def test_a_lease_that_ends_now_is_over(both, a, clock):
    both.acquire("t1")
    a.cancel("t2")  # its tombstone keeps the script from its short way
    clock.now_us += TTL_US
    assert both.acquire("t1") == ["granted", NOW_US + TTL_US, TTL_US]
    assert both.fences("t1") == [NOW_US + TTL_US] * 2


@pytest.mark.parametrize("short_us", [1, TTL_US, 2 * TTL_US, HOUR_MS * 1000])
def test_keys_that_would_live_too_short_get_a_longer_ttl_with_the_grant(both, clock, raw, short_us):
    """Invariant 5: they outlive the lease by an hour."""
    both.acquire("t0")
    both.release("t0")
    left_us = TTL_US + HOUR_MS * 1000 - short_us
    clock.now_us += (WAIT_US + TTL_US + 2 * HOUR_MS * 1000) - left_us
    for engine in both.engines:
        for part in PARTS:
            raw.pexpire(engine.key(part), left_us // 1000)
    assert both.acquire("t1") == ["granted", clock.now_us, TTL_US]
    for engine in both.engines:
        engine.lives(WAIT_MS + TTL_MS)


def test_a_name_keeps_the_limit_that_an_operator_has_set(both, a, b, clock):
    a.resize(3)
    assert both.acquire("t1")[0] == "granted"
    a.lives(TTL_MS, limited=True)
    a.acquire("t2", ttl=2 * TTL_MS)
    b.end_lease("t1")
    b.acquire("t3", ttl=2 * TTL_MS)
    assert both.acquire("t1") == ["queued", NOW_US, 0, 2 * TTL_US]
    a.has(
        holders={"t2": NOW_US + 2 * TTL_US},
        queue={"t1": NOW_US + 1},
        t1=waiting_for_several("t1"),
        t2=holding("t2", 1, 1, fence=NOW_US + 1),
        used=1,
        fence=NOW_US + 1,
        limit=3,
    )


def test_a_hundred_names_are_one_call(clock, listening):
    listening("t2")
    many = Several(clock, [f"n{number}" for number in range(100)])
    assert many.acquire("t1") == ["granted", NOW_US, TTL_US]
    assert set(many.fences("t1")) == {NOW_US}
    assert many.acquire("t2") == ["queued", NOW_US, 0, TTL_US]
    assert many.renew("t1")[0] == "renewed"
    assert many.release("t1") == ["released", 0]
    assert many.acquire("t2")[0] == "granted"
    assert many.cancel("t2") == ["cancelled", 0]
    assert many.holders() == many.queues() == [[]] * 100


# --- records that were lost


def test_a_holder_whose_state_was_evicted_is_granted_again(clock, both, a):
    both.acquire("t1")
    a.lose("state")
    clock.now_us += 1
    assert both.acquire("t1") == ["granted", NOW_US + 1, TTL_US]
    assert a.holders() == ["t1"]


def test_a_name_that_lost_its_count_is_not_free(both, b):
    b.resize(2)
    b.acquire("t0")
    b.acquire("t1")
    b.lose("state")
    assert both.acquire("t2") == ["queued", NOW_US, 0, TTL_US]


# --- queued


def test_what_a_waiter_stores_in_each_queue(both, a, b, clock, listening):
    listening("t2", "t3")
    a.acquire("t1")
    b.acquire("t0", ttl=2 * TTL_MS)
    b.acquire("t3")
    clock.now_us += 1000
    assert both.acquire("t2") == ["queued", NOW_US + 1000, 1, 2 * TTL_US - 1000]
    a.has(
        holders={"t1": NOW_US + TTL_US},
        queue={"t2": NOW_US + 1000},
        t1=holding("t1", 1, 1),
        t2=waiting_for_several("t2", at_us=NOW_US + 1000),
        used=1,
        fence=NOW_US,
    )
    b.has(
        holders={"t0": NOW_US + 2 * TTL_US},
        queue={"t3": NOW_US, "t2": NOW_US + 1000},
        t0=holding("t0", 1, 1),
        t3=waiting("t3", 1, 1, CLAIM_MS),
        t2=waiting_for_several("t2", at_us=NOW_US + 1000),
        used=1,
        fence=NOW_US,
    )
    a.lives(WAIT_MS + TTL_MS)
    clock.now_us += 1000
    assert both.acquire("t2", wait=2 * WAIT_MS) == ["queued", NOW_US + 2000, 1, 2 * TTL_US - 2000]
    expected = waiting_for_several("t2", 2 * WAIT_MS, at_us=NOW_US + 2000)
    assert a.record("t2") == b.record("t2") == expected
    assert b.stored().queue == {"t3": NOW_US, "t2": NOW_US + 1000}


def test_a_waiter_holds_nothing_and_is_not_overtaken_where_a_name_is_free(both, a, b, listening):
    listening("t2", "t3", "t4")
    a.acquire("t1")
    assert both.acquire("t2") == ["queued", NOW_US, 0, TTL_US]
    assert both.holders() == [["t1"], []]
    assert both.queues() == [["t2"], ["t2"]]
    assert b.acquire("t3", wait=0) == ["busy", -1]
    assert b.acquire("t3")[:3:2] == ["queued", 1]
    assert both.acquire("t4")[2] == 1, "the last of its places counts"
    assert both.acquire("t2")[2] == 0
    assert both.queues() == [["t2", "t4"], ["t2", "t3", "t4"]]


def test_a_holder_that_lost_a_name_is_granted_all_again_or_waits_for_all(both, a, b, listening):
    both.acquire("t1")
    a.end_lease("t1")
    assert both.acquire("t1") == ["granted", NOW_US + 1, TTL_US]
    assert both.fences("t1") == [NOW_US + 1] * 2

    listening("t2", "t3")
    b.acquire("t3")
    a.end_lease("t1")
    a.acquire("t2")
    assert both.acquire("t1")[0] == "queued"
    assert both.holders() == [["t2"], ["t3"]], "the name that it still held went to its waiter"
    assert both.queues() == [["t1"], ["t1"]]


def test_a_waiter_that_was_dropped_from_one_queue_has_the_same_place_in_all_again(both, a, b, listening):
    listening("slow", "t2", "t3")
    a.acquire("t1")
    both.acquire("slow")
    both.acquire("t2")
    b.end_wait("slow")
    assert b.acquire("t3", wait=0)[0] == "busy"
    assert both.queues() == [["slow", "t2"], ["t2"]]
    assert both.acquire("slow")[0] == "queued"
    assert both.queues() == [["slow", "t2"], ["slow", "t2"]]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_requests_in_a_circle_are_all_served_in_their_order(clock, listening, first):
    listening("t0", "t1", "t2")
    requests = [Several(clock, names) for names in ("ab", "bc", "ca")]
    Several(clock, "cba").acquire("all")
    for number in range(3):
        assert requests[number].acquire(f"t{number}")[0] == "queued"
    Several(clock, "bac").release("all")
    served = []
    for turn in range(3):
        for number in ((first + turn) % 3, (first + turn + 1) % 3, (first + turn + 2) % 3):
            if number not in served and requests[number].acquire(f"t{number}")[0] == "granted":
                served.append(number)
                assert requests[number].release(f"t{number}")[0] == "released"
    assert served == [0, 1, 2]


# --- when to ask again


def test_busy_says_when_the_last_of_the_names_becomes_free_and_nothing_is_stored(both, a, b, clock):
    a.acquire("t1", ttl=2 * TTL_MS)
    b.acquire("t0")
    clock.now_us += 9
    with unchanged(both):
        assert both.acquire("try", wait=0) == ["busy", 2 * TTL_US - 9]
    a.release("t1")
    with unchanged(both):
        assert both.acquire("try", wait=0) == ["busy", TTL_US - 9]


def test_even_the_shortest_wait_lease_enters_the_queues(both, a, listening):
    listening("t2")
    a.acquire("t1")
    assert both.acquire("t2", wait=1) == ["queued", NOW_US, 0, TTL_US]
    assert both.queues() == [["t2"], ["t2"]]


def test_beside_leases_that_expired_and_are_not_swept_yet_it_is_to_ask_again_at_once(both, a, listening):
    listening("t1")
    a.add_holders(101, ends_us=NOW_US - 1000)
    assert both.acquire("t1") == ["queued", NOW_US, 0, 0]
    assert both.acquire("t1") == ["granted", NOW_US, TTL_US]


def test_behind_a_waiter_that_was_woken_there_is_no_time_to_ask_again(clock, both, a, b, listening):
    listening("t2", "t3")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2")
    a.release("t1")
    assert Several(clock, "ac").acquire("t3") == ["queued", NOW_US, 0, -1]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("dead", [100, 150])
def test_behind_a_hundred_dead_waiters_it_is_to_ask_again_at_once(both, a, b, held, dead):
    a.acquire("t1")
    for number in range(dead):
        a.acquire(f"dead{number:03}")
    a.end_lease("t1")
    if held:
        b.acquire("t0")
    assert both.acquire("t2") == ["queued", NOW_US, max(0, dead - 101), 0]
    assert both.acquire("t2") == (["queued", NOW_US, 0, TTL_US] if held else ["granted", NOW_US + 1, TTL_US])


# --- full


@pytest.mark.parametrize("full", [0, 1])
def test_one_full_queue_is_enough_and_nothing_is_left_in_the_others(both, listening, full):
    listening("t2", "t3")
    for engine in both.engines:
        engine.acquire("t1")
    for token in ("t2", "t3"):
        both.engines[full].acquire(token)
    with unchanged(both):
        assert both.acquire("t4", max_waiters=2) == ["full", 2]
    assert both.acquire("t4", max_waiters=3) == ["queued", NOW_US, 2, TTL_US]
    assert both.acquire("t4", max_waiters=1)[0] == "queued"


def test_full_says_the_length_of_the_longest_queue_after_lapsed_waiters_are_evicted(both, a, b, clock, listening):
    listening("t2", "t3", "t4", "t5")
    a.acquire("t1", ttl=2 * WAIT_MS)
    b.acquire("t0", ttl=2 * WAIT_MS)
    a.acquire("t2")
    for token in ("t3", "t4"):
        b.acquire(token)
    with unchanged(both):
        assert both.acquire("t5", max_waiters=2) == ["full", 2]
        assert both.acquire("t5", max_waiters=1) == ["full", 2]
    clock.now_us += WAIT_US + 1
    assert Several(clock, "ba").acquire("t5", max_waiters=1)[0] == "queued"
    assert a.queue() == b.queue() == ["t5"]
    assert both.acquire("t6", max_waiters=1) == ["full", 1]


def test_a_waiter_with_some_of_its_places_is_never_answered_full(both, a, b, listening):
    listening("t2", "t3", "t4")
    a.acquire("t1")
    both.acquire("t2", max_waiters=1)
    b.end_wait("t2")
    b.acquire("t3")
    b.acquire("t4")
    assert both.queues() == [["t2"], ["t4"]]
    assert both.acquire("t2", max_waiters=1)[0] == "queued"
    assert both.queues() == [["t2"], ["t2", "t4"]]


def test_a_waiter_that_holds_as_many_names_as_it_waits_for_is_not_answered_full(both, a, b, listening):
    listening("t2", "t3")
    b.acquire("t1")
    b.acquire("t3")
    for engine in (a, b):
        engine.acquire("t2")
    assert (both.holders(), both.queues()) == ([["t2"], ["t1"]], [[], ["t3", "t2"]])
    assert both.acquire("t2", max_waiters=1)[0] == "queued"
    assert (both.holders(), both.queues()) == ([[], ["t1"]], [["t2"], ["t3", "t2"]])
