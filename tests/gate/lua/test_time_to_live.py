"""How long the keys of a name live (invariant 5): both as long as the state says, long enough, and never without an end."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.script import LuaScript, load
from tests._support.engine import HOUR_MS, LATE_MS, NOW_US, TTL_MS

LONG_MS = 1000 * HOUR_MS
"""A thousandth of it is an hour."""


def live_for(engine, ms):
    """Assert that both keys live for that long from now, and that the state says so."""
    assert engine.keep_us() == engine.client.now_us + ms * 1000
    for part in PARTS:
        assert ms - LATE_MS < engine.client.pttl(engine.key(part)) <= ms, part


# --- long enough, and not raised by every call


@pytest.mark.parametrize("token", ["in the state", "beside it"])
def test_a_renewal_raises_the_ttls_by_an_hour_more_than_needed_and_not_before_they_are_short(make, token):
    engine = make()
    for holder in ("in the state", "beside it"):
        engine.acquire(holder)
    for ttl_ms, expected_ms in (
        (LONG_MS, LONG_MS + 2 * HOUR_MS),
        (LONG_MS + HOUR_MS, LONG_MS + 2 * HOUR_MS),
        (LONG_MS + HOUR_MS + 1, LONG_MS + 3 * HOUR_MS + 1),
    ):
        assert engine.renew(token, ttl_ms) == ["renewed", ttl_ms * 1000]
        assert engine.stored().holders[token] == NOW_US + ttl_ms * 1000
        live_for(engine, expected_ms)


def test_a_grant_raises_the_ttls_by_an_hour_more_than_needed_and_not_before_they_are_short(make):
    engine = make()
    for number, (ttl_ms, expected_ms) in enumerate(
        (
            (LONG_MS, LONG_MS + 2 * HOUR_MS),
            (LONG_MS + HOUR_MS, LONG_MS + 2 * HOUR_MS),
            (LONG_MS + HOUR_MS + 1, LONG_MS + 3 * HOUR_MS + 1),
        )
    ):
        engine.acquire(f"t{number}", ttl=ttl_ms)
        assert engine.keep_us() == NOW_US + expected_ms * 1000
        assert engine.client.pttl(engine.key("state")) > expected_ms - LATE_MS


@pytest.mark.parametrize("left_ms", [35_000, 66_000])
def test_a_waiter_raises_the_ttls_where_they_are_too_short_for_it(a, clock, left_ms):
    """For its wait, for a confirmation at the last moment, and for the lease, in all 67 s."""
    a.acquire("t0", ttl=HOUR_MS)
    clock.now_us += (2 * HOUR_MS - left_ms) * 1000
    a.acquire("t1", ttl=5000)
    assert a.keep_us() == NOW_US + 3 * HOUR_MS * 1000, "that was still enough"
    a.acquire("t2", ttl=5000, wait=60_000, claim=2000)
    live_for(a, 62_000 + 5000 + 2 * HOUR_MS)


def test_a_waiter_that_comes_back_raises_them_too(a):
    a.acquire("t1")
    a.acquire("t2", ticket=1, wait=LONG_MS, claim=5 * HOUR_MS)
    live_for(a, LONG_MS + TTL_MS + 7 * HOUR_MS)


def test_a_tombstone_raises_them_too(a):
    a.cancel("t1")
    live_for(a, 20_000 + 2 * HOUR_MS)


def test_a_grant_beside_others_leaves_them_as_they_are(make):
    engine = make()
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
        assert engine.keep_us() == NOW_US + (TTL_MS + 2 * HOUR_MS) * 1000


# --- a sorted set that is new


def let_in(engine):
    engine.acquire("t1", ttl=LONG_MS)
    engine.acquire("t2")
    engine.lose("tokens")


def let_in_after_a_limit(engine):
    engine.resize(3)
    let_in(engine)


def queue(engine):
    engine.acquire("t1", 5, ttl=LONG_MS)


def queue_behind_a_place(engine):
    engine.acquire("t1", 4, ttl=LONG_MS)


NEW_SETS = {
    "a grant beside others, the short way": (let_in, 1),
    "a grant beside others": (let_in_after_a_limit, 1),
    "a waiter, the short way": (queue, 1),
    "a waiter": (queue_behind_a_place, 2),
}
"""What makes a call for so many permits find no sorted set, while the state lives for long."""


@pytest.mark.parametrize("case", NEW_SETS)
def test_a_new_sorted_set_lives_as_long_as_the_state(make, case):
    engine = make()
    prepare, weight = NEW_SETS[case]
    prepare(engine)
    assert not engine.client.exists(engine.key("tokens"))
    engine.acquire("new", weight)
    state_ms, tokens_ms = (engine.client.pttl(engine.key(part)) for part in PARTS)
    assert abs(state_ms - tokens_ms) < LATE_MS
    assert state_ms > LONG_MS


REFUSE = """local server = redis
local redis = {sha1hex = server.sha1hex}
function redis.call(name, ...)
  assert(name ~= 'PEXPIRE', 'no rights')
  return server.call(name, ...)
end
function redis.pcall(name, ...)
  return name == 'PEXPIRE' and {err = 'no rights'} or server.pcall(name, ...)
end
"""
"""What a script that may not set a TTL meets."""


def load_without_rights(name):
    script = load(name)
    return LuaScript(name, REFUSE + script.source, script.header)


@pytest.mark.parametrize("case", NEW_SETS)
def test_a_new_sorted_set_that_cannot_get_a_ttl_does_not_stay(make, case):
    engine = make()
    prepare, weight = NEW_SETS[case]
    prepare(engine)
    engine.load = load_without_rights
    with pytest.raises(redis.ResponseError, match="no rights"):
        engine.acquire("new", weight)
    assert not engine.client.exists(engine.key("tokens"))


@pytest.mark.parametrize("call", ["acquire", "renew"])
def test_a_ttl_that_could_not_be_raised_is_asked_for_again(make, call):
    """The state says how long the keys live only once they do."""
    engine = make()
    engine.acquire("t1")
    engine.acquire("t2")
    kept_us = engine.keep_us()
    engine.load = load_without_rights
    with pytest.raises(redis.ResponseError, match="no rights"):
        getattr(engine, call)("t3" if call == "acquire" else "t1", ttl=LONG_MS)
    assert engine.keep_us() == kept_us
