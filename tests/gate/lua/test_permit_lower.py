"""permit_lower: a lease keeps some of its permits, and the waiters get the others."""

from __future__ import annotations

import pytest

from tests._support.engine import CLAIM_MS, CLAIM_US, NOW_US, TTL_US, holding, received, unchanged


def test_a_writer_that_becomes_a_reader_lets_in_the_readers_behind_it_and_no_writer(rw, clock, listening):
    inboxes = listening("r1", "r2", "w2", "r3")
    _, fence, _ = rw.acquire("w", rw.limit)
    for token in ("r1", "r2", "w2", "r3"):
        rw.acquire(token, rw.limit if token == "w2" else 1)
    clock.now_us += 1
    assert rw.lower("w", 1) == ["lowered", 0]
    assert sorted(rw.holders()) == ["r1", "r2", "w"]
    assert rw.queue() == ["w2", "r3"]
    assert rw.stored().used == 3
    for number in (1, 2):
        assert received(inboxes) == f"granted r{number} {NOW_US + number} {NOW_US + 1} {CLAIM_US}"
    assert rw.acquire("w", rw.limit) == ["granted", fence, TTL_US - 1], "fence and deadline stay"
    for token in ("r1", "r2", "w"):
        assert rw.release(token) == ["released", 0]
    assert rw.holders() == ["w2"]


def test_a_larger_weight_changes_nothing(make):
    engine = make()
    engine.acquire("t1", 4)
    assert engine.lower("t1", 2) == ["lowered", 0]
    for weight in (2, 3):
        with unchanged(engine):
            assert engine.lower("t1", weight) == ["lowered", 0]
    assert engine.stored().used == 2
    assert engine.acquire("t2", 3, wait=0)[0] == "granted"


def test_a_token_that_does_not_hold_is_answered_lost(rw, clock, listening):
    listening("waits")
    rw.acquire("w", rw.limit)
    rw.acquire("waits")
    for token in ("unknown", "waits"):
        with unchanged(rw):
            assert rw.lower(token, 1) == ["lost"]
    rw.release("w")
    with unchanged(rw):
        assert rw.lower("w", 1) == ["lost"]
    rw.cancel("waits")
    rw.acquire("w2", rw.limit)
    clock.now_us += TTL_US
    with unchanged(rw):
        assert rw.lower("w2", 1) == ["lost"], "expired, though not yet swept"
    rw.acquire("r")
    assert rw.stored().used == 1


@pytest.mark.parametrize("label", ["", "me", "two  words ", "lines\nand 7 7 7", "ümläut \\ % {x}"])
def test_the_rest_of_the_record_stays(rw, label):
    rw.acquire("w", rw.limit, label=label)
    assert rw.record("w") == f"fence {NOW_US} {rw.limit} {rw.limit} {CLAIM_MS} inbox:w control:w {label}"
    rw.lower("w", 1)
    assert rw.record("w") == f"fence {NOW_US} 1 {rw.limit} {CLAIM_MS} inbox:w control:w {label}"
    assert rw.revoke(rw.inspect()[2])[1] == 1


def test_a_lowered_lease_that_expires_gives_back_what_it_still_had(rw, listening):
    listening("w2")
    rw.acquire("w", rw.limit)
    rw.lower("w", 1)
    rw.acquire("r")
    rw.acquire("w2", rw.limit)
    rw.end_lease("w")
    assert rw.acquire("w2", rw.limit)[0] == "queued"
    assert rw.stored().used == 1
    rw.release("r")
    assert rw.holders() == ["w2"]
    assert rw.stored().used == rw.limit


def test_one_of_several_holders_keeps_some_of_its_permits(make, listening):
    engine = make(6)
    listening("next")
    engine.acquire("t1", 1)
    engine.acquire("t2", 5)
    engine.acquire("next", 3)
    assert engine.lower("t2", 2) == ["lowered", 0]
    engine.has(
        holders={"t1": NOW_US + TTL_US, "t2": NOW_US + TTL_US, "next": NOW_US + CLAIM_US},
        t1=holding("t1", 1, 6),
        t2=holding("t2", 2, 6, fence=NOW_US + 1),
        next=holding("next", 3, 6, fence=NOW_US + 2),
        used=6,
        fence=NOW_US + 2,
    )
