"""lib/state.lua: what is known of a name, also where one of its keys was lost, and how long its keys live.

Every key outlives its contents, and ends (invariant 5; the fixture `raw` looks for keys without a TTL). How much longer
each key lives is asserted wherever tests call `Engine.lives`.
"""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from tests._support.engine import NOW_US, TTL_MS, TTL_US


@pytest.mark.parametrize("ttl_ms", [1, 50, 1000, 10 * 86_400_000])
def test_every_key_outlives_the_lease(locks, listening, ttl_ms):
    listening("t1")
    locks.engines[0].acquire("t0")
    for token in ("t1", "t2", "t1", "t2"):
        assert locks.acquire(token, ttl=ttl_ms)[0] == "queued"
    locks.engines[0].release("t0")
    assert locks.acquire("t1", ttl=ttl_ms)[0] == "granted"
    locks.renew("t1", ttl_ms)
    for engine in locks.engines:
        for part in PARTS:
            assert engine.client.pttl(engine.key(part)) >= ttl_ms, part


@pytest.mark.parametrize("empties", ["release", "loss"])
def test_a_sorted_set_that_is_new_gets_the_ttl_of_the_state(make, empties):
    """It never vanishes when the last token leaves it: its member of no name stays."""
    engine = make()
    engine.acquire("t1", 5)
    engine.acquire("t2")
    engine.cancel("t2")
    assert engine.client.zrange(engine.key("tokens"), 0, -1) == ["t2", ""]
    if empties == "loss":
        engine.lose("tokens")
    engine.acquire("t3")
    engine.lives(TTL_MS)
    assert engine.queue() == ["t3"]
    assert engine.inspect()[6] == 1
    assert engine.acquire("t4")[2] == 1, "waiters that were lost are not counted"


def test_the_loss_of_a_queue_is_noticed_when_it_is_served(a):
    a.acquire("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    a.lose("tokens")
    a.release("t1")
    a.lost = False
    assert a.queue() == [], "which compares it with the length"
    assert a.acquire("t4")[0] == "granted"


def test_where_the_state_was_lost_no_other_is_granted_until_the_holders_are_gone(make, clock, listening):
    engine = make(9)
    listening("w")
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
    engine.lose("state")
    assert engine.inspect()[4:7] == [-1, 2, 0]
    assert engine.acquire("try", wait=0) == ["busy", TTL_US]
    assert engine.acquire("w")[0] == "queued"
    for token in ("t2", "t3"):
        assert engine.holders() == ["t2", "t3"][("t2", "t3").index(token) :]
        assert engine.release(token) == ["released", 0]
    assert engine.holders() == ["w"]
    assert engine.stored().used == 1


def test_where_the_state_was_lost_the_keys_live_as_long_as_before(make):
    """The next call must not lower the TTL of the holders that are left."""
    engine, long_ms = make(9), 100 * 86_400_000
    for token in ("t1", "t2"):
        engine.acquire(token, ttl=long_ms)
    engine.lose("state")
    assert engine.acquire("t3", ttl=1000)[0] == "queued"
    for part in PARTS:
        assert engine.client.pttl(engine.key(part)) > long_ms, part


def test_where_the_state_was_lost_the_holders_are_gone_when_their_leases_end(make, clock):
    engine = make()
    for token in ("t1", "t2"):
        engine.acquire(token)
    engine.lose("state")
    clock.now_us += TTL_US - 1
    assert engine.acquire("try", wait=0) == ["busy", 1]
    clock.now_us += 1
    assert engine.acquire("try", 5, wait=0)[0] == "granted"


def test_where_the_state_was_lost_tombstones_still_count_and_waiters_are_let_in(a, listening):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    a.cancel("t3")
    a.lose("state")
    assert a.acquire("t3") == ["finished"]
    assert a.acquire("t2", ticket=a.tickets["t2"])[0] == "granted"


def test_a_name_whose_keys_were_both_lost_is_as_new(a, clock):
    a.acquire("t1")
    a.acquire("t2")
    for part in PARTS:
        a.lose(part)
    clock.now_us += 1
    assert a.acquire("t3") == ["granted", NOW_US + 1, TTL_US]


def test_the_field_for_several_holders_goes_when_it_is_not_needed(make, clock):
    engine = make()
    engine.acquire("t1")
    engine.acquire("t2")
    assert engine.client.hexists(engine.key("state"), "q")
    clock.now_us += TTL_US
    engine.acquire("t3")
    assert engine.client.hkeys(engine.key("state")) == ["s"]


def test_where_the_state_was_lost_waiters_keep_their_places(make):
    engine = make(2)
    for token in ("t1", "t2", "w1", "w2"):
        engine.acquire(token)
    engine.lose("state")
    engine.acquire("w3")
    assert engine.queue() == ["w1", "w2", "w3"]
