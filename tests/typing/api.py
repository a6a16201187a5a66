"""Examples that are never run, only type-checked: what users write must be what the types allow."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import redis

from holdfast import Holder, Holdfast, Lease, Lock, LockStatus, Waiter

hf = Holdfast("redis://localhost:6379/0", namespace="billing", label="worker 1")
Holdfast(redis.Redis())
assert_type(Holdfast.embedded(), Holdfast)

lock = hf.lock("orders:42", ttl=30.0, renew=True, on_lost="warn")
assert_type(lock, Lock)
hf.lock("a", ttl=timedelta(minutes=1), renew=False)

with lock as lease:
    assert_type(lease, Lease)
    assert_type(lease.fence, int)
    assert_type(lease.token, str)
    assert_type(lease.remaining(), float)
    assert_type(lease.lost, bool)
    lease.check()
    lease.extend(60)

with lock.acquire(timeout=5.0) as lease:
    assert_type(lease, Lease)

if (maybe := lock.try_acquire()) is not None:
    assert_type(maybe.release(), bool)

status = lock.status()
assert_type(status, LockStatus)
assert_type(status.holders, tuple[Holder, ...])
assert_type(status.waiters, tuple[Waiter, ...])
assert_type(lock.force_release(reason="deploy"), int)


@hf.lock("nightly")
def job(number: int, *, word: str) -> float:
    """A decorated function keeps its signature."""
    return number * len(word)


assert_type(job(1, word="x"), float)
