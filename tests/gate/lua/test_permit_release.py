"""permit_release of one name and of several: what it stores, and whom it lets in."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import (
    CLAIM_US,
    NOW_US,
    TOMBSTONE_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    Several,
    holding,
    received,
    unchanged,
)


def test_what_a_release_leaves_where_no_one_waits(make):
    engine = make()
    engine.acquire("t1", 2)
    engine.acquire("t2", 3)
    assert engine.release("t1") == ["released", 0]
    engine.has(
        holders={"t2": NOW_US + TTL_US},
        t2=holding("t2", 3, 5, fence=NOW_US + 1),
        used=3,
        fence=NOW_US + 1,
    )
    engine.lives(TTL_MS)
    assert engine.release("t2") == ["released", 0]
    engine.has(fence=NOW_US + 1)


def test_a_release_is_remembered_until_the_next_grant(locks):
    locks.acquire("t1")
    for _ in range(2):
        assert locks.release("t1") == ["released", 0]
    locks.acquire("t2")
    assert locks.release("t1") == ["unknown"]
    assert all(engine.holders() == ["t2"] for engine in locks.engines)


def test_a_release_of_one_of_several_holders_is_not_remembered(make):
    engine = make()
    engine.acquire("t1")
    engine.acquire("t2")
    assert engine.release("t2") == ["released", 0]
    assert engine.release("t2") == ["unknown"]


@pytest.mark.parametrize("held", [True, False])
def test_a_release_that_knows_of_copies_leaves_a_tombstone(locks, held):
    if held:
        locks.acquire("t1")
    for _ in range(2):
        assert locks.release("t1", copies=True)[0] == ("released" if held else "lost")
        for engine in locks.engines:
            assert engine.stored().tombstones == {"t1": NOW_US + TOMBSTONE_US + (not held)}
            assert engine.holders() == []
    assert locks.acquire("t1") == ["finished"]


@pytest.mark.parametrize("copies", [False, True])
def test_a_release_of_a_revoked_lease_is_lost(locks, copies):
    locks.acquire("t1")
    first = locks.engines[0]
    first.revoke(NOW_US)
    assert first.stored().tombstones["t1"] % 2 == 1
    for _ in range(2):
        assert locks.release("t1", copies=copies) == ["lost"]
    assert first.stored().tombstones["t1"] % 2 == 1
    assert locks.acquire("t1") == ["finished"]
    assert all(engine.holders() == [] for engine in locks.engines)


def test_what_a_release_of_two_names_leaves(both, a, b, clock, listening):
    inbox = listening("t2")
    both.acquire("t1")
    b.acquire("t2")
    clock.now_us += 3
    assert both.release("t1") == ["released", 0]
    assert received(inbox) == f"granted t2 {NOW_US + 3} {NOW_US + 3} {CLAIM_US}"
    a.has(fence=NOW_US)
    b.has(
        holders={"t2": NOW_US + 3 + CLAIM_US},
        t2=holding("t2", 1, 1, fence=NOW_US + 3),
        used=1,
        fence=NOW_US + 3,
    )
    b.lives(WAIT_MS + TTL_MS)


def test_a_release_lets_in_all_waiters_that_fit_by_their_own_limits(make, listening):
    for first, second, granted in ((2, 6, ["first", "second"]), (6, 2, ["first"]), (3, 3, ["first", "second"])):
        engine = make(4, f"{first}{second}")
        listening("first", "second")
        engine.acquire("held", 4)
        engine.acquire("first", 2, limit=first)
        engine.acquire("second", 1, limit=second)
        engine.release("held")
        assert engine.holders() == granted


def test_a_release_of_two_names_serves_the_head_of_each_queue(clock, both, a, listening):
    inbox = listening("t2", "t3")
    both.acquire("t1")
    a.acquire("t2")
    Several(clock, "bc").acquire("t3")
    assert both.release("t1") == ["released", 0]
    assert both.holders() == [["t2"], []]
    assert {received(inbox) for _ in range(2)} == {
        f"granted t2 {NOW_US + 1} {NOW_US} {CLAIM_US}",
        f"granted t3 0 {NOW_US} 0",
    }


# --- a lease that was lost


def test_a_lease_that_another_holder_follows_is_unknown(a, clock):
    a.acquire("t1")
    clock.now_us += TTL_US
    a.acquire("t2")
    assert a.release("t1") == ["unknown"]
    assert a.holders() == ["t2"]


def test_a_release_of_an_unknown_token_changes_nothing(locks, clock):
    locks.engines[0].acquire("expired")
    for later_us in (0, TTL_US):
        clock.now_us += later_us
        with unchanged(locks):
            assert locks.release("unknown") == ["unknown"]


@pytest.mark.parametrize("lost", [0, 1])
def test_the_rest_of_a_lost_lease_is_released(both, listening, lost):
    listening("t2", "t3")
    both.acquire("t1")
    engine, rest = both.engines[lost], both.engines[1 - lost]
    engine.revoke(NOW_US)
    engine.acquire("t2")
    rest.acquire("t3")
    for _ in range(2):
        assert both.release("t1") == ["lost"]
        assert engine.holders() == ["t2"]
        assert rest.holders() == ["t3"]
    assert both.acquire("t1") == ["finished"]


def test_a_waiter_that_releases_leaves_the_queue(locks):
    """A failover to an older state can have put it there again."""
    first, *others = locks.engines
    first.acquire("t1")
    locks.acquire("t2")
    assert locks.release("t2") == ["unknown"]
    assert [engine.holders() for engine in locks.engines] == [["t1"], *([] for _ in others)]
    assert all(engine.queue() == [] and engine.record("t2") is None for engine in locks.engines)


def test_a_waiter_that_releases_lets_those_behind_it_in(make, both, a, b, listening):
    listening("behind")
    engine = make(2, "c")
    engine.acquire("held")
    engine.acquire("back", 2)
    engine.acquire("behind")
    assert engine.release("back") == ["unknown"]
    assert sorted(engine.holders()) == ["behind", "held"]
    assert engine.stored().used == 2

    a.acquire("held")
    both.acquire("back")
    b.acquire("behind")
    assert both.release("back") == ["unknown"]
    assert both.holders() == [["held"], ["behind"]]


# --- one of several names has a limit above 1, or a queue that does not end


@pytest.mark.parametrize("verb", ["release", "cancel"])
def test_as_many_permits_are_given_back_as_the_record_says(both, a, listening, verb):
    inbox = listening("t3")
    a.resize(3)
    both.acquire("t1")
    a.acquire("t2", 2)
    a.acquire("t3", 1)
    a.set_fence(NOW_US + 500)
    assert getattr(both, verb)("t1")[1] == 0
    assert a.holders() == ["t3", "t2"]
    assert a.stored().used == 3
    assert received(inbox) == f"granted t3 {NOW_US + 501} {NOW_US} {CLAIM_US}"


@pytest.mark.parametrize("verb", ["release", "cancel"])
@pytest.mark.parametrize("crowded", [0, 1])
def test_a_queue_that_takes_another_call_is_reported_whichever_name_has_it(both, verb, crowded):
    both.acquire("t1")
    for number in range(100):
        both.engines[crowded].acquire(f"dead{number:03}")
    assert getattr(both, verb)("t1")[1] == 1
    assert both.engines[crowded].queue() == []
    assert getattr(both, verb)("t1")[1] == 0


def test_the_names_behind_a_queue_that_takes_another_call_wait_for_that_call(both, a, b, listening):
    listening("t2")
    both.acquire("t1")
    for number in range(100):
        a.acquire(f"dead{number:03}")
    b.acquire("t2")
    assert both.release("t1") == ["released", 1]
    assert b.queue() == ["t2"]
    assert both.release("t1") == ["released", 0]
    assert b.holders() == ["t2"]


@pytest.mark.parametrize("crowded", [0, 1])
def test_a_release_of_two_names_skips_more_than_a_hundred_dead_waiters_in_two_calls(both, crowded):
    both.acquire("t1")
    for number in range(150):
        both.engines[crowded].acquire(f"dead{number}")
    assert both.release("t1") == ["released", 1]
    assert both.release("t1") == ["released", 0]
    assert both.holders() == both.queues() == [[], []]


def test_a_waiter_is_served_until_the_last_microsecond_of_its_wait_lease(a, clock, listening):
    listening("t2")
    for end in (a.release, a.cancel):
        a.acquire("t1", ttl=2 * WAIT_MS)
        a.acquire("t2")
        clock.now_us += WAIT_MS * 1000
        end("t1")
        assert a.holders() == ["t2"]
        a.release("t2")


def test_the_fence_of_a_handoff_is_the_time(a, clock, listening):
    inbox = listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    clock.now_us += 1000
    a.release("t1")
    assert received(inbox) == f"granted t2 {clock.now_us} {clock.now_us} {CLAIM_US}"


def test_no_waiter_of_one_permit_is_let_in_beside_a_holder_of_a_limit_that_is_gone(a, listening):
    """An operator let two in, and took that back."""
    listening("t3")
    a.acquire("t1")
    a.resize(2)
    a.acquire("t2", limit=2)
    a.resize(0)
    a.acquire("t3")
    assert a.release("t1") == ["released", 0]
    assert (a.holders(), a.queue()) == (["t2"], ["t3"])
    assert a.release("t2") == ["released", 0]
    assert a.holders() == ["t3"]


def test_a_waiter_that_releases_sweeps_what_has_expired(make, listening):
    listening("back", "behind")
    engine = make(3)
    engine.acquire("held")
    engine.acquire("expired")
    engine.acquire("back", 3)
    engine.acquire("behind", 2)
    engine.end_lease("expired")
    assert engine.release("back") == ["unknown"]
    assert engine.holders() == ["behind", "held"]


# --- three names, of which some were lost


@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("others", [[], ["waits"], ["holds"], ["holds", "waits"]])
def test_of_three_names_one_that_was_lost_makes_the_whole_lost(clock, listening, *, lost, copies, others):
    three = Several(clock, "xyz")
    listening("waits")
    if "holds" in others:
        for engine in three.engines:
            engine.resize(2)
    three.acquire("t1")
    for number, engine in enumerate(three.engines):
        if number in lost:
            engine.end_lease("t1")
            engine.acquire("next")
        for other in others:
            engine.acquire(other)
    assert three.release("t1", copies=copies) == ["lost"]
    assert three.release("t1", copies=copies) == (["lost"] if copies else ["unknown"])
    assert not any("t1" in holders for holders in three.holders())


def test_a_release_of_which_a_part_has_run_before_is_lost_all_the_same(clock, listening):
    """The waiter at the second name waits for the third one too, so that it could not be served."""
    three = Several(clock, "xyz")
    x, y, z = three.engines
    listening("waits")
    three.acquire("t1")
    Several(clock, "yz").acquire("waits")
    y.release("t1")
    for part in PARTS:
        z.lose(part)
    assert y.queue() == ["waits"]
    assert three.release("t1") == ["lost"]
    assert x.holders() == y.holders() == []


def test_a_release_beside_others_keeps_the_limit_of_an_operator(make):
    engine = make(2)
    engine.resize(4)
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
    assert engine.release("t2") == ["released", 0]
    assert (engine.stored().limit, engine.stored().used) == (4, 2)


@pytest.mark.parametrize("crowded", [0, 1])
def test_with_copies_a_queue_that_takes_another_call_is_reported_too(both, crowded, listening):
    listening("live")
    both.acquire("t1")
    for number in range(100):
        both.engines[crowded].acquire(f"dead{number:03}")
    both.engines[1 - crowded].acquire("live")
    assert both.release("t1", copies=True) == ["released", 1]
    assert both.release("t1", copies=True) == ["released", 0]
    assert both.engines[1 - crowded].holders() == ["live"]
