"""permit_acquire: what each of its replies says, and what it stores. What other scripts share is in test_lib_*.py."""

from __future__ import annotations

import pytest

from tests._support.engine import (
    CLAIM_MS,
    CLAIM_US,
    NOW_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    hang_up,
    holding,
    queue_dead_writers,
    received,
    refused,
    silent,
    unchanged,
    waiting,
)

# --- granted


def test_a_grant_of_a_free_name(make):
    engine = make()
    assert engine.acquire("t1", 2) == ["granted", NOW_US, TTL_US]
    engine.has(holders={"t1": NOW_US + TTL_US}, t1=holding("t1", 2, 5), used=2, fence=NOW_US)
    engine.lives(TTL_MS, "state")
    assert engine.inspect()[:3] == ["state", NOW_US, NOW_US]


def test_grants_beside_another(make, clock):
    engine = make()
    engine.acquire("t1", 2)
    assert engine.acquire("t2", 1, limit=6, ttl=2 * TTL_MS) == ["granted", NOW_US + 1, 2 * TTL_US]
    clock.now_us += 1000
    assert engine.acquire("t3", 2) == ["granted", NOW_US + 1000, TTL_US]
    engine.has(
        holders={"t1": NOW_US + TTL_US, "t3": NOW_US + TTL_US + 1000, "t2": NOW_US + 2 * TTL_US},
        t1=holding("t1", 2, 5),
        t2=holding("t2", 1, 6, fence=NOW_US + 1),
        t3=holding("t3", 2, 5, fence=NOW_US + 1000),
        used=5,
        fence=NOW_US + 1000,
    )
    engine.lives(2 * TTL_MS)


@pytest.mark.parametrize("limit", [2, 3, 4])
@pytest.mark.parametrize("full", [False, True])
def test_a_holder_beside_others_that_asks_again_finds_its_grant(make, raw, limit, full):
    engine = make(limit)
    engine.acquire("t1")
    granted = engine.acquire("t2")
    if full:
        raw.config_set("maxmemory", 1)
    with unchanged(engine):
        assert engine.acquire("t2") == granted


def test_a_waiter_whose_last_lease_was_released_is_a_waiter(a, listening):
    """Its token may still be in the state."""
    listening("t2")
    a.acquire("t1")
    a.release("t1")
    a.acquire("t1")
    a.end_lease("t1")
    a.resize(2)
    a.acquire("t2", 2)
    assert a.acquire("t1")[0] == "queued"
    assert a.release("t1") == ["unknown"]
    assert a.queue() == []


def test_a_grant_within_a_limit_that_an_operator_has_set(make):
    engine = make()
    engine.resize(3)
    assert engine.acquire("t1", 3) == ["granted", NOW_US, TTL_US]
    engine.has(holders={"t1": NOW_US + TTL_US}, t1=holding("t1", 3, 5), used=3, fence=NOW_US, limit=3)
    engine.lives(TTL_MS, "state", limited=True)


def test_a_grant_beside_another_keeps_the_limit_of_an_operator(make):
    engine = make(1)
    engine.acquire("t0")
    engine.resize(2)
    assert engine.acquire("t1")[0] == "granted"
    engine.lives(TTL_MS, limited=True)


def test_a_grant_with_waiters_in_the_queue_goes_to_them_first(a, listening):
    """The short way is for a name without holders and without waiters."""
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    a.end_lease("t1")
    assert a.acquire("t3", wait=0) == ["busy", CLAIM_US]
    assert a.holders() == ["t2"]


def test_the_caller_is_granted_its_whole_ttl_after_the_waiters_before_it(make, clock, listening):
    engine = make()
    inbox = listening("t2", "t3")
    engine.acquire("t1", 5)
    engine.acquire("t2", 2)
    engine.acquire("t3", 2, limit=4)
    clock.now_us += TTL_US
    assert engine.acquire("t3", 2, limit=4, ttl=2 * TTL_MS) == ["granted", clock.now_us + 1, 2 * TTL_US]
    assert received(inbox) == f"granted t2 {clock.now_us} {clock.now_us} {CLAIM_US}"
    assert silent(inbox)
    engine.has(
        holders={"t2": clock.now_us + CLAIM_US, "t3": clock.now_us + 2 * TTL_US},
        t2=holding("t2", 2, 5, fence=clock.now_us),
        t3=holding("t3", 2, 4, fence=clock.now_us + 1),
        used=4,
        fence=clock.now_us + 1,
    )


