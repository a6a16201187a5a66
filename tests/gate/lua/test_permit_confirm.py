"""permit_confirm: a lease that was handed over gets its whole ttl, and none comes back."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.script import load
from tests._support.engine import CLAIM_MS, HOUR_MS, NOW_US, TTL_MS, TTL_US, WAIT_MS, runs_through, unchanged

CLAIM_US = CLAIM_MS * 1000


@pytest.fixture(params=["in the state", "beside another"])
def handed(request, make, clock, listening):
    """The scripts of a name whose token t2 was just handed its lease for the claim window."""
    engine = make(1 if request.param == "in the state" else 2)
    engine.acquire("t0")
    if engine.limit == 2:
        engine.acquire("t1")
    listening("t2")
    assert engine.acquire("t2")[0] == "queued"
    clock.now_us += TTL_US // 2
    engine.release("t1" if engine.limit == 2 else "t0")
    assert engine.stored().holders["t2"] == clock.now_us + CLAIM_US
    return engine


def test_a_confirmation_sets_the_deadline_once_and_never_shortens_it(handed, clock):
    clock.now_us += CLAIM_US - 1
    for ttl_ms in (TTL_MS, TTL_MS, 1):
        assert handed.run("confirm", token="t2", ttl_ms=ttl_ms) == ["renewed", TTL_US]
        assert handed.stored().holders["t2"] == clock.now_us + TTL_US
    assert len(handed.stored().holders) == handed.limit


def test_a_confirmation_takes_the_way_past_maxmemory_only_where_it_must(handed, raw):
    raw.config_resetstat()
    handed.run("confirm", token="t2", ttl_ms=TTL_MS)
    commands = raw.info("commandstats")
    assert commands.get("cmdstat_hset", {"calls": 0})["calls"] == (handed.limit == 1)
    assert ("cmdstat_hdel" in commands) == (handed.limit == 2)


def test_a_confirmation_that_is_cut_off_takes_no_lease_and_works_when_it_is_sent_again(handed, clock):
    keys, before = [handed.key(part) for part in PARTS], handed.stored().holders
    after = before | {"t2": clock.now_us + TTL_US}
    commands = 0
    while not runs_through(clock, load("permit_confirm").source, keys, ["t2", TTL_MS], commands):
        assert handed.stored().holders == before
        commands += 1
    assert commands > 1
    assert handed.stored().holders == after
    assert handed.run("confirm", token="t2", ttl_ms=TTL_MS) == ["renewed", TTL_US]
    assert handed.stored().holders == after


@pytest.mark.parametrize("ttl_ms", [TTL_MS, 1000 * HOUR_MS])
def test_the_keys_outlive_a_lease_that_is_confirmed_by_an_hour(make, clock, listening, ttl_ms):
    engine = make(1)
    engine.acquire("t0")
    listening("t1")
    engine.acquire("t1", ttl=ttl_ms)
    clock.now_us += WAIT_MS * 1000 - 1
    engine.release("t0")
    clock.now_us += CLAIM_US - 1
    engine.run("confirm", token="t1", ttl_ms=ttl_ms)
    (end,) = engine.stored().holders.values()
    assert end == clock.now_us + ttl_ms * 1000
    assert engine.keep_us() >= end + HOUR_MS * 1000
    assert engine.client.pttl(engine.key(PARTS[0])) >= (engine.keep_us() - NOW_US) / 1000 - 1000


def test_a_confirmation_passes_at_maxmemory(handed, raw):
    raw.config_set("maxmemory", 1)
    try:
        assert handed.run("confirm", token="t2", ttl_ms=TTL_MS) == ["renewed", TTL_US]
        assert handed.stored().holders["t2"] == handed.client.now_us + TTL_US
    finally:
        raw.config_set("maxmemory", 0)


def test_a_confirmation_brings_no_lease_back(handed, clock):
    handed.release("t2")
    handed.acquire("t3", 5, limit=5)
    handed.acquire("t4", 5, limit=5)
    handed.cancel("t5")
    for token in ("t2", "t4", "t5", "unknown"):
        with unchanged(handed):
            assert handed.run("confirm", token=token, ttl_ms=TTL_MS) == ["lost"]


def test_a_lease_that_has_expired_is_not_confirmed(handed, clock):
    clock.now_us += CLAIM_US
    with unchanged(handed):
        assert handed.run("confirm", token="t2", ttl_ms=TTL_MS) == ["lost"]


def test_nothing_is_confirmed_of_a_name_whose_state_is_gone(handed, make):
    assert make(name="b").run("confirm", token="t", ttl_ms=TTL_MS) == ["lost"]
    handed.client.delete(handed.key(PARTS[0]))
    with unchanged(handed):
        assert handed.run("confirm", token="t2", ttl_ms=TTL_MS) == ["lost"]
