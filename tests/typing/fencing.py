"""Examples of `handfast.fencing` that are never run, only type-checked."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, assert_type

import redis
import redis.asyncio
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.client import Pipeline

from handfast import AsyncHandfast, Handfast
from handfast.fencing import (
    MissingRow,
    StaleFence,
    advance_fence,
    delete_if_newer,
    explain,
    guard_key,
    hset_if_newer,
    latest_fence,
    set_if_newer,
    update_if_newer,
)

hf = Handfast()
# --- fencing: what refuses an old fence

assert_type(set_if_newer(redis.Redis(), "k", "v", 5, ttl=30.0, guard_ttl=timedelta(days=1)), None)
set_if_newer(redis.Redis(), b"k", b"v", 5)
set_if_newer(hf, "k", 0.5, fence=5)
set_if_newer(redis.RedisCluster("localhost"), "k", "v", 5)
set_if_newer(redis.Redis(), "k", "v", "5")  # type: ignore[call-overload]  # a fence is an int
set_if_newer(redis.Redis(), "k", "v", 5, 30)  # type: ignore[call-overload]  # a ttl goes by its name
set_if_newer("a client", "k", "v", 5)  # type: ignore[call-overload]  # no client
hset_if_newer(redis.Redis(), "h", {"a": 1, "b": "two"}, 5)
fields = {"a": 1}
hset_if_newer(redis.Redis(), "h", fields, 5)
hset_if_newer(redis.Redis(), "h", {b"a": b"1"}, 5)
hset_if_newer(redis.Redis(), "h", [("a", 1)], 5)  # type: ignore[call-overload]  # fields come in a mapping
delete_if_newer(redis.Redis(), "k", 5)
advance_fence(redis.Redis(), "k", 5, guard_ttl=60)
assert_type(latest_fence(redis.Redis(), "k"), int | None)
assert_type(latest_fence(hf, "k"), int | None)
assert_type(set_if_newer(redis.Redis().pipeline(), "k", "v", 5), Pipeline)
latest_fence(delete_if_newer(redis.Redis().pipeline(), "k", 5), "k").execute()
assert_type(guard_key("k"), str)
assert_type(guard_key(b"k"), bytes)
assert_type(explain(redis.ResponseError()), Exception)
try:
    update_if_newer(object(), "shop.orders", {"state": "paid"}, 5, where={"id": 42}, column="fence", quote="`")
except StaleFence as stale:
    assert_type(stale.key, str | bytes | None)
    assert_type(stale.fence, int)
    assert_type(stale.newer, int | None)
except MissingRow as missing:
    assert_type(missing.name, str | None)
update_if_newer(object(), "orders", {}, 5)  # type: ignore[call-arg]  # which row?


async def fenced() -> None:
    """The same, awaited."""
    conn = redis.asyncio.Redis()
    await assert_type(set_if_newer(conn, "k", "v", 5), Coroutine[Any, Any, None])
    await hset_if_newer(AsyncHandfast(), "h", {"a": 1}, 5)
    assert_type(await latest_fence(conn, "k"), int | None)
    assert_type(await latest_fence(AsyncHandfast(), "k"), int | None)
    assert_type(set_if_newer(conn.pipeline(), "k", "v", 5), AsyncPipeline)