def test_a_holder_whose_record_was_evicted_is_granted_again_but_not_at_maxmemory(make, clock, raw):
    engine = make(4)
    engine.acquire("t0")
    engine.acquire("t1")
    engine.lose_record("t1")
    clock.now_us += 1
    raw.config_set("maxmemory", 1)
    with refused(engine):
        engine.acquire("t1")
    with unchanged(engine):
        assert engine.acquire("other", 3, wait=0) == ["busy", TTL_US - 1], "a refusal needs no memory"
    raw.config_set("maxmemory", 0)
    assert engine.acquire("t1") == ["granted", NOW_US + 2, TTL_US]
    engine.has(
        holders={"t0": NOW_US + TTL_US, "t1": NOW_US + 1 + TTL_US},
        t0=holding("t0", 1, 4),
        t1=holding("t1", 1, 4, fence=NOW_US + 2),
        used=3,
        fence=NOW_US + 2,
    )


# --- queued


def test_what_waiters_store_and_are_answered(make, clock, listening):
    engine = make()
    listening("t2", "t3")
    engine.acquire("t1", 4)
    clock.now_us += 1_000
    assert engine.acquire("t2", 2) == ["queued", NOW_US + 1_000, 0, TTL_US - 1_000]
    clock.now_us += 1_000
    assert engine.acquire("t3", 1, limit=6) == ["queued", NOW_US + 2_000, 1, TTL_US - 2_000]
    engine.has(
        holders={"t1": NOW_US + TTL_US},
        queue={"t2": NOW_US + 1_000, "t3": NOW_US + 2_000},
        t1=holding("t1", 4, 5),
        t2=waiting("t2", 2, 5, CLAIM_MS, at_us=NOW_US + 1_000),
        t3=waiting("t3", 1, 6, CLAIM_MS, at_us=NOW_US + 2_000),
        used=4,
        fence=NOW_US,
    )
    engine.lives(WAIT_MS + CLAIM_MS)


def test_a_waiter_that_asks_again_keeps_its_place_and_its_time_of_arrival(make, clock, listening):
    engine = make()
    listening("t2", "t3", "t4")
    engine.acquire("t1", 5)
    for token in ("t2", "t3"):
        engine.acquire(token)
    clock.now_us += 5_000_000
    assert engine.acquire("t3", wait=WAIT_MS + 1000) == ["queued", NOW_US + 5_000_000, 1, TTL_US - 5_000_000]
    assert engine.record("t3") == waiting("t3", 1, 5, CLAIM_MS, WAIT_MS + 1000, at_us=NOW_US + 5_000_000)
    assert engine.acquire("t4")[2] == 2
    engine.cancel("t2")
    engine.acquire("t3")
    assert engine.acquire("t4")[2] == 1
    assert engine.stored().queue == {"t3": NOW_US + 1, "t4": NOW_US + 5_000_000}


def test_a_queue_lives_as_long_as_the_longest_wait_in_it(a):
    a.acquire("t1", ttl=1000)
    a.acquire("t2", wait=1000, claim=1000)
    a.lives(2000)
    a.resize(1)
    a.acquire("t3")
    a.lives(WAIT_MS + CLAIM_MS, limited=True)


@pytest.mark.parametrize("expires", ["first", "last"])
def test_a_token_whose_lease_has_expired_is_queued_as_a_new_waiter(make, clock, listening, expires):
    engine = make(2)
    listening("t1")
    tokens = ["t1", "t2"] if expires == "first" else ["t2", "t1"]
    for token in tokens:
        engine.acquire(token, ttl=TTL_MS if token == "t1" else 2 * TTL_MS)
    clock.now_us += TTL_US
    assert engine.acquire("t1", 2) == ["queued", clock.now_us, 0, TTL_US]
    engine.has(
        holders={"t2": NOW_US + 2 * TTL_US},
        queue={"t1": clock.now_us},
        t1=waiting("t1", 2, 2, CLAIM_MS, at_us=clock.now_us),
        t2=holding("t2", 1, 2, fence=NOW_US + tokens.index("t2")),
        used=1,
        fence=NOW_US + 1,
    )
    assert engine.release("t1") == ["unknown"], "it is a waiter, and has no lease to give up"


def test_a_request_that_does_not_fit_is_not_overtaken_and_gets_permits_as_they_become_free(make, listening):
    engine = make(4)
    listening("large", "small")
    for token in ("a", "b", "c"):
        engine.acquire(token)
    engine.acquire("large", 3)
    assert engine.acquire("small")[::2] == ["queued", 1]
    engine.release("a")
    assert engine.queue() == ["large", "small"]
    engine.release("b")
    assert engine.holders() == ["large", "c"]
    assert engine.queue() == ["small"]
    engine.release("c")
    assert engine.holders() == ["large", "small"]


