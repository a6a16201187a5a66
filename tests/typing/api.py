"""Examples that are never run, only type-checked: what users write must be what the types allow."""

# mypy: enable-error-code="unused-awaitable"

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, assert_type

import redis
import redis.asyncio
import valkey
import valkey.asyncio

from handfast import (
    Admission,
    Advance,
    AsyncAdmission,
    AsyncAutocomplete,
    AsyncHandfast,
    AsyncLease,
    AsyncLeaseOfAll,
    AsyncLimiter,
    AsyncLock,
    AsyncLockAll,
    AsyncMetricAdmission,
    AsyncMetricLimiter,
    AsyncOnce,
    AsyncReadLock,
    AsyncRLease,
    AsyncRLock,
    AsyncRun,
    AsyncRWLease,
    AsyncRWLock,
    AsyncScores,
    AsyncSemaphore,
    AsyncSemaphoreLease,
    AsyncWriteLock,
    Autocomplete,
    Handfast,
    Holder,
    Kind,
    Lease,
    LeaseOfAll,
    Limiter,
    LimiterStatus,
    Lock,
    LockAll,
    LockStatus,
    MetricAdmission,
    MetricLimiter,
    NameStatus,
    Once,
    OnceStatus,
    Rate,
    ReadLock,
    Reply,
    RLease,
    RLock,
    Run,
    RWLease,
    RWLock,
    Scored,
    Scores,
    Script,
    ScriptError,
    Semaphore,
    SemaphoreLease,
    Waiter,
    WriteLock,
)

# --- the sync API

hf = Handfast("redis://localhost:6379/0", namespace="billing", label="worker 1", max_sessions=8, release_at_exit=True)
Handfast(redis.Redis())
Handfast(redis.Redis.from_url("redis://localhost"))
Handfast(valkey.Valkey())
Handfast(None)
AsyncHandfast(redis.asyncio.Redis())
AsyncHandfast(valkey.asyncio.Valkey())
Handfast(redis.asyncio.Redis())  # type: ignore[arg-type]  # of the other API
Handfast(valkey.asyncio.Valkey())  # type: ignore[arg-type]  # as above
AsyncHandfast(redis.Redis())  # type: ignore[arg-type]  # as above
AsyncHandfast(valkey.Valkey())  # type: ignore[arg-type]  # as above
Handfast(redis.RedisCluster())
AsyncHandfast(redis.asyncio.RedisCluster())
Handfast(redis.asyncio.RedisCluster())  # type: ignore[arg-type]  # of the other API
Handfast(5)  # type: ignore[arg-type]  # no server at all
AsyncHandfast("redis://localhost").lock("a").acquire()  # type: ignore[unused-awaitable]  # a forgotten await
AsyncHandfast(b"redis://localhost")  # type: ignore[arg-type]  # as above
assert_type(Handfast.embedded(), Handfast)

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
assert_type(lock.adopt(lease.detach(ttl=60)), Lease)
assert_type(lock.acquire(cancel=threading.Event()), Lease)

if (maybe := lock.try_acquire()) is not None:
    assert_type(maybe.release(), bool)

status = lock.status()
assert_type(status, LockStatus)
assert_type(status.holders, tuple[Holder, ...])
assert_type(status.waiters, tuple[Waiter, ...])
assert_type(lock.locked(), bool)
assert_type(lock.force_release(reason="deploy"), int)
assert_type(lock.force_release(up_to_fence=status.fence), int)
assert_type(lock.force_release(fence=status.holders[0].fence), int)
assert_type(list(hf.names("order:*", kinds=["lock"])), list[NameStatus])


@hf.lock("nightly")
def job(number: int, *, word: str) -> float:
    """A decorated function keeps its signature."""
    return number * len(word)


assert_type(job(1, word="x"), float)
job(1, "x")  # type: ignore[call-arg]  # its own words are asked for by name

with Handfast() as client:
    assert_type(client, Handfast)
    client.close()


# --- and the relatives of the lock

semaphore = hf.semaphore("gpu", 4, ttl=30.0, renew=True, on_lost="warn", max_waiters=100)
assert_type(semaphore, Semaphore)
hf.semaphore("gpu", limit=4)
hf.semaphore("gpu")  # type: ignore[call-arg]  # of how many permits?
with semaphore as lease:
    assert_type(lease, SemaphoreLease)
with semaphore.acquire(permits=2, timeout=1.0) as lease:
    assert_type(lease, SemaphoreLease)
