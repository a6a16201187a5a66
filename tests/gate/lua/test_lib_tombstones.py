"""lib/tombstones.lua: a token that was cancelled is remembered for 20 seconds, and then forgotten."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TOMBSTONE_US, TTL_US


def test_tombstones_are_removed_when_all_have_expired(a, clock):
    a.cancel("one")
    clock.now_us += 2
    a.cancel("two")
    a.has(tombstones={"one": NOW_US + TOMBSTONE_US, "two": NOW_US + 2 + TOMBSTONE_US})
    a.lives(TOMBSTONE_US // 1000)
    clock.now_us = NOW_US + TOMBSTONE_US
    assert a.acquire("one") == ["finished"], "it is remembered longer while there are others"
    clock.now_us += 2
    a.acquire("t1")
    assert a.stored().tombstones == {}
    assert a.acquire("one")[0] == "queued"


def test_a_hundred_expired_tombstones_are_removed_per_call(a, clock):
    for number in range(101):
        a.cancel(f"t{number}")
    clock.now_us += TOMBSTONE_US
    a.acquire("first", wait=0)
    assert len(a.stored().tombstones) == 1
    a.acquire("second", wait=0)
    assert a.stored().tombstones == {}


def test_expired_tombstones_are_removed_though_others_are_added_all_the_time(a, clock):
    for number in range(40):
        a.cancel(f"t{number}")
        clock.now_us += TOMBSTONE_US // 4
    assert len(a.stored().tombstones) < 10


def test_a_cancel_of_a_revoked_lease_makes_its_tombstone_an_ordinary_one(a):
    a.acquire("t1")
    a.revoke(NOW_US)
    assert a.release("t1") == ["lost"]
    a.cancel("t1")
    a.has(tombstones={"t1": NOW_US + TOMBSTONE_US}, fence=NOW_US)
    assert a.release("t1") == ["released", 0]


@pytest.mark.parametrize("odd_us", [0, 1])
def test_the_end_of_a_tombstone_is_even_unless_the_lease_was_taken_away(a, clock, odd_us):
    clock.now_us += odd_us
    a.acquire("t1")
    a.revoke(clock.now_us)
    a.cancel("t2")
    assert a.stored().tombstones == {"t2": NOW_US + TOMBSTONE_US, "t1": NOW_US + TOMBSTONE_US + 1}
    clock.now_us += TTL_US
    a.acquire("t3")
    assert a.stored().tombstones == {}


def test_a_clock_that_was_set_back_takes_no_time_from_an_earlier_tombstone(a, clock):
    a.cancel("first")
    clock.now_us -= 10_000_000
    a.cancel("second")
    clock.now_us += TOMBSTONE_US
    a.acquire("t1")
    assert a.acquire("first") == ["finished"]


def test_the_field_for_more_goes_with_the_last_tombstone(a, clock):
    a.cancel("t1")
    clock.now_us += TOMBSTONE_US
    a.acquire("t2")
    assert a.client.hkeys(a.key("state")) == ["s"]


def test_a_grant_beside_others_forgets_no_tombstone(make):
    engine = make()
    engine.acquire("t1")
    engine.acquire("t2")
    engine.cancel("gone")
    for token in ("t3", "t4"):
        assert engine.acquire(token)[0] == "granted"
    assert engine.acquire("gone") == ["finished"]


def test_a_release_beside_others_forgets_no_tombstone(make):
    engine = make()
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
    engine.cancel("gone")
    assert engine.release("t2") == ["released", 0]
    assert engine.acquire("gone") == ["finished"]


def test_a_release_that_is_sent_again_does_not_prolong_its_tombstone(locks, clock):
    for later_us in (0, 1000):
        clock.now_us += later_us
        assert locks.release("t1", copies=True) == ["lost"]
        for engine in locks.engines:
            assert engine.stored().tombstones == {"t1": NOW_US + TOMBSTONE_US + 1}
