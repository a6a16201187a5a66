"""Examples that are never run, only type-checked: what users write must be what the types allow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

import redis
import redis.asyncio

from holdfast import AsyncHoldfast, AsyncLease, AsyncLock, Holder, Holdfast, Lease, Lock, LockStatus, Waiter

# --- the sync colour

hf = Holdfast("redis://localhost:6379/0", namespace="billing", label="worker 1", max_sessions=8)
Holdfast(redis.Redis())
assert_type(Holdfast.embedded(), Holdfast)

lock = hf.lock("orders:42", ttl=30.0, renew=True, on_lost="warn")
assert_type(lock, Lock)
hf.lock("a", ttl=timedelta(minutes=1), renew=False)
hf.lock("a", on_lost="ignore")  # type: ignore[arg-type]  # there are two ways only

with lock as lease:
    assert_type(lease, Lease)
    assert_type(lease.fence, int)
    assert_type(lease.token, str)
    assert_type(lease.remaining(), float)
    assert_type(lease.lost, bool)
    assert_type(lease.lost_event, threading.Event)
    lease.add_lost_callback(lease.lost_event.set)
    lease.check()
    lease.extend(60)

with lock.acquire(timeout=5.0) as lease:
    assert_type(lease, Lease)

assert_type(lock.acquire(), Lease)

if (maybe := lock.try_acquire()) is not None:
    assert_type(maybe.release(), bool)

status = lock.status()
assert_type(status, LockStatus)
assert_type(status.holders, tuple[Holder, ...])
assert_type(status.waiters, tuple[Waiter, ...])
assert_type(lock.locked(), bool)
assert_type(lock.force_release(reason="deploy"), int)


@hf.lock("nightly")
def job(number: int, *, word: str) -> float:
    """A decorated function keeps its signature."""
    return number * len(word)


assert_type(job(1, word="x"), float)
job(1, "x")  # type: ignore[call-arg]  # its own words are asked for by name

with Holdfast() as client:
    assert_type(client, Holdfast)
    client.close()


# --- the asyncio colour


async def main() -> None:
    """The same, awaited."""
    hf = AsyncHoldfast("redis://localhost:6379/0", namespace="billing", label="worker 1")
    AsyncHoldfast(redis.asyncio.Redis())
    assert_type(AsyncHoldfast.embedded(), AsyncHoldfast)

    lock = hf.lock("orders:42", ttl=30.0, renew=True, on_lost="warn")
    assert_type(lock, AsyncLock)
    hf.lock("a", ttl=timedelta(minutes=1), renew=False)

    async with lock as lease:
        assert_type(lease, AsyncLease)
        assert_type(lease.fence, int)
        assert_type(lease.token, str)
        assert_type(lease.remaining(), float)
        assert_type(lease.lost, bool)
        assert_type(lease.lost_event, asyncio.Event)
        lease.add_lost_callback(lease.lost_event.set)
        lease.check()
        await lease.extend(60)

    async with lock.acquire(timeout=1.0) as lease:
        assert_type(lease, AsyncLease)

    assert_type(await lock.acquire(), AsyncLease)
    assert_type(await lock.acquire(timeout=timedelta(seconds=1)), AsyncLease)
    assert_type(await asyncio.wait_for(lock.acquire(), 1), AsyncLease)
    assert_type(await asyncio.create_task(lock.acquire()), AsyncLease)
    async with asyncio.TaskGroup() as tasks:
        assert_type(tasks.create_task(lock.acquire()), asyncio.Task[AsyncLease])
    assert_type(await asyncio.gather(lock.acquire(), lock.locked()), tuple[AsyncLease, bool])

    if (maybe := await lock.try_acquire()) is not None:
        assert_type(await maybe.release(), bool)

    assert_type(await lock.status(), LockStatus)
    assert_type(await lock.locked(), bool)
    assert_type(await lock.force_release(reason="deploy"), int)

    @hf.lock("nightly")
    async def job(number: int, *, word: str) -> float:
        """A decorated coroutine function keeps its signature."""
        return number * len(word)

    assert_type(await assert_type(job(1, word="x"), Coroutine[Any, Any, float]), float)
    await job(1, "x")  # type: ignore[call-arg]  # its own words are asked for by name

    async def plain(number: int) -> str:
        return str(number)

    held: Callable[[int], Coroutine[Any, Any, str]] = lock(plain)
    assert_type(await held(1), str)
    lock(len)  # type: ignore[arg-type]  # nothing to await there

    with lock:  # type: ignore[attr-defined]  # a plain with would not wait
        pass

    async with AsyncHoldfast() as client:
        assert_type(client, AsyncHoldfast)
        await client.close()