# --- readers and writers, who ask for 1 and for all permits


def test_phases_of_readers_and_writers_follow_the_order_of_arrival(rw, listening):
    """Readers that wait side by side are granted together; a reader behind a writer waits for it."""
    arrivals = ("r1", "r2", "w2", "r3", "r4", "w3", "w4", "r5")
    listening(*arrivals)
    rw.acquire("w1", rw.limit)
    for token in arrivals:
        assert rw.acquire(token, rw.limit if token[0] == "w" else 1)[0] == "queued"
    phases = []
    while holders := rw.holders():
        phases.append(holders)
        for token in holders:
            assert rw.release(token) == ["released", 0]
    assert phases == [["w1"], ["r1", "r2"], ["w2"], ["r3", "r4"], ["w3"], ["w4"], ["r5"]]
    assert rw.queue() == []


def test_a_writer_waits_for_the_last_reader_and_is_then_alone(rw, listening):
    listening("w", "late")
    for token in ("r1", "r2", "r3"):
        assert rw.acquire(token)[0] == "granted"
    rw.acquire("w", rw.limit)
    rw.acquire("late")
    for token in ("r1", "r2"):
        rw.release(token)
        assert rw.queue() == ["w", "late"]
    rw.release("r3")
    assert rw.holders() == ["w"]
    assert rw.stored().used == rw.limit
    assert rw.inspect()[4] == rw.limit


def test_neither_a_reader_nor_a_try_overtakes_a_writer_that_waits(rw, listening):
    listening("w", "r2")
    rw.acquire("r1")
    rw.acquire("w", rw.limit)
    with unchanged(rw):
        assert rw.acquire("try", wait=0) == ["busy", TTL_US]
        assert rw.acquire("try", rw.limit, wait=0) == ["busy", TTL_US]
    assert rw.acquire("r2")[::2] == ["queued", 1]
    assert rw.holders() == ["r1"]


# --- busy


def test_busy_says_when_the_next_lease_ends_and_nothing_is_stored(make, clock, listening):
    engine = make()
    listening("t3")
    engine.acquire("t1", 2, ttl=2 * TTL_MS)
    engine.acquire("t2", 2)
    clock.now_us += 1_000
    with unchanged(engine):
        assert engine.acquire("try", 2, wait=0) == ["busy", TTL_US - 1_000]
    engine.acquire("t3", 2)
    with unchanged(engine):
        assert engine.acquire("try", 1, wait=0) == ["busy", TTL_US - 1_000], "a waiter is before it"
    clock.now_us += TTL_US
    assert engine.acquire("try", 3, wait=0) == ["busy", CLAIM_US], "the waiter holds its permits now"


def test_busy_behind_a_hundred_dead_waiters_says_to_come_back_at_once(a):
    a.acquire("t1")
    for number in range(100):
        a.acquire(f"dead{number}")
    a.end_lease("t1")
    assert a.acquire("try", wait=0) == ["busy", 0]
    assert a.queue() == a.holders() == []
    assert a.record("try") is None
    assert a.acquire("try", wait=0)[0] == "granted"


def test_a_waiter_behind_a_hundred_dead_waiters_is_to_come_back_at_once(rw, listening):
    queue_dead_writers(rw, listening, 120)
    assert rw.acquire("alive") == ["queued", NOW_US, 20, 0]
    assert rw.acquire("alive")[0] == "granted"


@pytest.mark.parametrize("answer", ["busy", "full", "exceeds_limit"])
def test_a_token_whose_lease_has_expired_and_that_is_refused_leaves_no_record(make, listening, answer):
    listening("waiter")
    engine = make(2)
    engine.acquire("t1")
    engine.acquire("t2")
    if answer == "full":
        engine.acquire("waiter", 2)
    if answer == "exceeds_limit":
        engine.resize(1)
    engine.end_lease("t2")
    reply = engine.acquire("t2", 2, **({"wait": 0} if answer == "busy" else {"max_waiters": 1}))
    assert reply[0] == answer
    assert engine.holders() == ["t1"]
    assert engine.record("t2") is None
    assert engine.stored().used == 1


# --- full


def test_a_full_queue_takes_no_newcomer_but_keeps_its_waiters(a, listening):
    listening("t2")
    a.acquire("t1")
    assert a.acquire("t2", max_waiters=1)[0] == "queued"
    with unchanged(a):
        assert a.acquire("t3", max_waiters=1) == ["full", 1]
        assert a.acquire("t2", max_waiters=1)[0] == "queued"


