"""Losing a lease within its block: the block is cancelled, and what comes out of it is LeaseLost and nothing else."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from handfast import AsyncHandfast, LeaseLost
from handfast._protocol.loss import revoked
from tests._support.cancelling import context_of, settled
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, forever

LONG = 60
"""Seconds that nothing here is to last."""


@pytest.fixture
async def mine(server, raw):
    async with AsyncHandfast(server.url) as client:
        await client.lock("a").locked()
        yield client


@pytest.fixture
async def operator(server, raw):
    async with AsyncHandfast(server.url) as client:
        yield client


@pytest.fixture
def take(operator):
    """Revoke the leases of the lock."""

    async def take(name="a", reason="deploy"):
        assert await operator.lock(name).force_release(reason=reason) == 1

    return take


def soon(coroutine):
    """Let it happen while the test is in its block; failing is not to go unseen."""
    return asyncio.create_task(coroutine)


def clean():
    """Return whether no cancellation of this task is requested any more."""
    return asyncio.current_task().cancelling() == 0


async def settled_and_free(client, raw, name="a"):
    await settled(client)
    return Engine(raw, name).holders() == Engine(raw, name).queue() == []


# --- what ends a lease, and what comes out of its block


async def test_a_revoked_lease_ends_its_block_with_the_reason(mine, take, raw):
    reached = []
    with pytest.raises(LeaseLost, match="deploy") as caught:
        async with mine.lock("a") as lease:
            taking = soon(take())
            try:
                await forever()
            except asyncio.CancelledError:
                reached.append("cancelled")
                raise
            reached.append("the end")
    await taking
    assert reached == ["cancelled"]
    assert (caught.value.name, caught.value.fence) == ("a", lease.fence)
    assert clean()
    assert lease.lost
    assert not mine.lock("a")._blocks
    assert await settled_and_free(mine, raw)


async def test_an_extension_that_finds_the_loss_raises_it_in_the_block(mine, raw):
    with pytest.raises(LeaseLost, match="extended"):
        async with mine.lock("a") as lease:
            raw.flushall()
            await lease.extend(10)
            pytest.fail("there was nothing to extend")
    assert clean()


async def test_a_loss_found_while_the_block_is_being_left_is_raised(mine, raw):
    with pytest.raises(LeaseLost, match="released"):
        async with mine.lock("a"):
            raw.flushall()
    assert clean()


# --- whose exception wins


async def test_the_blocks_own_exception_wins(mine, take):
    with pytest.raises(KeyError):
        async with mine.lock("a") as lease:
            taking = soon(take())
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            assert lease.lost
            raise KeyError
    await taking
    assert clean()
    with pytest.raises(ZeroDivisionError):
        async with mine.lock("a"):
            taking = soon(take())
            try:
                await forever()
            finally:
                1 / 0  # noqa: B018 -- it raises
    await taking
    assert clean()


async def test_a_block_that_returns_during_its_cancellation_raises_the_loss(mine, take):
    async def work():
        async with mine.lock("a"):
            try:
                await forever()
            except asyncio.CancelledError:
                return "done"

    task = soon(work())
    await eventually_async(context_of(mine).leases.all)
    await take()
    with pytest.raises(LeaseLost):
        await task


async def test_a_cancellation_from_outside_at_the_same_time_wins(mine, take, raw):
    seen = []

    async def work():
        try:
            async with mine.lock("a") as lease:
                lease.add_lost_callback(asyncio.current_task().cancel)  # in the same turn as the block is struck
                await forever()
        except asyncio.CancelledError:
            seen.append(asyncio.current_task().cancelling())
            raise

    task = soon(work())
    await eventually_async(context_of(mine).leases.all)
    await take()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert seen == [1], "what the loss asked for was taken back, and nothing else"
    assert await settled_and_free(mine, raw)


async def test_a_cancellation_that_was_swallowed_before_the_block_is_not_mistaken_for_one_within(mine, take):
    async def work():
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        assert asyncio.current_task().cancelling() == 1
        with pytest.raises(LeaseLost):
            async with mine.lock("a"):
                taking = soon(take())
                await forever()
        await taking
        return asyncio.current_task().cancelling()

    task = soon(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 1


# --- with timeouts


async def test_a_timeout_around_the_block_that_does_not_strike(mine, take):
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(LONG), mine.lock("a"):
            taking = soon(take())
            await forever()
    await taking
    assert clean()


async def test_a_timeout_within_the_block_that_does_not_strike(mine, take):
    with pytest.raises(LeaseLost):
        async with mine.lock("a"), asyncio.timeout(LONG):
            taking = soon(take())
            await forever()
    await taking
    assert clean()


@pytest.mark.parametrize("way", ["around", "within"])
async def test_a_timeout_without_a_loss_is_a_timeout(mine, way, raw):
    with pytest.raises(TimeoutError) as caught:
        if way == "around":
            async with asyncio.timeout(0.02), mine.lock("a"):
                await forever()
        else:
            async with mine.lock("a"), asyncio.timeout(0.02):
                await forever()
    assert not isinstance(caught.value, LeaseLost)
    assert clean()
    assert await settled_and_free(mine, raw)


@pytest.mark.parametrize(("way", "expected"), [("around", TimeoutError), ("within", LeaseLost)])
@pytest.mark.parametrize("first", ["timeout", "loss"])
async def test_when_both_strike_at_once_the_outer_one_is_heard(mine, take, way, expected, first):
    async def strike(timeout):
        """In one turn of the loop, before the task learns of either."""
        loop = asyncio.get_running_loop()
        (holding,) = context_of(mine).leases.all()
        calls = [
            lambda: timeout.reschedule(loop.time()),
            lambda: loop.call_soon(context_of(mine).renewer.lose, holding, revoked("the test says so")),
        ]
        for call in calls if first == "timeout" else reversed(calls):
            call()

    with pytest.raises((LeaseLost, TimeoutError)) as caught:
        if way == "around":
            async with asyncio.timeout(LONG) as timeout, mine.lock("a"):
                striking = soon(strike(timeout))
                await forever()
        else:
            async with mine.lock("a"), asyncio.timeout(LONG) as timeout:
                striking = soon(strike(timeout))
                await forever()
    await striking
    assert isinstance(caught.value, expected)
    assert clean()


# --- with groups of tasks


async def test_a_group_within_the_block_is_ended_with_it(mine, take):
    async def child():
        try:
            await forever()
        finally:
            ended.append(asyncio.current_task())

    ended = []
    with pytest.raises(LeaseLost):
        async with mine.lock("a"):
            async with asyncio.TaskGroup() as group:
                children = [group.create_task(child()) for _ in range(3)]
                group.create_task(take())
    assert set(ended) == set(children)
    assert all(task.cancelled() for task in children)
    assert clean()


async def test_a_group_within_the_block_whose_body_waits_is_ended_with_it(mine, take):
    with pytest.raises(LeaseLost):
        async with mine.lock("a"):
            async with asyncio.TaskGroup() as group:
                child = group.create_task(forever())
                group.create_task(take())
                await forever()
    assert child.cancelled()
    assert clean()


async def test_a_child_that_fails_because_of_the_loss_is_what_comes_out(mine, take):
    async def child(lease):
        await lease.lost_event.wait()
        lease.check()

    with pytest.raises((ExceptionGroup, LeaseLost)) as caught:
        async with mine.lock("a") as lease:
            async with asyncio.TaskGroup() as group:
                group.create_task(child(lease))
                group.create_task(take())
    lost = caught.value if isinstance(caught.value, LeaseLost) else caught.value.exceptions[0]
    assert lost.reason == "deploy"


async def test_a_block_in_a_group_fails_the_group(mine, take, raw):
    async def work():
        async with mine.lock("a"):
            await forever()

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            sibling = group.create_task(forever())
            task = group.create_task(work())
            await eventually_async(context_of(mine).leases.all)
            group.create_task(take())
    assert [type(error) for error in caught.value.exceptions] == [LeaseLost]
    assert sibling.cancelled()
    assert task.cancelling() == 0
    assert await settled_and_free(mine, raw)


async def test_the_block_that_is_cancelled_is_that_of_the_task_that_entered_it(mine, raw):
    async def extend(lease):
        with pytest.raises(LeaseLost, match="extended"):
            await lease.extend(10)
        return "heard"

    with pytest.raises(LeaseLost, match="extended"):
        async with mine.lock("a") as lease:
            raw.flushall()
            child = soon(extend(lease))
            await forever()
    assert await child == "heard"
    assert child.cancelling() == 0
    assert clean()


# --- nested blocks


@pytest.mark.parametrize("lost", ["outer", "inner"])
async def test_two_nested_blocks(mine, take, raw, lost):
    left = []
    with pytest.raises(LeaseLost) as caught:
        async with mine.lock("outer"):
            try:
                async with mine.lock("inner"):
                    taking = soon(take(lost))
                    await forever()
            except LeaseLost as error:
                left.append(error.name)
                raise
    await taking
    assert (caught.value.name, left) == (lost, ["inner"] if lost == "inner" else [])
    assert clean()
    for name in ("outer", "inner"):
        assert await settled_and_free(mine, raw, name)


async def test_after_the_inner_block_was_lost_the_outer_one_goes_on(mine, take, raw):
    async with mine.lock("outer") as outer:
        with pytest.raises(LeaseLost, match="inner"):
            async with mine.lock("inner"):
                taking = soon(take("inner"))
                await forever()
        await taking
        assert clean()
        assert not outer.lost
        await outer.extend(40)
    assert await settled_and_free(mine, raw, "outer")


async def test_both_lost_at_once_is_the_loss_of_the_outer_one(mine, raw):
    with pytest.raises(LeaseLost, match="outer"):
        async with mine.lock("outer"), mine.lock("inner"):
            for holding in context_of(mine).leases.all():
                asyncio.get_running_loop().call_soon(
                    context_of(mine).renewer.lose, holding, revoked("the test says so")
                )
            await forever()
    assert clean()
    assert not any(context_of(mine).leases.all())


# --- stacks and generators


@pytest.mark.parametrize("way", ["enter_async_context", "push_async_exit"])
async def test_an_exit_stack_holds_leases(mine, take, raw, way):
    async with contextlib.AsyncExitStack() as stack:
        for name in "abc":
            if way == "enter_async_context":
                await stack.enter_async_context(mine.lock(name).acquire())
            else:
                stack.push_async_exit(await mine.lock(name).acquire())
            assert len(Engine(raw, name).holders()) == 1
    for name in "abc":
        assert await settled_and_free(mine, raw, name)


async def test_an_exit_stack_raises_a_loss(mine, take, raw):
    with pytest.raises(LeaseLost, match="'b'"):
        async with contextlib.AsyncExitStack() as stack:
            for name in "abc":
                await stack.enter_async_context(mine.lock(name))
            taking = soon(take("b"))
            await forever()
    await taking
    assert clean()
    for name in "abc":
        assert await settled_and_free(mine, raw, name)


async def test_a_lease_pushed_on_a_stack_is_not_struck_but_reported(mine, take):
    went_on = []
    with pytest.raises(LeaseLost):
        async with contextlib.AsyncExitStack() as stack:
            lease = await mine.lock("a").acquire()
            stack.push_async_exit(lease)
            await take()
            await eventually_async(lambda: lease.lost)
            went_on.append(True)
    assert went_on == [True], "a block that was never entered has nothing to be cancelled"
    assert clean()


async def generate(lock, ended):
    async with lock as lease:
        try:
            for number in range(1000):
                yield lease.fence + number
        finally:
            ended.append(lease)


async def test_a_block_in_an_asynchronous_generator(mine, raw):
    ended = []
    numbers = [number async for number in generate(mine.lock("a"), ended)]
    assert len(numbers) == 1000
    assert await settled_and_free(mine, raw)
    async with contextlib.aclosing(generate(mine.lock("a"), ended)) as generator:
        assert await anext(generator) > numbers[0]
        assert Engine(raw).holders() == [context_of(mine).leases.all()[0].token.decode()]
    assert len(ended) == 2
    assert Engine(raw).holders() == []
    assert not mine.lock("a")._blocks


async def test_an_asynchronous_generator_that_is_dropped_gives_its_lease_up(mine, raw):
    generator = generate(mine.lock("a"), [])
    await anext(generator)
    assert len(Engine(raw).holders()) == 1
    del generator
    await eventually_async(lambda: not Engine(raw).holders())


async def test_a_loss_while_the_consumer_of_a_generator_works(mine, take):
    with pytest.raises((LeaseLost, asyncio.CancelledError)):
        async with contextlib.aclosing(generate(mine.lock("a"), [])) as generator:
            async for _ in generator:
                await take()
                await forever()
    assert clean()


async def test_a_context_manager_made_of_a_generator(mine, take, raw):
    @contextlib.asynccontextmanager
    async def guarded():
        async with mine.lock("a") as lease:
            yield lease

    async with guarded() as lease:
        assert Engine(raw).holders() == [lease.token]
    assert await settled_and_free(mine, raw)
    with pytest.raises(LeaseLost):
        async with guarded():
            taking = soon(take())
            await forever()
    await taking
    assert clean()
    with pytest.raises(KeyError):
        async with guarded():
            raise KeyError
    assert await settled_and_free(mine, raw)
