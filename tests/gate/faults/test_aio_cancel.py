"""Cancellation: wherever it strikes, nothing is left behind; and it feels as it does with `asyncio.Lock`."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AcquireTimeout, AsyncHandfast
from handfast._drivers.aio.connection import Connection
from handfast.testing import Stepper
from tests._support.cancelling import (
    OPERATIONS,
    Scene,
    connections_since,
    newest,
    try_every_point,
)
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, forever


@pytest.fixture
async def scene(server, raw):
    async with Scene(server.url, raw) as scene:
        yield scene


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_a_cancellation_at_any_suspension_leaves_nothing_behind(scene, operation):
    tally = await try_every_point(scene, operation)
    assert tally.orphans == []
    assert tally.suspensions >= operation.suspensions
    assert tally.points >= 3 * tally.suspensions, "the states of the world were not reached"


async def test_the_harness_reaches_the_server_before_it_cancels(scene):
    (acquire,) = (operation for operation in OPERATIONS if operation.name == "acquire, held")
    tally = await try_every_point(scene, acquire)
    assert tally.executed > tally.points / 2
    assert tally.again > 0


async def test_a_connecting_task_that_is_cancelled_is_followed_by_another(server, raw, monkeypatch):
    connect, struck, seen = Connection._open, [], []

    async def stepped(self):
        def strike(number, _):
            seen.append(number)
            if not struck and number == at:
                struck.append(number)
                asyncio.current_task().cancel()

        await Stepper(connect(self), at=strike)

    monkeypatch.setattr(Connection, "_open", stepped)
    at, tried = 1, 0
    while at == 1 or struck:
        struck.clear()
        seen.clear()
        known = newest(raw)
        async with AsyncHandfast(f"{server.url}?socket_timeout=1") as hf:  # waited for where a reply was lost
            lease = await hf.lock("a").acquire(timeout=20)
            assert await lease.release() is True
            await eventually_async(lambda known=known: len(connections_since(known, raw)) == 1)
        tried += len(struck)
        at += 1
    assert tried >= 3, "connecting has more suspensions than that"


async def test_a_waiter_may_go_on_after_a_cancellation_that_it_swallowed(scene):
    async def stubborn():
        try:
            await scene.lock.acquire()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
        async with scene.lock.acquire(timeout=10) as lease:
            return lease.fence

    held = await scene.other.lock("a").acquire()
    task = asyncio.create_task(stubborn())
    await eventually_async(scene.engine.queue)
    (first,) = scene.engine.queue()
    task.cancel()
    await eventually_async(lambda: scene.engine.queue() not in ([], [first]))
    await held.release()
    assert await task > held.fence
    assert await scene.complaints() == []


# --- timeouts that race with success


async def test_a_timeout_around_a_block_leaves_no_cancellation_behind(scene):
    held = await scene.other.lock("a").acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            async with scene.lock:
                pytest.fail("others hold it")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02), scene.mine.lock("b"):
            await forever()
    with pytest.raises(AcquireTimeout):
        async with asyncio.timeout(20), scene.lock.acquire(timeout=0.01):
            pytest.fail("others hold it")
    assert asyncio.current_task().cancelling() == 0
    await held.release()
    assert await scene.complaints() == []
    assert Engine(scene.raw, "b").holders() == []


# --- as with asyncio.Lock


@pytest.fixture(params=["asyncio", "handfast"])
async def lock(request, scene):
    """A lock of the standard library, and one of ours."""
    return scene.lock if request.param == "handfast" else asyncio.Lock()


async def is_free(lock):
    async with asyncio.timeout(10):
        async with lock:
            return True


async def test_wait_for_gives_up_with_a_timeout(lock, scene):
    held, over = asyncio.Event(), asyncio.Event()

    async def hold():
        async with lock:
            held.set()
            await over.wait()

    holder = asyncio.create_task(hold())
    await held.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lock.acquire(), 0.02)
    over.set()
    await holder
    assert await is_free(lock)


async def test_a_lease_may_come_out_of_a_group(scene):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scene.lock.acquire())
    lease = task.result()
    assert scene.engine.holders() == [lease.token]
    assert await lease.release() is True