# --- exceeds_limit


def test_a_request_above_its_own_limit_stores_nothing(make):
    engine = make(2)
    assert engine.acquire("t1", 3) == ["exceeds_limit", 2]
    assert engine.client.keys() == []


def test_a_request_above_a_limit_that_an_operator_has_set_stores_nothing(make):
    engine = make(4)
    engine.resize(2)
    for number in range(2):
        with unchanged(engine):
            assert engine.acquire("t1", 3) == ["exceeds_limit", 2]
            assert engine.acquire("t1", 3, wait=0) == ["exceeds_limit", 2]
        engine.acquire(f"holder{number}", 2)


def test_a_waiter_above_a_new_limit_leaves_the_queue_before_its_turn(make, listening):
    engine = make()
    listening("t2", "t3")
    engine.acquire("t1", 5)
    engine.acquire("t2", 4)
    engine.acquire("t3", 1)
    engine.resize(3)
    for _ in range(2):
        assert engine.acquire("t2", 4) == ["exceeds_limit", 3]
        engine.has(
            holders={"t1": NOW_US + TTL_US},
            queue={"t3": NOW_US + 1},
            t1=holding("t1", 5, 5),
            t3=waiting("t3", 1, 5, CLAIM_MS),
            used=5,
            fence=NOW_US,
            limit=3,
        )
    assert engine.acquire("t4", 4) == ["exceeds_limit", 3]
    assert engine.acquire("t4", 3, max_waiters=1) == ["full", 1]
    assert engine.acquire("t4", 3, max_waiters=2)[0] == "queued"


def test_a_waiter_above_a_new_limit_leaves_the_queue_from_behind_a_head_that_fits(make, listening):
    engine = make()
    listening("head", "latest")
    engine.acquire("t1", 5)
    for token, weight in (("head", 3), ("large", 4), ("latest", 1)):
        engine.acquire(token, weight)
    engine.resize(3)
    assert engine.acquire("large", 4) == ["exceeds_limit", 3]
    assert engine.queue() == ["head", "latest"]
    assert engine.record("large") is None


def test_a_waiter_above_a_new_limit_that_leaves_lets_those_behind_it_in(make, listening):
    engine = make(4)
    listening("first", "large", "latest")
    engine.acquire("held", 4)
    for token, weight in (("first", 2), ("large", 3), ("latest", 1)):
        engine.acquire(token, weight)
    engine.resize(2)
    engine.end_wait("first")
    engine.end_lease("held")
    assert engine.acquire("large", 3) == ["exceeds_limit", 2]
    assert engine.holders() == ["latest"]
    assert engine.queue() == []


# --- clients whose limits differ


def test_each_request_counts_by_its_own_limit(make):
    engine = make(4)
    assert engine.acquire("a", 3)[0] == "granted"
    assert engine.acquire("b", 2, limit=4, wait=0)[0] == "busy"
    assert engine.acquire("b", 2, limit=6, wait=0)[0] == "granted"
    assert engine.acquire("c", 1, limit=4, wait=0)[0] == "busy"
    assert engine.acquire("c", 1, limit=6, wait=0)[0] == "granted"
    assert engine.acquire("d", 1, limit=6, wait=0)[0] == "busy"


def test_a_waiter_with_a_small_limit_is_not_overtaken_by_those_with_larger_ones(make, listening):
    engine = make(4)
    listening("small", "large")
    engine.acquire("held", 2)
    assert engine.acquire("small", 1, limit=2)[0] == "queued"
    assert engine.acquire("large", 1, limit=6)[::2] == ["queued", 1]
    assert engine.acquire("try", 1, limit=6, wait=0)[0] == "busy"
    engine.release("held")
    assert engine.holders() == ["large", "small"]


def test_a_dead_head_with_a_small_limit_does_not_block_those_with_larger_ones(make, listening):
    engine = make(5)
    head = listening("head")
    listening("alive")
    engine.acquire("held", 2)
    engine.acquire("head", limit=2)
    assert engine.acquire("alive")[0] == "queued"
    hang_up(engine.client, head, "head")
    assert engine.acquire("alive")[0] == "granted"
    assert engine.record("head") is None


def test_a_holder_in_the_state_that_asks_again_beside_others_finds_its_grant(make):
    engine = make()
    granted = engine.acquire("t1")
    engine.acquire("t2")
    with unchanged(engine):
        assert engine.acquire("t1") == granted
