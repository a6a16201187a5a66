"""A head start: a request counts as if it had come earlier. Of each kind that has one, in both APIs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from handfast import QueueFull
from tests._support.apis import take, until_queued
from tests._support.family import NOWHERE, Holders
from tests._support.helpers import eventually_async
from tests._support.kinds import made

kinds = pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "write"])


@kinds
async def test_a_head_start_passes_those_who_came_within_it(here, there, raw, kind):
    plain, urgent = made(kind, here, places=1), made(kind, there, places=1, head_start=60)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, plain)
        holders.tasks["first"] = tasks.create_task(holders._hold("first", plain, {}))
        await holders.become("first")
        await holders.queue("plain", made(kind, here, places=1))
        await holders.queue("urgent", urgent)
        await holders.queue("more urgent", made(kind, there, places=1), head_start=timedelta(hours=1))
        await holders.queue("a little", urgent, head_start=0.000_001)
        waiters = (await plain.status()).waiters
        assert [one.head_start for one in waiters] == [3600.0, 60.0, 0.0, 0.000_001]
        assert max(one.waited_for for one in waiters) < 30, "it counts from when a request came"
        for name in ("first", "more urgent", "urgent", "plain", "a little"):
            await holders.become(name)
            await holders.release(name)
    status = await plain.status()
    assert status.grants == 5
    assert status.waited < 30


async def test_a_run_of_once_may_have_a_head_start(here, there, raw):
    key, ran = here.once("a"), []

    async def run(client, who, **options):
        async with client.once("a", **options) as one:
            ran.append(who)
            if who == "first":
                await may_end.wait()
            await one.release()

    may_end = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(here, "first"))
        await eventually_async(lambda: ran)
        tasks.create_task(run(there, "plain"))

        async def waiting(count):
            return (await key.status()).waiting == count

        await eventually_async(lambda: waiting(1))
        tasks.create_task(run(here, "urgent", head_start=60))
        await eventually_async(lambda: waiting(2))
        may_end.set()
    assert ran == ["first", "urgent", "plain"]


async def test_a_call_of_a_limiter_may_have_a_head_start(here, there):
    limiter, admitted = here.limiter("a", "1/100ms"), []

    async def call(client, who, **options):
        await client.limiter("a", "1/100ms").acquire(**options)
        admitted.append(who)

    async def waiting(count):
        return (await limiter.status()).waiting == count

    await limiter.acquire()
    await limiter.pause(0.2)
    async with asyncio.TaskGroup() as tasks:
        for number, (client, who, options) in enumerate(
            [(here, "plain", {}), (there, "later", {}), (here, "urgent", {"head_start": 60})], 1
        ):
            tasks.create_task(call(client, who, **options))
            await eventually_async(lambda number=number: waiting(number))
        assert 0 < (await limiter.status()).longest_wait < 60  # a head start is no time that it has waited
    assert admitted == ["urgent", "plain", "later"]


async def test_a_full_queue_counts_requests_with_a_head_start(here, there):
    lock = here.lock("a", max_waiters=1)
    async with asyncio.TaskGroup() as tasks:
        async with lock:
            waiter = tasks.create_task(take(there.lock("a", head_start=60)))
            await until_queued(lock)
            with pytest.raises(QueueFull):
                await there.lock("a", max_waiters=1).acquire(head_start=60)
        await waiter


async def test_several_locks_have_none(api):
    async with api.client(NOWHERE) as client:
        with pytest.raises(TypeError, match="several locks, whose queues have no head start"):
            await client.lock_all(["a", "b"]).acquire(head_start=1)


async def test_without_a_server_it_is_taken(api):
    async with api.client("null:") as client:
        async with client.lock("a").acquire(head_start=1):
            pass
