"""Scripts touch only the keys of their names (invariant 14): the server refuses all others to the user of this test."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.calls import PARTS
from tests._support.engine import TTL_US, Clock


@pytest.fixture
def confined(locks, server, raw):
    """The scripts of one or two locks, called by a user with rights to their keys only."""
    keys = [f"~{engine.key(part)}" for engine in locks.engines for part in PARTS]
    raw.execute_command("ACL", "SETUSER", "confined", "on", ">x", "&*", "+@all", *keys)
    client = redis.Redis.from_url(server.url, username="confined", password="x", decode_responses=True)
    locks.client = Clock(client)
    for engine in locks.engines:
        engine.client = locks.client
    yield locks
    client.close()
    raw.execute_command("ACL", "DELUSER", "confined")


def test_no_script_touches_another_key(confined, raw, listening):
    listening("t2")
    with pytest.raises(redis.exceptions.NoPermissionError):
        confined.client.get("0")
    assert confined.acquire("t1")[0] == "granted"
    for _ in range(2):
        assert confined.acquire("t2")[0] == "queued"
    assert confined.cancel("t2")[0] == "cancelled"
    confined.client.now_us += TTL_US
    assert confined.acquire("t3", wait=0)[0] == "granted"
    raw.config_set("maxmemory", 1)
    assert confined.renew("t3")[0] == "renewed"
    assert confined.release("t3")[0] == "released"
    raw.config_set("maxmemory", 0)
    name = confined.engines[0]
    _, fence, _ = name.acquire("t4")
    assert name.run("confirm", token="t4", ttl_ms=TTL_US // 1000)[0] == "renewed"
    assert name.lower("t4", 1)[0] == "lowered"
    assert name.adopt("t4")[0] == "adopted"
    assert name.resize(2)[0] == "resized"
    assert name.inspect()[0] == "state"
    assert name.revoke(fence)[:2] == ["revoked", 1]
    for token, part in (("t5", "tokens"), ("t6", "state")):
        raw.delete(name.key(part))
        assert name.acquire(token)[0] == "granted"
        name.release(token)


def test_no_script_of_a_limiter_touches_another_key(limits, server, raw, listening):
    a = limits((2, 100), (9, 1000))
    listening("w1", "w2")
    raw.execute_command("ACL", "SETUSER", "confined", "on", ">x", "&*", "+@all", *[f"~{key}" for key in a.keys])
    client = redis.Redis.from_url(server.url, username="confined", password="x", decode_responses=True)
    a.client = Clock(client)
    assert a.attempt("t1", 2)[0] == "admitted"
    assert a.acquire("w1", 2)[0] == a.acquire("w2", 2)[0] == "queued"
    a.client.now_us += 100_000
    assert a.acquire("w2", 2)[0] == "queued"
    assert a.queue() == ["w2"]
    assert a.settle("w1", 2, 1) == a.settle("w1", 1, 0) == a.cancel("w2", 2) == ["settled", 0]
    assert a.pause(5) == a.pause(0) == ["paused", 5000, 0]
    assert a.resize() == a.resize(is_set=False) == ["resized", 0]
    assert a.reset(a.client.now_us) == ["reset", 0]
    assert a.inspect()[0] == 0
    client.close()
    raw.execute_command("ACL", "DELUSER", "confined")