assert_type(semaphore.acquire(), SemaphoreLease)
assert_type(semaphore.try_acquire(permits=3), SemaphoreLease | None)
semaphore.acquire(2)  # type: ignore[arg-type]  # two what?
assert_type(semaphore.limit, int)
semaphore.limit = 3  # type: ignore[misc]  # resize does that
semaphore.acquire(permits="2")  # type: ignore[arg-type]  # a number
hf.semaphore("gpu", 4, 30.0)  # type: ignore[arg-type]  # options go by name
hf.rwlock("config", limit=2)  # type: ignore[arg-type]  # it has no size
semaphore.resize(8)
semaphore.resize(None)
assert_type(semaphore.status().free, int)
assert_type(semaphore.status().holders[0].exclusive, bool)

rwlock = hf.rwlock("config", ttl=timedelta(seconds=10))
assert_type(rwlock, RWLock)
assert_type(rwlock.read(), ReadLock)
assert_type(rwlock.write(), WriteLock)
assert_type(rwlock.status(), LockStatus)
with rwlock.write() as writing:
    assert_type(writing, RWLease)
    writing.downgrade()
    assert_type(writing.writes, bool)
with rwlock.read().acquire(timeout=1.0) as reading:
    assert_type(reading, RWLease)
assert_type(rwlock.read().try_acquire(), RWLease | None)
with rwlock:  # type: ignore[attr-defined]  # to read or to write?
    pass

limiter = hf.limiter("openai", "10/s; 500/min", on_limit="wait", timeout=timedelta(seconds=5), max_waiters=100)
assert_type(limiter, Limiter)
assert_type(limiter.keyed("user", 7), Limiter)
assert_type(limiter.acquire(cost=2, timeout=5), Admission)
assert_type(limiter.try_acquire(), Admission)
assert_type(limiter.try_acquire().retry_after, float)
limiter.acquire().settle(cost=0)
assert_type(limiter.status(), LimiterStatus)
hf.limiter("openai", [Rate(500, per=60.0), Rate(90_000, per=timedelta(days=1)), "1/100ms"])
with limiter as admission:
    assert_type(admission, Admission)
with limiter.admit(cost=5, timeout=1) as admission:
    assert_type(admission.remaining, int)
tokens = hf.limiter("openai", {"requests": "500/min", "tokens": Rate(90_000, 60)}, timeout=5)
assert_type(tokens, MetricLimiter)
assert_type(tokens.keyed("acme"), MetricLimiter)
assert_type(tokens.try_acquire(cost={"tokens": 5}), MetricAdmission)
tokens.acquire(cost=5)  # type: ignore[arg-type]
limiter.acquire(cost={"tokens": 5})  # type: ignore[arg-type]
with tokens.admit(cost={"tokens": 5}) as of_tokens:
    assert_type(of_tokens.remaining["tokens"], int)
    assert_type(of_tokens.metric, str | None)
    of_tokens.settle(tokens=3)
    of_tokens.undo()
tokens.resize({"tokens": "1/s"})


@hf.limiter("login", Rate(5, 60), by=("user",), on_limit="raise")
def login(user: str) -> bool:
    return bool(user)


assert_type(login("me"), bool)

once = hf.once("invoice", keep=timedelta(days=1), refresh=3600, on_running="wait", timeout=5, dumps=bytes)
assert_type(once, Once)
assert_type(once.keyed("user", 7), Once)
assert_type(once.run(lambda: 7, timeout=10, fingerprint=b"digest"), int)
assert_type(once.try_acquire(fingerprint="digest"), Run | None)
assert_type(once.status(), OnceStatus)
assert_type(once.forget(), bool)
with once.keyed(7) as run, once.acquire(timeout=5) as other_run:
    assert_type(run, Run)
    assert_type(other_run, Run)
    run.finish(len(run.result) if run.done else run.fence)
once.run(7)  # type: ignore[arg-type]  # no function
hf.once("invoice", on_running="skip")  # type: ignore[arg-type]  # is for the decorators of locks


@hf.once("report", by=("user", "day"), keep=3600)
def report(user: str, day: int) -> list[str]:
    return [user] * day


assert_type(report("me", day=1), list[str])

rlock = hf.rlock("invoice:7")
assert_type(rlock, RLock)
with rlock as held, rlock as again:
    assert_type(held, RLease)
    assert_type(again, RLease)

both = hf.lock_all(["a", "b"])
assert_type(both, LockAll)
hf.lock_all(f"account:{number}" for number in range(3))
with both as of_all:
    assert_type(of_all, LeaseOfAll)
    assert_type(of_all.fences, dict[str, int])
assert_type(both.names, tuple[str, ...])
assert_type(both.status(), dict[str, LockStatus])
assert_type(both.acquire(timeout=5), LeaseOfAll)


@rwlock.read()
@semaphore
@rlock
@both
def careful(number: int) -> str:
    """Each of them can be a decorator."""
    return str(number)


assert_type(careful(1), str)


# --- the asyncio API


