"""Blocks: none runs without its lease, and each leaves its own, in whatever thread or task."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import LeaseLost, NotHeld, NotOwner
from tests._support.apis import SYNC
from tests._support.helpers import eventually_async, more, settled

# --- a lease that is over


async def test_a_released_lease_cannot_be_entered(here, there):
    lease = await here.lock("a").acquire()
    async with lease:
        pass
    with pytest.raises(NotHeld, match="'a' was already released"):
        async with lease:
            pytest.fail("the block ran")
    assert not await there.lock("a").locked()


@pytest.mark.parametrize("on_lost", ["raise", *more("warn")])
async def test_a_lost_lease_cannot_be_entered(here, there, on_lost):
    lease = await here.lock("a", on_lost=on_lost).acquire()
    await there.lock("a").force_release(reason="test")
    await eventually_async(lambda: lease.lost)
    with pytest.raises(LeaseLost, match="was lost"):
        async with lease:
            pytest.fail("the block ran")


async def test_a_reentrant_lease_that_was_released_cannot_be_entered(here):
    async with here.rlock("a"):
        lease = await here.rlock("a").acquire()
        await lease.release()
        with pytest.raises(NotHeld):
            async with lease:
                pytest.fail("the block ran")


# --- copies


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_what_owns_something_is_not_copied(plain, duplicate):
    for owner, advice in (
        (plain.lock("a"), r"use detach\(\) to give it to another process"),
        (plain.rlock("a"), "acquire the lock there"),
        (plain.lock_all(["a", "b"]), "acquire the names there"),
    ):
        lease = await settled(owner.acquire())
        with pytest.raises(TypeError, match=f"cannot be copied or pickled; {advice}"):
            duplicate(lease)
        await settled(lease.release())
    shared = plain.lock("a"), plain.rlock("a"), plain.semaphore("a", 2), plain.lock_all(["a"]), plain.rwlock("a")
    for one in (plain, *shared, plain.rwlock("a").read(), plain.scores("a"), plain.autocomplete("a")):
        with pytest.raises(TypeError, match="cannot be copied or pickled; make a client there"):
            duplicate(one)


# --- blocks of generators, which frameworks run step by step in any thread or task


def steps(api, primitive):
    """Return a generator that holds while it is suspended, as a dependency of a web framework does."""
    if api is SYNC:

        def held():
            with primitive as lease:
                yield lease

        return held()

    async def held_async():
        async with primitive as lease:
            yield lease

    return held_async()


async def step(generator):
    """Take a step in this thread and task; return None at the end."""
    return next(generator, None) if hasattr(generator, "__next__") else await anext(generator, None)


@contextlib.asynccontextmanager
async def elsewhere():
    """Give a function that takes steps in another thread and task, the same one each time."""
    with ThreadPoolExecutor(1) as thread:
        orders = asyncio.Queue()

        async def work():
            while order := await orders.get():
                generator, taken = order
                try:
                    if hasattr(generator, "__next__"):
                        taken.set_result(
                            await asyncio.get_running_loop().run_in_executor(thread, next, generator, None)
                        )
                    else:
                        taken.set_result(await anext(generator, None))
                except BaseException as error:  # noqa: BLE001 -- it is raised by the step
                    taken.set_exception(error)

        async def step(generator):
            taken = asyncio.get_running_loop().create_future()
            orders.put_nowait((generator, taken))
            return await taken

        task = asyncio.create_task(work())
        yield step
        orders.put_nowait(None)
        await task


async def test_a_block_that_is_left_elsewhere_leaves_its_own_lease(api, plain):
    semaphore = plain.semaphore("a", 3)
    one, two, three = (steps(api, semaphore) for _ in range(3))
    async with elsewhere() as step_elsewhere:
        first, second, third = await step_elsewhere(one), await step(two), await step(three)
        await step(one)
        assert await settled(first.release()) is False
        second.check()
        third.check()
        await step_elsewhere(two)
        assert await settled(second.release()) is False
        third.check()
        await step_elsewhere(three)
    assert (await settled(semaphore.status())).free == 3


async def test_blocks_of_a_stack_that_is_closed_elsewhere_end_from_within(api, plain):
    """An exit stack leaves them in frames of its own: only the caller tells which block it is."""
    semaphore, leases, held_between = plain.semaphore("a", 3), [], []
    stack = contextlib.ExitStack() if api is SYNC else contextlib.AsyncExitStack()

    def entered():
        leases.append(stack.enter_context(semaphore))
        stack.callback(lambda: held_between.append([holder.fence for holder in semaphore.status().holders]))
        leases.append(stack.enter_context(semaphore))
        yield

    async def entered_async():
        async def note():
            held_between.append([holder.fence for holder in (await semaphore.status()).holders])

        leases.append(await stack.enter_async_context(semaphore))
        stack.push_async_callback(note)
        leases.append(await stack.enter_async_context(semaphore))
        yield

    async with elsewhere() as step_elsewhere:
        await step_elsewhere(entered() if api is SYNC else entered_async())
        await settled(stack.close() if api is SYNC else stack.aclose())
    assert held_between == [[leases[0].fence]]
    assert (await settled(semaphore.status())).free == 3


async def test_a_reentrant_block_that_is_left_elsewhere_is_over_and_says_so(api, plain):
    rlock = plain.rlock("a")
    async with elsewhere() as step_elsewhere:
        outer, inner = steps(api, rlock), steps(api, rlock)
        lease = await step_elsewhere(outer)
        await step_elsewhere(inner)
        for generator, holders in ((inner, 1), (outer, 0)):
            with pytest.raises(NotOwner, match="its block was left by another one, which released it"):
                await step(generator)
            assert len((await settled(rlock.status())).holders) == holders
        again = await step_elsewhere(steps(api, rlock))
        assert again.fence > lease.fence, "it is a grant of its own"


async def test_the_error_of_a_reentrant_block_that_is_left_elsewhere_wins(api, plain):
    async with elsewhere() as step_elsewhere:
        generator = steps(api, plain.rlock("a"))
        await step_elsewhere(generator)
        with pytest.raises(KeyError):
            await settled(generator.throw(KeyError()) if api is SYNC else generator.athrow(KeyError()))
    assert (await settled(plain.rlock("a").status())).free == 1
