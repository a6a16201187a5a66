"""The MEMORY lines of the headers: at maxmemory requests are refused and change nothing, and the rest works (invariant 11)."""

from __future__ import annotations

import pytest

from tests._support.engine import (
    NOW_US,
    TOMBSTONE_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    WAIT_US,
    Several,
    refused,
    unchanged,
)

# --- one name


def test_holders_and_waiters_go_on_and_newcomers_are_refused(a, listening, raw):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    raw.config_set("maxmemory", 1)
    with refused(a):
        a.acquire("t3")
    with unchanged(a):
        assert a.acquire("t3", wait=0)[0] == "busy"
    assert a.renew("t1")[0] == "renewed"
    assert a.acquire("t2")[0] == "queued"
    assert a.release("t1")[0] == "released"
    assert a.holders() == ["t2"]
    assert a.cancel("t2")[0] == "cancelled"
    with refused(a):
        a.acquire("t4")


@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
@pytest.mark.parametrize("queued", [True, False])
def test_no_newcomer_gets_in_behind_its_own_sweep(make, listening, raw, *, weight, wait_ms, queued):
    engine = make(4)
    listening("waits")
    engine.acquire("expired")
    engine.acquire("holds")
    if queued:
        engine.acquire("waits", 3)
    engine.end_lease("expired")
    raw.config_set("maxmemory", 1)
    for token in ("new", "expired"):
        with refused(engine):
            engine.acquire(token, weight, wait=wait_ms)
    if queued:
        assert engine.acquire("waits", 3)[0] == "granted"


def test_no_room_is_made_in_a_full_queue(a, clock, raw):
    a.acquire("t1", ttl=2 * WAIT_MS)
    a.acquire("lapsed")
    clock.now_us += WAIT_US + 1
    raw.config_set("maxmemory", 1)
    with refused(a):
        a.acquire("t2", max_waiters=1)


def test_a_limit_is_not_set_but_removed(make, listening, raw):
    engine = make(2)
    listening("next")
    engine.acquire("held", 2)
    engine.acquire("next")
    engine.resize(1)
    raw.config_set("maxmemory", 1)
    with refused(engine):
        engine.resize(4)
    assert engine.resize(0) == ["resized", 0]
    assert engine.stored().limit == 0
    engine.release("held")
    assert engine.holders() == ["next"]


def test_a_lease_is_lowered_and_its_permits_are_handed_over(rw, listening, raw):
    listening("r1", "r2", "w2")
    rw.acquire("w", rw.limit)
    for token in ("r1", "r2", "w2"):
        rw.acquire(token, rw.limit if token == "w2" else 1)
    raw.config_set("maxmemory", 1)
    assert rw.lower("w", 1) == ["lowered", 0]
    assert sorted(rw.holders()) == ["r1", "r2", "w"]
    for token in ("w", "r1", "r2"):
        assert rw.release(token) == ["released", 0]
    assert rw.holders() == ["w2"]


def test_a_release_beside_expired_leases_frees_them_too(make, raw):
    engine = make(4)
    for token in ("t1", "t2", "waits"):
        engine.acquire(token, 2)
    engine.end_lease("t2")
    raw.config_set("maxmemory", 1)
    assert engine.release("t1") == ["released", 0]
    assert engine.holders() == []


# --- one or two names


def test_a_lease_is_renewed(locks, raw):
    locks.acquire("t1")
    raw.config_set("maxmemory", 1)
    assert locks.renew("t1", 2 * TTL_MS) == ["renewed", 2 * TTL_US]
    for engine in locks.engines:
        assert engine.stored().holders == {"t1": NOW_US + 2 * TTL_US}
        engine.lives(*([2 * TTL_MS, "state"] if engine is locks else [WAIT_MS + TTL_MS]))


def test_a_release_that_knows_of_copies_leaves_a_tombstone_all_the_same(locks, raw):
    locks.acquire("t1")
    locks.acquire("t2")
    raw.config_set("maxmemory", 1)
    assert locks.release("late", copies=True) == locks.release("t2", copies=True) == ["lost"]
    assert all((engine.holders(), engine.queue()) == (["t1"], []) for engine in locks.engines)
    raw.config_set("maxmemory", 0)
    assert locks.acquire("late") == locks.acquire("t2") == ["finished"]


