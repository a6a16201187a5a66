"""lib/tombstones.lua: expired tombstones are removed by one call in sixteen."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TOMBSTONE_US, TOMBSTONES_TTL_MS


@pytest.mark.parametrize("step_us", [-1, 1, 9, 48])
def test_one_call_in_sixteen_removes_up_to_a_hundred_expired_tombstones(a, clock, step_us):
    clock.now_us = NOW_US + step_us
    prunes = clock.now_us % 16 == 0
    assert prunes == (step_us == 48)
    old = {f"old{number:03}": clock.now_us - 200 + number for number in range(100)}
    rest = {"over": clock.now_us, "not yet": clock.now_us + 1}
    a.client.zadd(a.key("tombstones"), old | rest)
    a.cancel("new")
    assert dict(a.dump()["tombstones"]) == {"new": clock.now_us + TOMBSTONE_US} | rest | ({} if prunes else old)
    a.cancel("another")
    left = dict(a.dump()["tombstones"])
    assert ("over" in left) != prunes
    assert "not yet" in left
    a.lives(tombstones=TOMBSTONES_TTL_MS)


def test_tombstones_that_have_not_expired_stay(a, clock):
    assert clock.now_us % 16 == 0
    a.cancel("one")
    a.cancel("two")
    a.has(tombstones={"one": NOW_US + TOMBSTONE_US, "two": NOW_US + TOMBSTONE_US})
