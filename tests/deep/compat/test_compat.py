"""The drop-in locks: their results equal those of redis-py's locks on the same key, except for documented improvements.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio

import pytest

from tests._support.cluster import Cluster
from tests._support.helpers import settled
from tests.gate.compat import test_compat as gate
from tests.gate.compat.test_compat import World

raw = gate.raw
world = gate.world


# --- old and new code exclude each other


async def test_many_waiters_of_old_and_new_code_never_overlap(server, api, raw):
    inside = []

    async def work(make):
        lock = await make(sleep=0.002, timeout=50)
        for _ in range(15):
            async with lock:
                inside.append(lock)
                await asyncio.sleep(0.0005)
                assert inside == [lock]
                inside.remove(lock)

    async with api.users_client(unix_socket_path=server.socket) as client:
        world = World(api, client, raw, apart=True)
        await asyncio.gather(*(work(make) for make in (world.lock, world.theirs) * 3))


# --- waiting


async def test_old_code_notices_a_release_by_new_code(world):
    lock = await world.lock()
    assert await lock.acquire()

    async def waits():
        old = await world.apart().theirs(sleep=0.02)
        assert await old.acquire()
        await old.release()

    waiter = asyncio.create_task(waits())
    await asyncio.sleep(0.05)
    await lock.release()
    await waiter


# --- names


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("name", ["a", "b", "c", "{tag}a", "a{", "{}a", ""])
async def test_the_lock_works_on_a_cluster(running, api, name):
    running.flush()
    client = api.library.RedisCluster(**running.address)
    try:
        world = World(api, client, running.node_of(name or "a"))
        lock = await world.lock(name, timeout=1000)
        old = await world.theirs(name, timeout=1000)
        assert await lock.acquire()
        assert not await old.acquire(blocking=False)
        assert await lock.extend(1000) is await lock.reacquire() is await lock.owned() is True
        waiter = asyncio.create_task(world.waits(name=name, sleep=0.01))
        await asyncio.sleep(0.05)
        await lock.release()
        assert await waiter is True
        assert await old.acquire(blocking=False)
        await old.release()
        assert all(node.pttl(key) > 0 for node in running.nodes for key in node.scan_iter())
    finally:
        await settled(client.aclose() if hasattr(client, "aclose") else client.close())
