"""permit_revoke: leases up to a fence, or the one with a fence, are taken away, a thousand looked at in a call.

Their holders are sent a message.
"""

from __future__ import annotations

from tests._support.engine import NOW_US, TOMBSTONE_US, TTL_MS, TTL_US, holding, received, silent


def test_only_leases_up_to_the_fence_are_revoked(make, listening):
    engine = make()
    controls = listening("t1", "t2")
    engine.acquire("t1", 2)
    engine.acquire("t2", 1)
    assert engine.revoke(NOW_US - 1) == ["revoked", 0, 0]
    assert engine.revoke(NOW_US, "why not") == ["revoked", 1, 0]
    assert engine.next_start == 0
    assert received(controls) == "revoked t1 why not"
    assert silent(controls)
    engine.has(
        holders={"t2": NOW_US + TTL_US},
        tombstones={"t1": NOW_US + TOMBSTONE_US + 1},
        t2=holding("t2", 1, 5, fence=NOW_US + 1),
        used=1,
        fence=NOW_US + 1,
    )
    assert engine.release("t1") == ["lost"]


def test_a_lease_without_a_record_is_revoked_since_its_fence_is_unknown(make):
    engine = make()
    engine.acquire("t0")
    engine.acquire("t1")
    engine.release("t0")
    engine.lose_record("t1")
    assert engine.revoke(0) == ["revoked", 1, 0]
    assert engine.holders() == []


def test_an_expired_lease_is_swept_and_not_revoked_also_at_maxmemory(make, clock, listening, raw):
    engine = make()
    controls = listening("t1", "t2")
    engine.acquire("t1", 2)
    engine.acquire("t2", 1, ttl=2 * TTL_MS)
    clock.now_us += TTL_US
    raw.config_set("maxmemory", 1)
    assert engine.revoke(NOW_US + 1) == ["revoked", 1, 0]
    assert received(controls) == "revoked t2 test"
    assert silent(controls)
    engine.has(tombstones={"t2": clock.now_us + TOMBSTONE_US + 1}, fence=NOW_US + 1)


def test_revoked_permits_go_to_as_many_waiters_as_an_operators_limit_lets_in(make, listening):
    engine = make(5)
    listening("t2", "t3")
    engine.acquire("t1", 5)
    engine.resize(1)
    engine.acquire("t2")
    engine.acquire("t3")
    assert engine.revoke(NOW_US) == ["revoked", 1, 0]
    assert (engine.holders(), engine.queue()) == (["t2"], ["t3"])


def test_a_name_that_lost_its_count_is_handed_over(make, listening):
    engine = make(2)
    listening("t2")
    engine.acquire("t0")
    engine.acquire("t1")
    engine.lose("state")
    engine.acquire("t2")
    assert engine.revoke(0) == ["revoked", 1, 0]
    assert engine.holders() == ["t2"]


# --- one lease


def revoke_one(engine, fence, **options):
    return engine.revoke(fence, least_fence=fence, **options)


def test_the_lease_with_a_fence_is_taken_wherever_it_stands(make, listening):
    for which, token in enumerate(("t1", "t2", "t3", "t4")):
        engine = make(4)
        controls = listening("t1", "t2", "t3", "t4")
        for one in ("t1", "t2", "t3", "t4"):
            engine.acquire(one)
        assert revoke_one(engine, NOW_US + which, reason="hangs") == ["revoked", 1, 0]
        assert received(controls) == f"revoked {token} hangs"
        assert silent(controls)
        assert token not in engine.holders()
        stored = engine.stored()
        assert (len(stored.holders), stored.used, [*stored.tombstones]) == (3, 3, [token])
        assert engine.release(token) == ["lost"]
        engine.client.flushall()


def test_a_fence_that_no_lease_has_takes_and_notes_nothing(make, raw):
    engine = make(2)
    for token in ("t1", "t2", "waits"):
        engine.acquire(token)
    before = engine.dump()
    for fence in (1, NOW_US - 1, NOW_US + 2, 2**53):
        assert revoke_one(engine, fence) == ["revoked", 0, 0]
    assert engine.dump() == before
    assert not raw.hexists(engine.key("state"), "last")