async def main() -> None:
    """The same, awaited."""
    hf = AsyncHandfast("redis://localhost:6379/0", namespace="billing", label="worker 1")
    AsyncHandfast(redis.asyncio.Redis())
    assert_type(AsyncHandfast.embedded(), AsyncHandfast)

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
        task = tasks.create_task(lock.acquire())
        _ = assert_type(task, asyncio.Task[AsyncLease])
    assert_type(await asyncio.gather(lock.acquire(), lock.locked()), tuple[AsyncLease, bool])

    if (maybe := await lock.try_acquire()) is not None:
        assert_type(await maybe.release(), bool)

    assert_type(await lock.status(), LockStatus)
    assert_type(await lock.locked(), bool)
    assert_type(await lock.force_release(reason="deploy"), int)
    assert_type([one.kind async for one in hf.names()], list[Kind])

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

    async with AsyncHandfast() as client:
        assert_type(client, AsyncHandfast)
        await client.close()


async def results() -> None:
    """Once, awaited."""
    hf = AsyncHandfast()

    async def render() -> str:
        return ""

    once = hf.once("invoice", keep=60, rerun=False, keep_failure=5, max_waiters=100)
    assert_type(once, AsyncOnce)
    assert_type(await once.keyed(7).run(render, timeout=1), str)
    assert_type(await once.try_acquire(), AsyncRun | None)
    assert_type(await once.status(), OnceStatus)
    assert_type(await once.forget(), bool)
    async with once as run, once.acquire(timeout=5) as other_run:
        assert_type(run, AsyncRun)
        assert_type(other_run, AsyncRun)
        await run.finish(run.result if run.done else 1)
    assert_type(await asyncio.wait_for(once.acquire(), 1), AsyncRun)

    @hf.once("report", by="user")
    async def report(user: str) -> list[str]:
        return [user]

    assert_type(await report("me"), list[str])


async def relatives() -> None:
    """The relatives of the lock, awaited."""
    hf = AsyncHandfast()
    semaphore = hf.semaphore("gpu", 4)
    assert_type(semaphore, AsyncSemaphore)
    async with semaphore as lease:
        assert_type(lease, AsyncSemaphoreLease)
    async with semaphore.acquire(permits=2, timeout=1.0) as lease:
        assert_type(lease, AsyncSemaphoreLease)
    assert_type(await semaphore.acquire(permits=2), AsyncSemaphoreLease)
    assert_type(await semaphore.try_acquire(permits=3), AsyncSemaphoreLease | None)
    assert_type(await lease.slot(prefer=3), int)
    await semaphore.resize(8)

    rwlock = hf.rwlock("config")
    assert_type(rwlock, AsyncRWLock)
    assert_type(rwlock.read(), AsyncReadLock)
    assert_type(rwlock.write(), AsyncWriteLock)
    async with rwlock.write() as writing:
        assert_type(writing, AsyncRWLease)
        await writing.downgrade()
    async with rwlock.read().acquire(timeout=1.0) as reading:
        assert_type(reading, AsyncRWLease)
    assert_type(await asyncio.wait_for(rwlock.read().acquire(), 1), AsyncRWLease)

    limiter = hf.limiter("openai", "10/s; 500/min")
    assert_type(limiter, AsyncLimiter)
    assert_type(await limiter.acquire(cost=2), AsyncAdmission)
    tokens = hf.limiter("openai", {"tokens": "200000/min"})
    assert_type(tokens, AsyncMetricLimiter)
    async with tokens.admit(cost={"tokens": 5}) as of_tokens:
        assert_type(of_tokens, AsyncMetricAdmission)
        await of_tokens.settle(tokens=3)
    assert_type((await limiter.try_acquire()).admitted, bool)
    await (await limiter.acquire()).settle(cost=3)
    assert_type(await limiter.status(), LimiterStatus)
    async with limiter as admission:
        assert_type(admission, AsyncAdmission)

    @hf.limiter("login", "5/min", by="user")
    async def login(user: str) -> bool:
        return bool(user)

    assert_type(await login("me"), bool)

    rlock = hf.rlock("invoice:7")
    assert_type(rlock, AsyncRLock)
    async with rlock as held:
        assert_type(held, AsyncRLease)

    both = hf.lock_all(("a", "b"))
    assert_type(both, AsyncLockAll)
    async with both.acquire(timeout=5) as of_all:
        assert_type(of_all, AsyncLeaseOfAll)
        assert_type(of_all.fences, dict[str, int])
    assert_type(await both.status(), dict[str, LockStatus])

    @rwlock.read()
    @both
    async def careful(number: int) -> str:
        """Each of them can be a decorator."""
        return str(number)

    assert_type(await careful(1), str)


# --- data: names to complete, scores that only grow

