"""The lock through both APIs."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import re
import threading
from datetime import UTC

import pytest

from handfast import (
    AcquireTimeout,
    Handfast,
    NotHeld,
    QueueFull,
)
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, SYNC, until_queued
from tests._support.engine import Engine
from tests._support.family import NOWHERE
from tests._support.helpers import eventually_async


async def take_and_give(lock):
    """Wait for the lock, release it, and return its fence."""
    async with lock.acquire(timeout=20) as lease:
        return lease.fence


# --- holding


async def test_a_lock_excludes_others_until_it_is_released(here, there):
    lease = await here.lock("a").acquire()
    assert await there.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout, match=r"'a' could not be acquired within 0\.05 s: .* has held it for"):
        await there.lock("a").acquire(timeout=0.05)
    assert await lease.release() is True
    async with there.lock("a") as second:
        assert second.fence > lease.fence


async def test_a_release_hands_the_lock_to_the_waiter(here, there, raw):
    lease = await here.lock("a").acquire()

    async def wait():
        async with there.lock("a") as second:
            return second.token

    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait())
        await until_queued(here.lock("a"))
        (token,) = Engine(raw).queue()
        assert not waiter.done()
        assert await lease.release() is True
    assert waiter.result() == token


async def test_waiters_acquire_in_queue_order(here, there):
    first = await here.lock("a").acquire()
    async with asyncio.TaskGroup() as tasks:
        waiters = []
        for number in range(5):
            waiters.append(tasks.create_task(take_and_give((here, there)[number % 2].lock("a"))))
            await until_queued(here.lock("a"), number + 1)
        assert await there.lock("a").try_acquire() is None
        await first.release()
        assert await here.lock("a").try_acquire() is None, "a new request queues behind the waiters"
    fences = [waiter.result() for waiter in waiters]
    assert first.fence < fences[0]
    assert fences == sorted(fences)


async def test_a_timeout_says_who_has_it_and_how_many_stood_before(api, server, here, there, raw):
    async with api.client(server.url, label="web-1") as first:
        held = await first.lock("a").acquire()
        waiter = asyncio.create_task(take_and_give(there.lock("a")))
        await until_queued(here.lock("a"))
        with pytest.raises(AcquireTimeout) as caught:
            await here.lock("a").acquire(timeout=0.05)
        error = caught.value
        (holder,) = error.status.holders
        assert (holder.label, holder.fence, error.position, error.status.waiting) == ("web-1", held.fence, 1, 1)
        assert re.fullmatch(
            r"'a' could not be acquired within 0\.05 s: web-1 has held it for \d\.\d s; 1 stood before it in the queue; "
            r"use a longer timeout=",
            str(error),
        )
        with pytest.raises(AcquireTimeout, match=r"'a' is not free: web-1 has held it for \d\.\d s$") as caught:
            await here.lock("a").acquire(timeout=0)
        assert caught.value.position is None
        await held.release()
        await waiter


@pytest.mark.parametrize(("reason", "error"), [("", ValueError), ("x" * 1001, ValueError), (5, TypeError)])
@pytest.mark.parametrize("kind", ["lock", "lock_all"])
async def test_a_wrong_reason_is_refused_before_anything_is_sent(api, kind, reason, error):
    async with api.client(NOWHERE) as client:
        primitive = client.lock("a") if kind == "lock" else client.lock_all(["a", "b"])
        with pytest.raises(error, match="reason must"):
            await primitive.force_release(reason=reason)


async def test_a_timeout_names_a_lock_that_rests(here, there, raw):
    async with here.lock("a", at_least=60):
        pass
    with pytest.raises(AcquireTimeout, match=r"has released it, and it stays taken for (59\.\d|60\.0) s"):
        await there.lock("a").acquire(timeout=0)


async def test_acquire_is_a_context_manager(here, there, raw):
    async with here.lock("a").acquire(timeout=5) as lease:
        assert Engine(raw).holders() == [lease.token]
        with pytest.raises(AcquireTimeout):
            async with there.lock("a").acquire(timeout=0.02):
                pytest.fail("two callers hold the lock")
    assert Engine(raw).holders() == Engine(raw).queue() == []
    assert await lease.release() is False
    async with here.lock("a").acquire() as second:
        assert second.fence > lease.fence
    assert not await here.lock("a").locked()


async def test_an_exception_in_the_block_propagates_and_frees_the_lock(here):
    lock = here.lock("a")
    for block in (lock, lock.acquire(timeout=5)):
        with pytest.raises(KeyError, match="mine"):
            async with block:
                assert await lock.locked()
                raise KeyError("mine")
        assert not await lock.locked()


async def test_a_lease_is_a_context_manager_and_may_be_released_early(here):
    lease = await here.lock("a").acquire()
    async with lease as same:
        assert same.token == lease.token
    assert await lease.release() is False
    async with here.lock("a") as lease:
        assert await lease.release() is True
        async with here.lock("a"):
            pass
    assert not await here.lock("a").locked()


async def test_callers_that_share_a_lock_object_each_leave_their_own_block(here):
    lock, inside, most, fences = here.lock("a"), [], [], []

    async def work():
        for _ in range(10):
            async with lock as lease:
                inside.append(1)
                most.append(len(inside))
                fences.append(lease.fence)
                await asyncio.sleep(0)
                inside.pop()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(work())
    assert set(most) == {1}
    assert len(fences) == 40
    assert fences == sorted(set(fences))
    assert not await lock.locked()


async def test_a_lease_may_be_released_by_another_caller(here):
    lease = await here.lock("a").acquire()

    async def give():
        return await lease.release()

    assert await asyncio.create_task(give()) is True
    assert not await here.lock("a").locked()


async def test_a_released_lease_reports_it(here):
    lease = await here.lock("a").acquire()
    lease.check()
    assert await lease.release() is True
    assert await lease.release() is False
    assert not lease.lost
    assert lease.remaining() == 0
    with pytest.raises(NotHeld, match="already released"):
        lease.check()
    with pytest.raises(NotHeld, match="already released"):
        await lease.extend(1)
    assert "released" in repr(lease)


# --- status


async def test_status_lists_the_holder_and_the_waiters(api, server, raw):
    async with api.client(server.url, label="billing worker 3") as mine, api.client(server.url) as yours:
        async with asyncio.TaskGroup() as tasks, mine.lock("a", ttl=30) as lease:
            tasks.create_task(take_and_give(yours.lock("a")))
            await until_queued(mine.lock("a"))
            status = await mine.lock("a").status()
            (holder,), (waiter,) = status.holders, status.waiters
            assert (holder.label, holder.fence, holder.weight) == ("billing worker 3", lease.fence, 1)
            assert lease.token.startswith(holder.token)
            assert 29 < holder.remaining <= 30
            assert holder.held_for >= 0
            assert str(os.getpid()) in waiter.label
            assert (waiter.position, waiter.weight) == (0, 1)
            assert status.fence == lease.fence
            assert waiter.waited_for >= 0
        assert not (await mine.lock("a").status()).waiters


async def test_status_counts_grants_and_how_long_they_waited(here):
    lock = here.lock("a")
    assert ((await lock.status()).grants, (await lock.status()).waited) == (0, 0)
    async with lock:
        pass
    async with asyncio.TaskGroup() as tasks, lock:
        waiting = tasks.create_task(take_and_give(lock))
        await until_queued(lock)
        before = (await lock.status()).waiters[0].waited_for
    await waiting
    status = await lock.status()
    assert status.grants == 3
    assert before < status.waited < before + 60


async def test_an_owner_is_a_thread_or_a_task_of_a_client(api, server):
    async with api.client(server.url) as mine, api.client(server.url) as yours:
        async with asyncio.TaskGroup() as tasks, mine.lock("a"), mine.lock("b"), yours.lock("c"):
            tasks.create_task(take_and_give(mine.lock("a")))
            await until_queued(mine.lock("a"))
            a, b, c = [await mine.lock(name).status() for name in "abc"]
            first, second, other = (status.holders[0].owner for status in (a, b, c))
            assert first == second
            client, _, caller = first.partition(".")
            assert client not in other
            assert a.waiters[0].owner.startswith(f"{client}.")
            assert a.waiters[0].owner != first
            if api is SYNC:
                assert int(caller) in {thread.native_id for thread in threading.enumerate()}


@pytest.mark.parametrize("label", ["web-3:4711;task=billing;app=a b", "ü" * 100])
async def test_a_label_is_shown_as_it_was_given(api, server, label):
    async with api.client(server.url, label=label) as client, client.lock("a"):
        assert (await client.lock("a").status()).holders[0].label == label


@pytest.mark.parametrize("label", ["", "ü" * 101])
def test_a_label_has_at_most_200_bytes(api, server, label):
    with pytest.raises(ValueError, match="label must"):
        api.client(server.url, label=label)


async def test_status_has_what_an_operator_did_last(api, server, raw):
    async with api.client(server.url, label="ops@bastion 1") as client:
        lock = client.lock("a")
        lease = await lock.acquire()
        assert (await lock.status()).last is None
        assert await lock.force_release(reason="stuck since noon") == 1
        last = (await lock.status()).last
        assert (last.what, last.by, last.why) == ("force_release", "ops@bastion 1", "stuck since noon")
        assert abs(last.at.timestamp() - raw.time()[0]) < 60
        assert last.at.tzinfo is UTC
        assert await lease.release() is False


async def test_equal_names_in_different_namespaces_are_different_locks(api, server, raw):
    async with api.client(server.url, namespace="one") as one, api.client(server.url, namespace="two") as two:
        async with one.lock("a"), two.lock("a"):
            assert {key.split(":")[0] for key in raw.scan_iter()} == {"{one", "{two"}


async def test_a_full_queue_refuses_the_next_waiter(here, there):
    async with asyncio.TaskGroup() as tasks, here.lock("a"):
        tasks.create_task(take_and_give(there.lock("a")))
        await until_queued(here.lock("a"))
        with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
            await here.lock("a", max_waiters=1).acquire()


# --- decorators


async def test_a_decorated_function_runs_under_the_lock(api, here, raw):
    lock, holders = here.lock("a"), []

    def body(value, *, other_value):
        """Its own words."""
        holders.append(Engine(raw).holders())
        return value + other_value

    job = lock(api.function(body))
    assert await job(1, other_value=2) == 3
    assert await job(3, other_value=4) == 7
    assert [len(held) for held in holders] == [1, 1]
    assert holders[0] != holders[1], "each call has a lease of its own"
    assert (job.__name__, job.__doc__) == ("body", "Its own words.")
    assert not await lock.locked()


def plain():
    pass


async def coroutine():
    pass


def generator():
    yield


async def asynchronous_generator():
    yield


class Asynchronous:
    async def __call__(self):
        pass


@pytest.mark.parametrize(
    ("api", "function"),
    [(SYNC, coroutine), (SYNC, functools.partial(coroutine)), (SYNC, Asynchronous()), (ASYNCIO, plain)],
    ids=["sync-coroutine", "sync-partial", "sync-object", "asyncio-plain"],
)
async def test_decorating_a_function_of_the_other_api_raises_type_error(api, function):
    async with api.client(NOWHERE) as client:
        with pytest.raises(TypeError, match=rf"decorate it with what {api.other.__name__} makes"):
            client.lock("a")(function)


@pytest.mark.parametrize("function", [generator, asynchronous_generator])
async def test_decorating_a_generator_raises_type_error(api, function):
    async with api.client(NOWHERE) as client:
        with pytest.raises(TypeError, match=r"is a generator.*use a with block in it"):
            client.lock("a")(function)


# --- invalid arguments


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (42, TypeError, "must be a URL"),
        ("nonsense://x", ValueError, "scheme"),
    ],
    ids=["number", "scheme"],
)
def test_an_invalid_server_argument_is_refused(api, given, error, words):
    with pytest.raises(error, match=words):
        api.client(given)


async def test_a_client_of_the_other_api_is_refused(api):
    async with (ASYNCIO if api is SYNC else SYNC).users_client() as client:
        with pytest.raises(TypeError, match=rf"needs {api.other.__name__}\b"):
            api.client(client)


def test_a_redis_client_with_unsuitable_options_is_refused(api):
    with pytest.raises(ValueError, match="namespace must not be empty"):
        api.client(NOWHERE, namespace="")
    with pytest.raises(ValueError, match="label must not be empty"):
        api.client(NOWHERE, label="")


# --- the sync API only


def test_a_sync_client_without_sessions_is_refused():
    with pytest.raises(ValueError, match="max_sessions"):
        Handfast(NOWHERE, max_sessions=0)


@pytest.mark.parametrize("what", ["busy", "full"])
async def test_a_request_that_arrives_after_its_retry_was_refused_leaves_no_lease(api, server, raw, there, what):
    """The first copy is late and the second is answered. The caller gives up and cancels, for the late copy as well."""
    held = await there.lock("a").acquire()
    waiter = asyncio.create_task(take_and_give(there.lock("a"))) if what == "full" else None
    await eventually_async(lambda: waiter is None or Engine(raw).queue())
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            async with far.lock("warm"):
                pass
            late = proxy.duplicate(script("permit_acquire"), after=600)
            if what == "full":
                with pytest.raises(QueueFull):
                    await far.lock("a", max_waiters=1).acquire()
            else:
                assert await far.lock("a").try_acquire() is None
            await held.release()
            if waiter is not None:
                await waiter
            late.clear()
            await eventually_async(lambda: late.happened)
            assert Engine(raw).holders() == Engine(raw).queue() == []


async def test_of_several_that_release_a_lease_at_once_one_released_it(here, raw):
    for _ in range(30):
        lease = await here.lock("a").acquire()
        releases = [asyncio.create_task(until_done(lease.release)) for _ in range(4)]
        assert sorted(await asyncio.gather(*releases)) == [False, False, False, True]
        assert not lease.lost


async def test_a_block_whose_lease_is_released_elsewhere_meanwhile_ends_without_an_error(here, raw):
    for _ in range(30):
        async with here.lock("a") as lease:
            releasing = asyncio.create_task(until_done(lease.release))
            await asyncio.sleep(0)
        await releasing
        assert not lease.lost


async def until_done(call):
    """Await a call in a task of its own: with the sync API, in a thread of its own."""
    return await call()


async def test_a_lease_that_no_one_keeps_says_so_in_the_log(here, caplog):
    with pytest.warns(ResourceWarning, match="was dropped without a release"):
        assert await here.lock("a").try_acquire()
        gc.collect()
    await eventually_async(lambda: caplog.records)
    (record,) = caplog.records
    assert (record.name, record.levelname, record.lock) == ("handfast.lease", "WARNING", "a")
    assert "was dropped without a release: it is not renewed any more, and ends in " in record.getMessage()
