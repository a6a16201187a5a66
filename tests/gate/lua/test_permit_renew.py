"""permit_renew of one name and of several: it sets deadlines, and never brings a lease back."""

from __future__ import annotations

import pytest

from tests._support.engine import (
    CLAIM_MS,
    HOUR_MS,
    NOW_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    holding,
    unchanged,
    waiting,
)


@pytest.mark.parametrize("limit", [0, 3])
def test_a_renewal_raises_the_deadline_and_all_ttls_and_never_shortens_them(make, clock, limit):
    engine = make()
    engine.acquire("t1", 5)
    engine.acquire("t2", 2)
    if limit:
        engine.resize(limit)
    clock.now_us += 1000
    for ttl_ms in (HOUR_MS, HOUR_MS, 1):
        assert engine.renew("t1", ttl_ms) == ["renewed", HOUR_MS * 1000]
        engine.lives(HOUR_MS, limited=bool(limit))
        engine.has(
            holders={"t1": clock.now_us + HOUR_MS * 1000},
            queue={"t2": NOW_US},
            t1=holding("t1", 5, 5),
            t2=waiting("t2", 2, 5, CLAIM_MS),
            used=5,
            fence=NOW_US,
            **({"limit": limit} if limit else {}),
        )


def test_a_renewal_of_two_names_sets_each_deadline_and_answers_with_the_first(both, a, b, clock):
    both.acquire("t1")
    both.acquire("t2")
    b.renew("t1", 3 * TTL_MS)
    clock.now_us += 1000
    for ttl_ms in (2 * TTL_MS, 1):
        assert both.renew("t1", ttl_ms) == ["renewed", 2 * TTL_US]
        for engine, deadline_us in ((a, clock.now_us + 2 * TTL_US), (b, NOW_US + 3 * TTL_US)):
            assert engine.stored().holders == {"t1": deadline_us}
            engine.lives(WAIT_MS + TTL_MS)
    clock.now_us += 2 * TTL_US
    assert both.renew("t1", 1) == ["lost"], "the first one has expired at this microsecond"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lease_that_lost_a_name_is_not_renewed(both, lost):
    both.acquire("t1")
    both.engines[lost].revoke(NOW_US)
    with unchanged(both):
        assert both.renew("t1", 2 * TTL_MS) == ["lost"]


def test_a_renewal_brings_no_lease_back(locks, clock):
    locks.acquire("expired")
    clock.now_us += TTL_US
    with unchanged(locks):
        assert locks.renew("expired") == ["lost"]
    locks.acquire("released")
    locks.acquire("waits")
    locks.release("released")
    for token in ("expired", "released", "waits", "unknown"):
        with unchanged(locks):
            assert locks.renew(token) == ["lost"]