names = hf.autocomplete("guild:7")
assert_type(names, Autocomplete)
assert_type(names.name, str)
hf.autocomplete("guild:7", fold_case=True, ranked=True).add({"jeff": 3.0, "jenny": 1})
hf.autocomplete("guild:7", True)  # type: ignore[call-arg]  # options go by name
names.add("jeff")
names.add(["jeff", "jenny"])
names.add(5)  # type: ignore[arg-type]  # no name
names.remove("jeff")
names.remove({"jeff", "jenny"})
assert_type(names.complete("je"), tuple[str, ...])
assert_type(names.complete("je", limit=3), tuple[str, ...])
assert_type(names.size(), int)
names.clear()

seen = hf.scores("seen")
assert_type(seen, Scores)
assert_type(seen.advance({"ann": 12.5, "bob": 3}), Advance)
assert_type(seen.advance({"ann": 1.0}).moved, int)
seen.advance({"ann": "late"})  # type: ignore[dict-item]  # no score
assert_type(seen.oldest(), tuple[Scored, ...])
assert_type(seen.newest(limit=3), tuple[Scored, ...])
assert_type(seen.since(3, limit=3)[0].score, float)
assert_type(seen.since(3.5)[0].member, str)
seen.remove("ann")
seen.remove(["ann", "bob"])
assert_type(seen.size(), int)
seen.clear()


async def data() -> None:
    """The same, awaited."""
    hf = AsyncHandfast()
    names = hf.autocomplete("guild:7", ranked=True)
    assert_type(names, AsyncAutocomplete)
    await names.add({"jeff": 3.0})
    await names.remove(["jeff"])
    assert_type(await names.complete("je", limit=3), tuple[str, ...])
    assert_type(await names.size(), int)
    await names.clear()
    seen = hf.scores("seen")
    assert_type(seen, AsyncScores)
    assert_type(await seen.advance({"ann": 12.5}), Advance)
    assert_type(await seen.newest(), tuple[Scored, ...])
    assert_type(await seen.since(3), tuple[Scored, ...])
    assert_type(await seen.size(), int)


# --- scripts of the user's own

take = Script.from_file("take.lua")
assert_type(take, Script)
assert_type(Script.from_file(Path("take.lua")), Script)
assert_type(Script.from_package("billing", "lua/take.lua"), Script)
assert_type(Script("return 1", name="one"), Script)
Script("return 1", "one")  # type: ignore[call-arg]  # the name goes by name
Script(b"return 1")  # type: ignore[arg-type]  # the source is text
assert_type(take.name, str)
assert_type(take.source, str)
assert_type(take.digest, str)
assert_type(take.keys, tuple[str, ...])
assert_type(take.args, tuple[str, ...])
assert_type(take(redis.Redis(), account="a", amount=3), Any)
take(hf, account="a", amount=3)
take(redis.Redis().pipeline(), account="a", amount=3).execute()
assert_type(take.read([b"taken", 3]), Any)


class Taken(NamedTuple):
    """A reply, field by field."""

    outcome: str
    left: int


@take.typed
def take_from(conn: redis.Redis, *, account: str, amount: int = 1) -> Taken:
    """A stub keeps its signature."""
    raise NotImplementedError


assert_type(take_from(redis.Redis(), account="a"), Taken)
assert_type(take_from(redis.Redis(), account="a", amount=3).left, int)
take_from(redis.Redis(), account=5)  # type: ignore[arg-type]  # the stub's types are checked
take_from(redis.Redis(), note="a")  # type: ignore[call-arg]  # so are its names
take_from("a client", account="a")  # type: ignore[arg-type]  # so is its client


@take.typed
def take_here(client: redis.Redis | Handfast, *, account: str, amount: int) -> Reply | None:
    """A stub says which clients it takes."""
    raise NotImplementedError


if (reply := take_here(hf, account="a", amount=3)) is not None:
    assert_type(reply, Reply)
    assert_type(reply.tag, str)
    assert_type(reply.left, Any)
    match reply:
        case Reply("short", missing=missing):
            assert_type(missing, Any)

try:
    take_here(hf, account="a", amount=3)
except ScriptError as error:
    assert_type(error.name, str | None)
    assert_type(error.line, int)
    assert_type(error.source_line, str)
    assert_type(error.reason, str)
except redis.ResponseError as error:
    assert_type(take.explain(error), Exception)


async def scripts() -> None:
    """The same, awaited."""

    @take.typed
    async def take_soon(conn: redis.asyncio.Redis, *, account: str, amount: int) -> int:
        """A stub that is awaited."""
        raise NotImplementedError

    assert_type(
        await assert_type(take_soon(redis.asyncio.Redis(), account="a", amount=3), Coroutine[Any, Any, int]), int
    )
    assert_type(await take(AsyncHandfast(), account="a", amount=3), Any)
