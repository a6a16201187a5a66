"""Sequences that the simulator has found: repeated requests, what a sweep leaves, and keys that were lost."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TTL_MS, TTL_US, Several, hang_up


def test_a_repeated_acquire_of_one_of_several_holders_finds_its_grant(make):
    engine = make(3)
    for token in ("t1", "t2"):
        engine.acquire(token)
    before = engine.stored()
    assert engine.acquire("t2", limit=2) == ["granted", NOW_US + 1, TTL_US], "all are out: it is not queued"
    assert engine.acquire("t2") == ["granted", NOW_US + 1, TTL_US], "some are left: it is not granted another one"
    assert engine.stored() == before


def test_what_a_sweep_has_removed_is_not_counted_after_a_reply_that_grants_nothing(make, clock):
    engine = make(3)
    engine.acquire("long", 2)
    engine.acquire("short", ttl=1)
    clock.now_us += 2000
    assert engine.acquire("t", 2, wait=0)[0] == "busy"
    assert engine.stored().used == 2
    assert engine.acquire("t")[0] == "granted"


def test_a_state_that_comes_back_beside_its_tokens_has_a_ttl(make, raw, listening):
    engine = make(2)
    listening("waits")
    engine.acquire("t1")
    engine.acquire("t2")
    engine.acquire("waits", 2)
    raw.delete(engine.key("state"))
    engine.release("t2")
    engine.lives(TTL_MS)


def test_a_repeated_release_of_several_names_is_unknown_once_one_of_them_has_another_holder(both, a):
    both.acquire("t1")
    assert both.release("t1") == ["released", 0]
    assert both.release("t1") == ["released", 0]
    a.acquire("t2")
    assert both.release("t1") == ["unknown"]
    assert a.holders() == ["t2"]


def test_a_release_of_several_names_of_which_one_was_lost_is_lost(both, a):
    both.acquire("t1")
    a.end_lease("t1")
    a.acquire("t2")
    assert both.release("t1") == ["lost"]
    assert both.holders() == [["t2"], []]


def test_a_waiter_that_lets_others_in_behind_it_gets_its_own_fence(make, clock, listening):
    engine = make(2)
    listening("second")
    pubsub = listening("first")
    engine.acquire("held", 2, ttl=1)
    engine.acquire("first")
    engine.acquire("second")
    hang_up(clock, pubsub, "first")
    listening("first")
    clock.now_us += 2000
    tag, fence, _ = engine.acquire("first")
    assert (tag, fence) == ("granted", clock.now_us)
    assert engine.holders() == ["second", "first"]
    assert engine.acquire("first")[1] == fence


def test_a_full_queue_leaves_no_keys_of_the_other_names(both, clock, raw, listening):
    a, c = both.engines[0], Several(clock, "ac")
    listening("waits")
    a.acquire("held")
    a.acquire("waits")
    before = sorted(raw.keys())
    assert c.acquire("t", max_waiters=1) == ["full", 1]
    assert sorted(raw.keys()) == before


@pytest.mark.parametrize("with_copies", [False, True])
def test_no_waiter_gets_more_than_its_own_limit_once_an_operators_limit_is_gone(make, listening, with_copies):
    engine = make(1)
    listening("first", "second")
    engine.resize(5)
    engine.acquire("held", 5)
    engine.acquire("first")
    engine.acquire("second", 3)
    engine.resize(0)
    engine.release("held")
    assert engine.holders() == ["first"]
    engine.release("first", copies=with_copies)
    assert engine.holders() == []
    assert engine.queue() == []
