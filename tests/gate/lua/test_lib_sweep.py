"""lib/sweep.lua: which permits are out, where leases expire or records are lost (invariants 1 and 13)."""

from __future__ import annotations

from math import inf

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import (
    CLAIM_US,
    NOW_US,
    TTL_MS,
    TTL_US,
    holding,
)
from tests.gate.lua.test_lib_handoff import SERVING


def test_a_lease_expires_at_its_last_microsecond_for_every_script(a, clock):
    a.acquire("t1")
    clock.now_us += TTL_US - 1
    assert a.acquire("t1") == ["granted", NOW_US, 1]
    assert a.renew("t1", 1) == ["renewed", 1000]
    assert a.acquire("t2", wait=0) == ["busy", 1000]
    clock.now_us += 1000
    assert a.inspect()[4:7] == [0, 0, 0]
    assert a.renew("t1") == ["lost"]
    assert a.lower("t1", 1) == ["lost"]
    assert a.acquire("t1") == ["granted", clock.now_us, TTL_US]
    assert a.stored().used == 1
    clock.now_us += TTL_US
    assert a.acquire("t2", wait=0) == ["granted", clock.now_us, TTL_US]


def test_a_lease_of_several_names_expires_at_its_last_microsecond(both, a, b, clock):
    both.acquire("t1")
    clock.now_us += TTL_US
    assert both.acquire("t1") == ["granted", clock.now_us, TTL_US]
    assert (a.stored().used, b.stored().used) == (1, 1)


@pytest.mark.parametrize("verb", SERVING)
def test_every_script_that_looks_at_the_queue_sweeps(make, listening, verb):
    engine = make(6)
    listening("head", "alive")
    for token, weight in (("held", 2), ("extra", 1), ("over", 3), ("head", 3), ("alive", 1)):
        engine.acquire(token, weight)
    engine.end_lease("over")
    SERVING[verb](engine)
    assert {"head", "held"} <= set(engine.holders())
    assert engine.record("over") is None
    assert engine.stored().used == engine.inspect()[4]


def test_a_release_sweeps_an_expired_lease_and_hands_over_its_permits_too(make, clock, listening):
    engine = make()
    listening("t4")
    for token, weight in (("t1", 2), ("t2", 1), ("t3", 1)):
        engine.acquire(token, weight, ttl=TTL_MS if token == "t1" else 3 * TTL_MS)
    engine.acquire("t4", 4)
    clock.now_us += TTL_US
    assert engine.release("t2") == ["released", 0]
    engine.has(
        holders={"t4": clock.now_us + CLAIM_US, "t3": NOW_US + 3 * TTL_US},
        t3=holding("t3", 1, 5, fence=NOW_US + 2),
        t4=holding("t4", 4, 5, fence=clock.now_us),
        used=5,
        fence=clock.now_us,
    )


def test_a_busy_request_sweeps_and_says_when_the_next_lease_ends(make, clock):
    engine = make()
    engine.acquire("t1", 2)
    engine.acquire("t2", 3, ttl=2 * TTL_MS)
    clock.now_us += TTL_US
    assert engine.acquire("try", 3, wait=0) == ["busy", TTL_US]
    engine.has(
        holders={"t2": NOW_US + 2 * TTL_US},
        t2=holding("t2", 3, 5, fence=NOW_US + 1),
        used=3,
        fence=NOW_US + 1,
    )


def test_a_hundred_expired_leases_are_swept_per_call(make):
    engine = make(150)
    engine.add_holders(101, ends_us=NOW_US - 5)
    for part in PARTS:
        engine.client.copy(engine.key(part), f"{part}:before")
    assert engine.acquire("all", 150) == ["queued", NOW_US, 0, 0], "there are more of them"
    for part in PARTS:
        engine.client.rename(f"{part}:before", engine.key(part))
    assert engine.acquire("all", 150, wait=0) == ["busy", 0], "there are more of them"
    assert len(engine.holders()) == 1
    assert engine.stored().used == 1
    engine.add_holders(99, ends_us=NOW_US - 7)
    assert engine.acquire("all", 150, wait=0)[0] == "granted"


# --- records that were lost


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "expire", "acquire"])
def test_the_permits_of_a_lease_without_a_record_stay_out(make, verb):
    """How many it had is unknown: until the name is empty too many are out, never too few."""
    engine = make(7)
    engine.acquire("t2", 2)
    engine.acquire("t1", 2)
    engine.acquire("t0")
    engine.lose_record("t1")
    if verb == "expire":
        engine.end_lease("t1")
        assert engine.inspect()[4:7] == [5, 2, 0]
    {
        "release": lambda: engine.release("t1"),
        "cancel": lambda: engine.cancel("t1"),
        "revoke": lambda: engine.revoke(0),
        "expire": lambda: engine.cancel("t3"),
        "acquire": lambda: engine.acquire("t1", 2, wait=0),
    }[verb]()
    assert engine.stored().used == (7 if verb == "acquire" else 5)
    assert engine.holders() == (["t0", "t1", "t2"] if verb == "acquire" else ["t0", "t2"])


def test_an_expired_lease_without_a_record_is_free_once_there_is_no_other_holder(make, clock):
    engine = make()
    engine.acquire("t0")
    engine.acquire("t1", 4)
    engine.lose_record("t1")
    clock.now_us += TTL_US
    assert engine.acquire("t2", 5, wait=0)[0] == "granted"
    assert engine.stored().used == 5


def test_a_count_that_was_lost_is_unknown_until_the_name_is_empty(make):
    engine = make()
    for token in ("t0", "t1", "t2"):
        engine.acquire(token)
    engine.lose("state")
    assert engine.release("t1") == ["released", 0]
    assert (engine.inspect()[4], engine.stored().used) == (-1, inf)
    assert engine.acquire("t3", wait=0)[0] == "busy"
    assert engine.release("t2") == ["released", 0]
    assert engine.acquire("t4", 5)[0] == "granted"
    assert engine.stored().used == 5


# --- at one microsecond


@pytest.mark.parametrize("ends", ["in the state", "beside it"])
def test_a_lease_that_ends_now_makes_room_for_a_newcomer(make, clock, ends):
    engine = make(2)
    for token in ("in the state", "beside it"):
        engine.acquire(token, ttl=1 if token == ends else TTL_MS)
    clock.now_us += 1000
    assert engine.acquire("t3")[0] == "granted"
    assert ends not in engine.holders()


@pytest.mark.parametrize("short", ["in the state", "beside it"])
@pytest.mark.parametrize("wait_ms", [0, TTL_MS])
def test_who_is_refused_learns_when_the_first_lease_ends(make, short, wait_ms):
    engine = make(2)
    for token in ("in the state", "beside it"):
        engine.acquire(token, ttl=1000 if token == short else TTL_MS)
    assert engine.acquire("t3", wait=wait_ms)[-1] == 1_000_000


# --- more than one call sweeps


def test_a_token_whose_expired_lease_was_not_swept_yet_is_not_counted_twice(make, clock):
    engine = make(150)
    engine.acquire("held")
    engine.acquire("again", ttl=1)
    engine.add_holders(101, ends_us=NOW_US - 5)
    clock.now_us += 1000
    assert engine.acquire("again", 10)[0] == "granted"
    assert engine.stored().used == 1 + 10 + 1, "one of those that expired is left"
