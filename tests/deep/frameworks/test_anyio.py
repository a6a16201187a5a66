"""Programs of anyio: on asyncio they work, with its own kind of cancellation; on trio an error says why not."""

from __future__ import annotations

import pytest

from handfast import AsyncHandfast, LeaseLost
from tests._support.helpers import eventually

anyio = pytest.importorskip("anyio")


@pytest.fixture
def other(hf, raw):
    """A client of another process, as it were."""
    return hf


def run(server, function):
    async def main():
        async with AsyncHandfast(server.url) as client:
            await function(client)

    anyio.run(main)


def test_a_wait_that_is_cancelled_leaves_nothing_behind(server, other):
    async def waits(client):
        with anyio.move_on_after(0.1) as scope:
            await client.lock("a").acquire()
        assert scope.cancelled_caught
        await anyio.to_thread.run_sync(lambda: eventually(lambda: not other.lock("a").status().waiting))

    with other.lock("a"):
        run(server, waits)


def test_a_block_that_is_cancelled_releases_its_lease(server, other):
    async def holds(client):
        with anyio.move_on_after(0.1):
            async with client.lock("a", ttl=3600), client.semaphore("b", 2, ttl=3600):
                await anyio.sleep_forever()
        await anyio.to_thread.run_sync(lambda: eventually(lambda: not other.lock("a").locked()))
        assert not other.semaphore("b", 2).status().holding
        with pytest.RaisesGroup(ValueError):
            async with anyio.create_task_group() as group:
                group.start_soon(forever, client)
                await anyio.sleep(0.1)
                raise ValueError
        await anyio.to_thread.run_sync(lambda: eventually(lambda: not other.lock("c").locked()))

    async def forever(client):
        async with client.lock("c", ttl=3600):
            await anyio.sleep_forever()

    run(server, holds)


def test_a_lease_that_is_lost_ends_a_task_group_in_its_block(server, other):
    async def loses(client):
        async with client.lock("a"), anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            other.lock("a").force_release(reason="INC-1")

    with pytest.raises(LeaseLost, match="INC-1"):
        run(server, loses)


def test_tasks_of_a_group_exclude_each_other(server, other):
    inside = []

    async def enters(client):
        async with client.lock("a"):
            inside.append(1)
            await anyio.sleep(0.001)
            assert inside == [1]
            inside.pop()

    async def starts(client):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(enters, client)

    run(server, starts)
    assert other.lock("a").status().grants == 20


def test_on_trio_an_error_says_so(server, raw):
    pytest.importorskip("trio")

    async def main():
        await AsyncHandfast(server.url).lock("a").acquire()

    with pytest.raises(RuntimeError, match=r"needs a running event loop of asyncio, .* in trio"):
        anyio.run(main, backend="trio")
