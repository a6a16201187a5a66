"""The reentrant lock through both APIs. Its owner is the thread that acquired it, in asyncio the task.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import warnings

import pytest

from handfast import (
    AcquireTimeout,
    AsyncHandfast,
    LeaseLost,
)
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, forever
from tests.gate.api import test_rlock as gate
from tests.gate.api.test_rlock import awaited, is_over, nothing_left

mine = gate.mine


# --- reacquiring


async def test_extending_one_lease_extends_the_shared_hold(here):
    rlock = here.rlock("a", ttl=1, renew=False)
    async with rlock as outer, rlock as inner:
        await inner.extend(100)
        assert outer.remaining() > 90
        assert (await rlock.status()).holders[0].remaining > 90


# --- ownership


async def test_calls_that_need_no_owner_work_in_another_thread_or_task(here):
    async with here.rlock("a", ttl=1) as lease:

        async def look():
            lease.check()
            await lease.extend(50)
            return lease.fence

        assert await asyncio.create_task(look()) == lease.fence
        assert lease.remaining() > 40


async def test_a_lease_of_an_ended_thread_or_task_may_be_released_by_any_other(here, raw):
    rlock = here.rlock("a")
    lease = await asyncio.create_task(awaited(rlock.acquire()))
    await asyncio.sleep(0.01)
    assert await rlock.try_acquire() is None, "no running thread or task owns it"
    await eventually_async(lambda: is_over(lease))
    assert await lease.release() is True
    assert nothing_left(raw)
    async with rlock:
        pass


# --- garbage-collected leases


async def test_when_all_leases_are_garbage_collected_one_warning_appears_and_the_lock_expires(here, there):
    rlock = here.rlock("a", ttl=0.3)
    leases = [await rlock.acquire() for _ in range(3)]
    await leases.pop().release()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        leases.clear()
        gc.collect()
    assert [warning.category for warning in told] == [ResourceWarning]
    assert "RLease of 'a', fence " in str(told[0].message)
    assert "was dropped without a release" in str(told[0].message)
    async with there.lock("a").acquire(timeout=10) as lease:
        assert lease.fence
    async with rlock.acquire(timeout=5):
        pass


# --- renewal and loss


async def test_the_hold_is_renewed_while_any_lease_is_held(here, there):
    rlock = here.rlock("a", ttl=0.3)
    outer = await rlock.acquire()
    inner = await rlock.acquire()
    await outer.release()
    once = await here.rlock("b", ttl=0.3, renew=False).acquire()
    await asyncio.sleep(0.7)
    inner.check()
    assert await there.lock("a").try_acquire() is None
    assert await inner.release() is True
    assert once.lost
    assert await once.release() is False
    async with there.lock("b").acquire(timeout=5):
        pass


async def test_a_known_loss_is_raised_by_the_inner_and_by_the_outer_block(here, there, raw):
    seen = []
    rlock = here.rlock("a", ttl=0.3, renew=False)
    with pytest.raises(LeaseLost):
        async with rlock as outer:
            try:
                async with rlock:
                    with contextlib.suppress(asyncio.CancelledError):
                        await eventually_async(lambda: outer.lost)
                        await asyncio.sleep(0.01)
            except LeaseLost:
                seen.append("inner")
                raise
            pytest.fail("the inner block did not raise")
    assert seen == ["inner"]
    assert asyncio.current_task().cancelling() == 0


@pytest.fixture
async def operator(server, raw):
    async with AsyncHandfast(server.url) as client:
        yield client


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_in_asyncio_nested_blocks_are_cancelled_and_leave_no_pending_cancellation(mine, operator, depth):
    rlock, innermost, reached, left = mine.rlock("a"), asyncio.Event(), [], []

    async def take():
        await innermost.wait()
        return await operator.lock("a").force_release(reason="deploy")

    async def nest(levels):
        try:
            async with rlock:
                if levels > 1:
                    await nest(levels - 1)
                innermost.set()
                await forever()
                reached.append("the end")
        except BaseException as error:
            left.append(type(error))
            raise

    taking = asyncio.create_task(take())
    with pytest.raises(LeaseLost, match="deploy"):
        await nest(depth)
    assert await taking == 1
    assert reached == []
    assert left == [asyncio.CancelledError] * (depth - 1) + [LeaseLost], "the outermost block raises it"
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0.01)
    async with rlock as fresh, rlock:
        await asyncio.sleep(0.005)
        assert not fresh.lost


async def test_in_asyncio_an_inner_block_is_cancelled_while_the_outer_one_only_warns(mine, operator):
    went_on = []
    with pytest.warns(RuntimeWarning, match="deploy"):
        async with mine.rlock("a", on_lost="warn") as outer:
            with pytest.raises(LeaseLost, match="deploy"):
                async with mine.rlock("a"):
                    taking = asyncio.create_task(operator.lock("a").force_release(reason="deploy"))
                    await forever()
            await taking
            assert outer.lost
            await asyncio.sleep(0.005)
            went_on.append(True)
    assert went_on == [True]
    assert asyncio.current_task().cancelling() == 0


# --- the sync API only: threads and forks


def in_child(action):
    """Run the function in a forked child; return the exit code, 0 if the function returned True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() is True else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the test forks with threads on purpose
def test_a_forked_child_holds_no_lease_and_cannot_release_its_parents(hf, raw):
    rlock = hf.rlock("a")

    def child():
        def says(kind, ask):
            try:
                ask()
            except kind:
                return True
            return False

        inner.__exit__(None, None, None)  # leaving a block in the child neither raises nor sends a request
        nothing = rlock.try_acquire() is None and says(AcquireTimeout, lambda: rlock.acquire(timeout=0.03))
        lost = says(LeaseLost, outer.check) and says(LeaseLost, inner.check)
        with hf.rlock("b") as one, hf.rlock("b") as two:
            fresh = one.token == two.token
        entered = says(LeaseLost, inner.__enter__)
        return nothing and lost and entered and fresh and outer.release() is False and inner.release() is False

    with rlock as outer, rlock as inner:
        assert in_child(child) == 0
        outer.check()
        assert Engine(raw).holders() == [inner.token]
        with rlock:
            pass
    assert nothing_left(raw)
