"""lib/expiry.lua: every key outlives its contents, and ends (invariant 5; the fixture `raw` looks for keys without a TTL).

How much longer each key lives is asserted wherever tests call `Engine.lives`.
"""

from __future__ import annotations

import pytest


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
        for part in ("holders", "tokens", "queue"):
            assert engine.client.pttl(engine.key(part)) >= ttl_ms, part