def test_one_lease_is_taken_at_maxmemory_and_its_waiter_is_served(make, listening, raw):
    engine = make(2)
    listening("waits")
    for token in ("t1", "t2", "waits"):
        engine.acquire(token)
    raw.config_set("maxmemory", 1)
    assert revoke_one(engine, NOW_US + 1) == ["revoked", 1, 0]
    assert sorted(engine.holders()) == ["t1", "waits"]


def test_one_of_two_leases_that_has_expired_is_swept_and_not_revoked(make, clock, listening):
    engine = make(2)
    controls = listening("t1", "t2")
    engine.acquire("t1", ttl=2 * TTL_MS)
    engine.acquire("t2")
    clock.now_us += TTL_US
    assert revoke_one(engine, NOW_US + 1) == ["revoked", 0, 0]
    assert silent(controls)
    assert engine.holders() == ["t1"]


def test_a_lease_without_a_record_is_not_the_one_that_is_meant(make):
    engine = make(2)
    engine.acquire("t1")
    engine.acquire("t2")
    engine.lose_record("t2")
    assert revoke_one(engine, NOW_US + 1) == ["revoked", 0, 0]
    assert sorted(engine.holders()) == ["t1", "t2"]


def test_of_a_name_that_lost_its_count_no_lease_is_known_by_its_fence(make):
    engine = make(2)
    engine.acquire("t1")
    engine.acquire("t2")
    engine.lose("state")
    assert revoke_one(engine, NOW_US + 1) == ["revoked", 0, 0]
    assert engine.holders() == ["t2"]


def test_one_lease_is_found_behind_thousands(rw):
    rw.add_holders(1500, fence=5, ends_us=NOW_US + 10**9, step_us=1)
    rw.add_holders(1, fence=7, ends_us=NOW_US + 2 * 10**9)
    rw.add_holders(600, fence=8, ends_us=NOW_US + 3 * 10**9, step_us=1)
    assert revoke_all(rw, 7, least_fence=7) == [0, 1, 0]
    assert rw.stored().used == len(rw.holders()) == 2100


# --- more than a thousand leases


def revoke_all(engine, up_to_fence, least_fence=0):
    """Return how many leases each call took, until there was no more to do."""
    counts, more, start = [], 1, 0
    while more:
        _, count, more = engine.revoke(up_to_fence, start=start, least_fence=least_fence)
        counts.append(count)
        start = engine.next_start
    return counts


def test_thousands_are_revoked_in_several_calls(rw):
    rw.add_holders(2300, fence=5, ends_us=NOW_US + 10**9, step_us=1)
    rw.add_holders(150, fence=7, ends_us=NOW_US + 10**8, step_us=1)
    assert revoke_all(rw, 5) == [850, 1000, 450]
    assert len(rw.holders()) == 150
    assert rw.stored().used == 150
    assert revoke_all(rw, 5) == [0]


def test_a_lease_behind_thousands_of_newer_ones_is_revoked(rw):
    rw.add_holders(1500, fence=7, ends_us=NOW_US + 10**9, step_us=1)
    rw.add_holders(1, fence=5, ends_us=NOW_US + 2 * 10**9)
    assert sum(revoke_all(rw, 5)) == 1
    assert len(rw.holders()) == 1500


def test_a_thousand_leases_that_end_together_are_passed(rw):
    end_us = NOW_US + 1_000_000
    rw.add_holders(999, ends_us=end_us)
    assert rw.revoke(0) == ["revoked", 0, 0]
    rw.add_holders(1000, ends_us=end_us)
    assert rw.revoke(0) == ["revoked", 0, 1]
    assert rw.next_start == end_us
    assert rw.revoke(0, start=end_us) == ["revoked", 0, 1]
    assert rw.next_start == end_us + 1
    rw.add_holders(1, ends_us=end_us + 1)
    assert rw.revoke(1, start=end_us + 1) == ["revoked", 1, 0]
    assert rw.revoke(1, start=end_us) == ["revoked", 1000, 1]
