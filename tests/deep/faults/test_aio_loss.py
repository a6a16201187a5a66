"""Losing a lease within its block: the block is cancelled, and what comes out of it is LeaseLost and nothing else.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from handfast import AsyncHandfast, LeaseLost
from handfast.embedded import PrivateServer
from tests._support.cancelling import session_of
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, forever
from tests.gate.faults import test_aio_loss as gate
from tests.gate.faults.test_aio_loss import clean, generate, settled_and_free, soon

mine = gate.mine
operator = gate.operator
take = gate.take


# --- what ends a lease, and what comes out of its block


async def test_a_lease_that_the_server_forgot_ends_its_block_at_the_next_renewal(mine, raw):
    with pytest.raises(LeaseLost, match="renewed"):
        async with mine.lock("a", ttl=0.3).acquire():
            raw.flushall()
            await forever()
    assert clean()


async def test_a_server_that_is_gone_for_longer_than_the_ttl_ends_the_block():
    with PrivateServer() as server:
        hf = AsyncHandfast(server.url)
        lock = hf.lock("a", ttl=0.3)
        entered = await lock.__aenter__()
    with pytest.raises(LeaseLost, match="its ttl ended"):
        try:
            await forever()
        except asyncio.CancelledError as error:
            assert entered.lost
            await lock.__aexit__(type(error), error, error.__traceback__)
    assert clean()
    await hf.close()


async def test_a_loop_that_was_blocked_for_longer_than_the_ttl_ends_the_block_at_its_next_await(mine):
    went_on = []
    with pytest.raises(LeaseLost, match="its ttl ended"):
        async with mine.lock("a", ttl=0.05):
            time.sleep(0.1)  # noqa: ASYNC251 -- a loop that is blocked is just what is tested
            await forever()
            went_on.append(True)
    assert went_on == []
    assert clean()


async def test_a_loop_that_was_blocked_and_a_block_without_an_await(mine):
    with pytest.raises(LeaseLost, match="its ttl ended"):
        async with mine.lock("a", ttl=0.05):
            time.sleep(0.1)  # noqa: ASYNC251 -- a loop that is blocked is just what is tested
    assert clean()
    await asyncio.sleep(0.02)
    assert clean()


async def test_a_lease_that_was_lost_before_its_block_ends_it_at_once(mine):
    lease = await mine.lock("a", ttl=0.05, renew=False).acquire()
    await eventually_async(lambda: lease.lost)
    with pytest.raises(LeaseLost):
        async with lease:
            await forever()
    assert clean()


@pytest.mark.parametrize("look", [lambda lease: lease.lost_event, lambda lease: lease.add_lost_callback(lambda: None)])
async def test_a_task_that_finds_the_loss_itself_is_cancelled_at_its_next_await(mine, look):
    with pytest.raises(LeaseLost):
        async with mine.lock("a", ttl=0.05) as lease:
            time.sleep(0.1)  # noqa: ASYNC251 -- a loop that is blocked is just what is tested
            assert lease.lost
            look(lease)
            await forever()
    assert clean()


async def test_a_loss_that_strikes_while_the_block_is_being_left_cancels_nothing(mine, take, raw):
    with pytest.raises(LeaseLost):
        async with mine.lock("a"):
            session_of(mine)._connection.transport.pause_writing()  # the release cannot leave before the lease is taken
            taking = soon(take())
            taking.add_done_callback(lambda _: session_of(mine)._connection.transport.resume_writing())
    await taking
    assert clean()
    await asyncio.sleep(0.01)
    assert await settled_and_free(mine, raw)


# --- whose exception wins


async def test_a_block_that_swallows_its_cancellation_raises_the_loss_at_its_end(mine, take):
    went_on = []
    with pytest.raises(LeaseLost, match="deploy"):
        async with mine.lock("a"):
            taking = soon(take())
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            await asyncio.sleep(0.001)
            went_on.append(True)
    await taking
    assert went_on == [True]
    assert clean()


async def test_a_loss_with_a_warning_neither_cancels_nor_raises(mine, take):
    went_on = []
    with pytest.warns(RuntimeWarning, match="deploy"):
        async with mine.lock("a", on_lost="warn").acquire() as lease:
            await take()
            await eventually_async(lambda: lease.lost)
            await asyncio.sleep(0.01)
            went_on.append(True)
    assert went_on == [True]
    assert clean()


async def test_a_cancellation_from_outside_while_the_block_is_being_left_wins(mine, raw):
    async def work():
        async with mine.lock("a"):
            raw.flushall()
            session_of(mine)._connection.transport._transport.pause_reading()

    task = soon(work())
    await eventually_async(lambda: not session_of(mine)._connection.transport._transport.is_reading())
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done(), "the release is not answered yet"
    session_of(mine)._connection.transport._transport.resume_reading()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert await settled_and_free(mine, raw)


# --- nested blocks


async def test_one_lease_guards_two_blocks_of_two_tasks(mine, take):
    lease = await mine.lock("a").acquire()

    async def work():
        async with lease:
            await forever()

    tasks = [soon(work()) for _ in range(2)]
    await asyncio.sleep(0.01)
    await take()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, LeaseLost | asyncio.CancelledError) for outcome in outcomes)
    assert any(isinstance(outcome, LeaseLost) for outcome in outcomes)


async def test_a_block_after_a_block_that_was_lost_is_not_struck(mine, take):
    lock = mine.lock("a")
    for _ in range(3):
        with pytest.raises(LeaseLost):
            async with lock:
                taking = soon(take())
                await forever()
        await taking
        async with lock as lease:
            await asyncio.sleep(0.005)
            assert not lease.lost
    assert clean()


# --- stacks and generators


async def test_an_asynchronous_generator_that_is_closed_has_given_its_lease_up_by_then(mine, raw):
    generator = generate(mine.lock("a"), [])
    await anext(generator)
    session_of(mine)._connection.transport.pause_writing()
    closing = soon(generator.aclose())
    await asyncio.sleep(0.02)
    assert not closing.done()
    session_of(mine)._connection.transport.resume_writing()
    await closing
    assert Engine(raw).holders() == []
