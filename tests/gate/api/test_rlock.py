"""The reentrant lock through both APIs. Its owner is the thread that acquired it, in asyncio the task."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import gc
import sys
import threading
import weakref

import pytest

from handfast import (
    AcquireTimeout,
    AsyncHandfast,
    Handfast,
    LeaseLost,
    NotHeld,
    NotOwner,
    QueueFull,
)
from tests._support.apis import SYNC
from tests._support.engine import Engine
from tests._support.family import NOWHERE, Holders, scripts_run, until_listening
from tests._support.helpers import awaited, eventually, eventually_async

REFUSED = "the reentrant lock 'a' can only be released by the thread or task that acquired it; release it there"


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


async def elsewhere(coroutine):
    """Return the result of the call in another thread or task."""
    return await asyncio.create_task(awaited(coroutine))


# --- reacquiring


async def test_the_owner_reacquires_without_a_request_to_the_server(here, raw):
    rlock = here.rlock("a")
    async with rlock as outer:
        await rlock.status()  # loads the script
        before = scripts_run(raw)
        async with rlock as inner, rlock.acquire(timeout=0.001) as third:
            assert {lease.token for lease in (outer, inner, third)} == {outer.token}
            assert {lease.fence for lease in (outer, inner, third)} == {outer.fence}
            fourth = await rlock.try_acquire()
            fifth = await rlock.acquire()
            assert await fifth.release() is True
            assert await fourth.release() is True
            assert (await rlock.status()).holders[0].weight == 1
        assert scripts_run(raw) == before + 1, "status() was the only request"
        outer.check()
        assert Engine(raw).holders() == [outer.token]
    assert nothing_left(raw)
    async with rlock as again:
        assert again.fence > outer.fence
        assert again.token != outer.token


async def test_releasing_the_last_lease_in_any_order_frees_the_lock(here, there, raw):
    rlock = here.rlock("a")
    first, second, third = [await rlock.acquire() for _ in range(3)]
    for lease in (first, third):
        assert await lease.release() is True
        assert await lease.release() is False
        assert await there.lock("a").try_acquire() is None
        with pytest.raises(NotHeld, match="the lease of 'a' was already released"):
            lease.check()
        with pytest.raises(NotHeld):
            await lease.extend(40)
        assert lease.remaining() == 0
        assert not lease.lost
        assert "released" in repr(lease)
    second.check()
    fourth = await rlock.acquire()
    assert fourth.token == second.token, "any remaining lease keeps the hold"
    assert await second.release() is True
    assert await fourth.release() is True
    assert await fourth.release() is False
    async with there.lock("a").acquire(timeout=5) as next_one:
        assert next_one.fence > first.fence


async def test_blocks_may_end_by_an_early_release_or_an_exception(here, raw):
    rlock = here.rlock("a")
    async with rlock as outer:
        with pytest.raises(KeyError, match="mine"):
            async with rlock, rlock.acquire():
                raise KeyError("mine")
        outer.check()
        async with rlock as inner:
            assert await inner.release() is True
            outer.check()
        async with rlock as inner:
            assert await outer.release() is True
            inner.check()
            assert Engine(raw).holders() == [inner.token]
        assert nothing_left(raw)
    assert nothing_left(raw)


async def test_a_decorated_function_may_call_itself(api, here, there, raw):
    rlock, held = here.rlock("a"), []

    if api is SYNC:

        def count(number):
            held.append(Engine(raw).holders())
            return 1 + job(number - 1) if number else 0

        job = rlock._thing(count)  # the sync object itself, since the recursive call is not awaited
        awaitable = here.rlock("a")(lambda: job(5))
    else:

        async def count(number):
            held.append(Engine(raw).holders())
            return 1 + await job(number - 1) if number else 0

        job = rlock(count)

        async def five():
            return await job(5)

        awaitable = rlock(five)
    assert await awaitable() == 5
    assert len(held) == 6
    assert [token for (token,) in held] == held[0] * 6, "all calls share one grant"
    assert nothing_left(raw)


async def test_releasing_the_last_lease_hands_the_lock_to_the_next_waiter(here, there, raw):
    rlock = here.rlock("a")
    leases = [await rlock.acquire() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, rlock)
        await holders.queue("reentrant", there.rlock("a"))
        await holders.queue("plain", there.lock("a"))
        (token, _) = Engine(raw).queue()
        for lease in leases[:2]:
            await lease.release()
            assert Engine(raw).holders() == [leases[2].token]
        again = await rlock.try_acquire()
        assert again.token == leases[2].token, "the owner reacquires ahead of the waiters"
        await again.release()
        await leases[2].release()
        assert Engine(raw).holders() == [token]
        await holders.become("reentrant")
        await holders.release("reentrant")
        await holders.become("plain")
        await holders.release("plain")
    assert leases[0].fence < holders.fences["reentrant"] < holders.fences["plain"]


# --- sharing a name


async def test_an_rlock_and_a_lock_of_the_same_name_exclude_each_other(here, there):
    held = await here.rlock("a").acquire()
    for lock in (here.lock("a"), there.lock("a")):
        assert await lock.locked()
        assert await lock.try_acquire() is None
        with pytest.raises(AcquireTimeout):
            await lock.acquire(timeout=0.03)
    await held.release()
    held = await here.lock("a").acquire()
    for rlock in (here.rlock("a"), there.rlock("a")):
        assert await rlock.try_acquire() is None
        with pytest.raises(AcquireTimeout, match=r"'a' could not be acquired within 0\.03 s: .* has held it for"):
            await rlock.acquire(timeout=0.03)
    await held.release()


async def test_objects_of_one_client_share_a_hold_and_those_of_another_client_do_not(api, server, here, there):
    async with api.client(server.url, namespace="other") as far:
        async with here.rlock("a") as outer, here.rlock("b"), far.rlock("a") as other:
            async with here.rlock("a", ttl=60) as inner:
                assert inner.token == outer.token
                assert other.token != outer.token
            assert await there.rlock("a").try_acquire() is None


async def test_a_failed_wait_leaves_no_state(here, there, raw):
    held = await there.rlock("a").acquire()
    rlock = here.rlock("a")
    with pytest.raises(AcquireTimeout):
        async with rlock.acquire(timeout=0.03):
            pytest.fail("the block was entered")
    assert Engine(raw).queue() == []
    await held.release()
    async with rlock as outer, rlock as inner:
        assert inner.token == outer.token


async def test_a_full_queue_refuses_the_next_waiter_but_not_the_owner(here, there):
    full = here.rlock("a", max_waiters=1)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, full)
        async with full:
            await holders.queue("one", there.rlock("a"))
            with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
                await elsewhere(full.acquire())
            async with full:
                pass
        await holders.release("one")


# --- ownership


async def test_another_thread_or_task_waits_in_the_queue(here):
    rlock = here.rlock("a")
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, rlock)
        async with rlock as outer:
            assert await elsewhere(rlock.try_acquire()) is None
            with pytest.raises(AcquireTimeout):
                await elsewhere(rlock.acquire(timeout=0.03))
            await holders.queue("child", rlock)
            async with rlock:
                assert holders.current == []
            assert holders.current == []
        await holders.become("child")
        assert holders.fences["child"] > outer.fence
        assert await rlock.try_acquire() is None
        await holders.release("child")


async def test_another_thread_or_task_cannot_release_it_and_it_stays_held(here, raw):
    rlock = here.rlock("a")
    outer = await rlock.acquire()
    inner = await rlock.acquire()
    for lease in (outer, inner):
        with pytest.raises(NotOwner, match=REFUSED) as caught:
            await elsewhere(lease.release())
        assert caught.value.name == "a"
        assert isinstance(caught.value, RuntimeError)
        lease.check()
    assert Engine(raw).holders() == [outer.token]
    assert await inner.release() is True
    with pytest.raises(NotOwner):
        await elsewhere(outer.release())
    assert Engine(raw).holders() == [outer.token]
    assert await outer.release() is True
    assert await elsewhere(outer.release()) is False, "a lease that is already released needs no owner"
    assert nothing_left(raw)


async def test_only_the_owner_can_leave_a_block(here, raw):
    rlock = here.rlock("a")

    async def leave():
        with pytest.raises(NotOwner, match=REFUSED):
            await rlock.__aexit__(None, None, None)

    async with rlock as outer:
        async with rlock:
            await elsewhere(leave())
            outer.check()
        await elsewhere(leave())
        assert Engine(raw).holders() == [outer.token]
    assert nothing_left(raw)
    with pytest.raises(RuntimeError, match="never entered"):
        await rlock.__aexit__(None, None, None)


async def test_a_block_of_an_ended_thread_or_task_may_be_left_by_any_other(here, raw):
    rlock = here.rlock("a")
    lease = await asyncio.create_task(awaited(rlock.__aenter__()))
    await eventually_async(lambda: is_over(lease))
    try:
        await rlock.__aexit__(None, None, None)
        assert nothing_left(raw)
    finally:
        await lease.release()


def is_over(lease):
    """Return True once the thread or task that acquired the lease has ended, which takes a thread a moment."""
    owner = lease._hold.caller
    return owner is None or (owner.done() if isinstance(owner, asyncio.Task) else not owner.is_alive())


async def test_threads_and_tasks_that_share_one_object_hold_it_one_at_a_time(here, raw):
    rlock, inside, most, fences = here.rlock("a"), [], [], []

    async def work():
        for _ in range(5):
            async with rlock as outer:
                inside.append(outer.fence)
                await asyncio.sleep(0)
                async with rlock as inner:
                    most.append(len(inside))
                    fences.append(inner.fence)
                    await asyncio.sleep(0)
                assert inside == [inner.fence]
                inside.pop()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(work())
    assert set(most) == {1}
    assert len(set(fences)) == len(fences) == 25
    assert fences == sorted(fences)
    assert nothing_left(raw)
    assert not rlock._blocks


# --- garbage-collected leases


async def test_a_garbage_collected_inner_lease_no_longer_counts(here, raw):
    rlock = here.rlock("a")
    outer = await rlock.acquire()
    inner = await rlock.acquire()
    del inner
    gc.collect()
    outer.check()
    assert Engine(raw).holders() == [outer.token]
    assert await outer.release() is True
    assert nothing_left(raw)


async def test_a_garbage_collected_outer_lease_leaves_the_hold_to_the_inner_one(here, raw):
    rlock = here.rlock("a")
    outer = await rlock.acquire()
    inner = await rlock.acquire()
    del outer
    gc.collect()
    inner.check()
    assert await inner.release() is True
    assert nothing_left(raw)


# --- renewal and loss


@pytest.mark.usefixtures("short_ticks")
async def test_a_loss_affects_all_leases_until_they_are_released(here, there, raw):
    rlock = here.rlock("a")
    called = []
    outer, inner = await rlock.acquire(), await rlock.acquire()
    inner.add_lost_callback(lambda: called.append(1))
    early = await rlock.acquire()
    await early.release()
    await until_listening(raw)
    assert await there.lock("a").force_release(reason="deploy") == 1
    await eventually_async(lambda: outer.lost and called)
    assert inner.lost
    assert not early.lost, "it was released before"
    for lease in (outer, inner):
        with pytest.raises(LeaseLost, match="deploy") as caught:
            lease.check()
        assert (caught.value.name, caught.value.fence) == ("a", outer.fence)
    before = scripts_run(raw)
    for ask in (rlock.acquire, rlock.try_acquire, here.rlock("a").acquire, lambda: rlock.acquire(timeout=1)):
        with pytest.raises(LeaseLost, match="deploy"):
            await ask()
    with pytest.raises(LeaseLost, match="deploy"):
        async with rlock:
            pytest.fail("the block was entered")
    assert scripts_run(raw) == before
    assert await outer.release() is False
    with pytest.raises(LeaseLost):
        await rlock.acquire()
    assert await inner.release() is False
    async with rlock as fresh:
        assert fresh.fence > outer.fence
        fresh.check()
    assert nothing_left(raw)


@pytest.mark.usefixtures("short_ticks")
async def test_after_a_loss_another_thread_or_task_can_acquire(here, there, raw):
    rlock = here.rlock("a")
    lost = await rlock.acquire()
    await until_listening(raw)
    await there.lock("a").force_release()
    await eventually_async(lambda: lost.lost)
    fence = await elsewhere(take_and_give(rlock))
    assert fence > lost.fence
    assert await lost.release() is False


async def take_and_give(rlock):
    async with rlock as lease:
        return lease.fence


async def test_a_loss_detected_by_the_last_release_is_raised(here, raw):
    rlock = here.rlock("a")
    outer, inner = await rlock.acquire(), await rlock.acquire()
    raw.flushall()
    assert await inner.release() is True, "the loss is not detected yet"
    assert await outer.release() is False
    assert outer.lost
    with pytest.raises(LeaseLost, match="released"):
        outer.check()
    async with rlock:
        pass


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_leaving_nested_blocks_after_a_loss_raises_unless_the_block_raised(here, raw, depth):
    @contextlib.asynccontextmanager
    async def nested(rlock):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(depth):
                await stack.enter_async_context(rlock)
            yield

    with pytest.raises(LeaseLost, match="released"):
        async with nested(here.rlock("a")):
            raw.flushall()
    with pytest.raises(KeyError):
        async with nested(here.rlock("a")):
            raw.flushall()
            raise KeyError
    with pytest.warns(RuntimeWarning, match="was lost"):
        async with nested(here.rlock("a", on_lost="warn")):
            raw.flushall()
    assert nothing_left(raw)


@pytest.fixture
async def mine(server, raw):
    async with AsyncHandfast(server.url) as client:
        await client.lock("a").locked()
        yield client


async def test_in_asyncio_inner_blocks_leave_no_state_in_the_lease(mine):
    rlock = mine.rlock("a")
    async with rlock as outer:
        before = len(outer._state.callbacks)
        for _ in range(20):
            async with rlock, rlock.acquire():
                assert len(outer._state.callbacks) == before + 2
        assert len(outer._state.callbacks) == before


async def test_in_asyncio_acquiring_outside_of_a_task_raises_an_error(mine, raw):
    loop, told = asyncio.get_running_loop(), []
    coroutine = mine.rlock("a").acquire()

    def step():
        try:
            coroutine.send(None)
        except BaseException as error:  # noqa: BLE001 -- the test checks the error
            told.append(error)

    loop.call_soon(step)
    await eventually_async(lambda: told)
    assert isinstance(told[0], RuntimeError)
    assert "belongs to the task that acquires it" in str(told[0])
    assert nothing_left(raw)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on wait_for makes no task of its own")
async def test_in_asyncio_a_lease_acquired_through_wait_for_can_be_released(mine, raw):
    rlock = mine.rlock("a")
    lease = await asyncio.wait_for(rlock.acquire(), 5)
    assert await rlock.try_acquire() is None
    assert await lease.release() is True
    assert nothing_left(raw)


async def test_in_asyncio_a_new_task_at_the_address_of_an_old_one_inherits_no_hold(mine):
    rlock, leases = mine.rlock("a"), []

    async def hold():
        leases.append(await rlock.acquire())
        return id(asyncio.current_task())

    async def tries():
        return id(asyncio.current_task()), await rlock.try_acquire()

    place, met = await asyncio.create_task(hold()), False
    for _ in range(200):
        again, lease = await asyncio.create_task(tries())
        met = met or again == place
        assert lease is None
    assert await leases[0].release() is True
    if not met:
        pytest.skip("no new task got the address of the first")


# --- the sync API only: threads and forks


def run(function):
    """Call the function in another thread; return its result and the ident of the thread."""
    box = []
    thread = threading.Thread(target=lambda: box.append(function()))
    thread.start()
    thread.join(20)
    return box[0], thread.ident


def run_without_threading(function):
    """Call the function in a thread that `threading` does not know of; return its result and the ident of the thread."""
    box = []
    ident = _thread.start_new_thread(lambda: box.append(function()), ())
    eventually(lambda: box)
    return box[0], ident


@pytest.mark.parametrize("run", [run, run_without_threading])
def test_a_new_thread_with_the_ident_of_an_old_one_inherits_no_hold(hf, run):
    rlock = hf.rlock("a")
    lease, ident = run(rlock.acquire)
    met = False
    for _ in range(50):
        again, other_ident = run(rlock.try_acquire)
        met = met or other_ident == ident
        assert again is None
    eventually(lambda: lease._hold.caller is None or hf._driver.is_over(lease._hold.caller))
    assert lease.release() is True, "its thread has ended"
    if not met:
        pytest.skip("no thread ident was reused")


@pytest.mark.parametrize("run", [run, run_without_threading])
def test_a_block_that_an_ended_thread_did_not_leave_may_be_left_by_any_other(hf, raw, run):
    rlock = hf.rlock("a")
    lease, _ = run(rlock.__enter__)
    eventually(lambda: hf._driver.is_over(lease._hold.caller))
    rlock.__exit__(None, None, None)
    assert lease.release() is False
    assert nothing_left(raw)


def test_a_client_whose_reentrant_locks_were_used_is_garbage_collected(server, raw):
    hf = Handfast(server.url)
    with hf.rlock("a"), hf.rlock("a"):
        pass
    with hf.rwlock("a").read():
        pass
    gone = weakref.ref(hf._driver)
    del hf
    gc.collect()
    assert gone() is None


# --- invalid arguments


@pytest.mark.parametrize("timeout", [float("nan"), "1", True])
async def test_bad_timeouts_are_refused_before_any_io_and_within_a_block(api, here, timeout):
    async with api.client(NOWHERE) as client:
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            await client.rlock("a").acquire(timeout=timeout)
    async with here.rlock("a"):
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            await here.rlock("a").acquire(timeout=timeout)
