"""lib/waiters.lua: a full queue evicts waiters that are gone, a hundred a call."""

from __future__ import annotations

from tests._support.engine import CLAIM_MS, NOW_US, WAIT_MS, WAIT_US, holding, waiting


def test_a_hundred_lapsed_waiters_are_evicted_per_call(a, clock):
    a.acquire("t1", ttl=2 * WAIT_MS)
    for number in range(101):
        a.acquire(f"lapsed{number:03}")
    clock.now_us += WAIT_US + 1
    assert a.acquire("t2", max_waiters=1) == ["full", 1]
    a.has(
        holders={"t1": NOW_US + 2 * WAIT_US},
        queue={"lapsed100": 101},
        t1=holding("t1", 1, 1, 2 * WAIT_MS),
        lapsed100=waiting("lapsed100", 1, 1, CLAIM_MS),
        used=1,
        fence=NOW_US,
    )
    assert a.acquire("t2", max_waiters=1) == ["queued", clock.now_us, 0, WAIT_US - 1]
    assert a.dump()["queue"] == [("t2", 102)]
    assert a.acquire("t3", max_waiters=1) == ["full", 1]


def test_a_waiter_whose_record_was_lost_is_evicted(a):
    a.acquire("t1")
    a.acquire("lost")
    a.lose_record("lost")
    assert a.acquire("t2", max_waiters=1)[:3] == ["queued", NOW_US, 0]
    assert a.queue() == ["t2"]