def test_of_two_names_holders_and_waiters_go_on_and_newcomers_are_refused(clock, both, a, listening, raw):
    listening("t2")
    both.acquire("t1")
    both.acquire("t2")
    others = Several(clock, "cd")
    raw.config_set("maxmemory", 1)
    for names in (both, others, Several(clock, "da")):
        for wait_ms in (WAIT_MS, 0):
            with refused(both, others):
                names.acquire("t3", wait=wait_ms)
    assert not any(any(found) for found in others.dump())
    assert both.acquire("t1")[0] == "granted"
    assert both.acquire("t2")[0] == "queued"
    assert both.renew("t1")[0] == "renewed"
    assert both.release("t1") == ["released", 0]
    assert both.acquire("t2")[0] == "granted", "a waiter takes up nothing new"
    a.revoke(a.inspect()[2])
    assert both.release("t2") == ["lost"]
    assert both.holders() == [[], []]
    assert both.cancel("t4") == ["cancelled", 0]


def test_of_two_names_no_newcomer_gets_in_behind_its_own_sweep(raw, both, a, b, clock):
    a.acquire("t1")
    b.acquire("t2")
    clock.now_us += TTL_US
    raw.config_set("maxmemory", 1)
    with refused(both):
        both.acquire("t3")


def test_of_two_names_the_rest_of_a_lost_lease_is_no_way_in(raw, both, a):
    both.acquire("t1")
    a.end_lease("t1")
    raw.config_set("maxmemory", 1)
    with refused(both):
        both.acquire("t1")
    assert both.cancel("t1") == ["cancelled", 0]
    assert both.holders() == [[], []]


# --- data


@pytest.mark.parametrize("how", ["set", "keep"])
def test_names_are_not_ranked_but_found_and_unranked(index, raw, how):
    index.fill({"a": 1, "b": 2})
    raw.config_set("maxmemory", 1)
    for names in (("c", "3"), ("a", "3")):
        with refused(index):
            index.run("names_rank", how, *names)
    assert index.scan("", 5) == (["a", "b"], "")
    assert index.run("names_unrank", "a") == ["unranked"]
    assert index.scan("", 5) == (["b"], "")


def test_scores_are_not_advanced_but_an_answer_is_given_again(index, raw):
    first = index.advance("1", "a", answer="x")
    raw.config_set("maxmemory", 1)
    for number, pair in enumerate((("2", "a"), ("1", "b"), ("0", "a"))):
        with refused(index):
            index.advance(*pair, answer=str(number))
    with unchanged(index):
        assert index.advance("1", "a", answer="x") == first


# --- what is refused anyway needs no memory


def test_a_full_queue_says_so(a, listening, raw):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    raw.config_set("maxmemory", 1)
    with unchanged(a):
        assert a.acquire("t3", max_waiters=1) == ["full", 1]


def test_a_token_that_was_released_is_answered_busy(make, raw):
    engine = make(2)
    engine.acquire("t1")
    engine.acquire("t2")
    engine.release("t1")
    engine.resize(1)
    raw.config_set("maxmemory", 1)
    with unchanged(engine):
        assert engine.acquire("t1", wait=0) == ["busy", TTL_US]


# --- what passes at maxmemory lets nothing else through


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
@pytest.mark.parametrize("token", ["new", "expired"])
def test_no_newcomer_gets_in_behind_the_sweep_of_a_lease_beside_another(make, raw, wait_ms, token):
    engine = make(2)
    engine.acquire("held")
    engine.acquire("expired")
    engine.end_lease("expired")
    raw.config_set("maxmemory", 1)
    with refused(engine):
        engine.acquire(token, wait=wait_ms)


def test_no_newcomer_gets_in_behind_the_sweep_of_a_tombstone(a, clock, raw):
    a.cancel("gone")
    clock.now_us += TOMBSTONE_US
    raw.config_set("maxmemory", 1)
    with refused(a):
        a.acquire("new")


def test_one_of_several_holders_renews_and_lowers(make, raw):
    engine = make(4)
    engine.acquire("t1")
    engine.acquire("t2", 3)
    raw.config_set("maxmemory", 1)
    assert engine.renew("t2", 2 * TTL_MS) == ["renewed", 2 * TTL_US]
    assert engine.stored().holders["t2"] == NOW_US + 2 * TTL_US
    assert engine.lower("t2", 1) == ["lowered", 0]
    assert engine.stored().used == 2
