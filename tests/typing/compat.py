"""Examples of `handfast.compat` that are never run, only type-checked."""

from __future__ import annotations

from typing import Literal, assert_type

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

from handfast.compat import AsyncRedisLock, RedisLock

drop_in = RedisLock(redis.Redis(), "orders:42", timeout=30.0, sleep=0.5, blocking_timeout=None, thread_local=False)
as_before: redis.lock.Lock = drop_in
redis.Redis().lock("orders:42", timeout=30.0, lock_class=RedisLock)
assert_type(drop_in.acquire(blocking=False, token="mine"), bool)
assert_type(drop_in.extend(10, replace_ttl=True), Literal[True])
with drop_in as entered:
    assert_type(entered, RedisLock)


async def drop_in_for_asyncio(client: redis.asyncio.Redis) -> None:
    """The same, awaited."""
    lock = AsyncRedisLock(client, "orders:42", timeout=30.0, raise_on_release_error=False)
    as_before: redis.asyncio.lock.Lock = lock
    assert_type(as_before.name, str | bytes | memoryview)
    assert_type(await lock.acquire(blocking_timeout=5.0, token=b"mine"), bool)
    assert_type(await lock.extend(10), Literal[True])
    async with lock as entered:
        assert_type(entered, AsyncRedisLock)
