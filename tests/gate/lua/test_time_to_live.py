"""A TTL that can't be set, for lack of a right: no key stays without an end (invariant 5). The sessions have all else."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.script import LuaScript, load
from tests._support.engine import HOUR_MS

LONG_MS = 1000 * HOUR_MS


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
