"""A client that ends gives up what it holds, if it is asked to: when it is closed, and when its process exits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast, Handfast, LeaseLost
from handfast.testing import FaultProxy, script
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.helpers import forever

pytestmark = pytest.mark.usefixtures("raw")


def held(raw):
    return [name for name in "abcde" if Engine(raw, name).holders()]


# --- close


async def test_a_client_that_is_closed_may_release_what_it_holds(api, server, raw, there, caplog):
    client = api.client(server.url)
    leases = [await client.lock(name).acquire() for name in "abc"]
    leases.append(await client.lock("d", renew=False).acquire())
    waiter = asyncio.create_task(_acquire(there.lock("a")))
    await until_queued(there.lock("a"))
    await client.close(release=True)
    await (await asyncio.wait_for(waiter, 10)).release()
    assert held(raw) == []
    for lease in leases:
        assert lease.lost
        with pytest.raises(LeaseLost, match="its client was closed, which released it"):
            lease.check()
        assert await lease.release() is False
    assert not caplog.records


async def _acquire(lock):
    return await lock.acquire(timeout=20)


@pytest.mark.parametrize("how", ["close", "release=False", "with"])
async def test_a_client_that_is_closed_releases_nothing_unasked(api, server, raw, how):
    client = api.client(server.url)
    lease = await client.lock("a").acquire()
    if how == "with":
        await client.__aenter__()
        await client.__aexit__(None, None, None)
    else:
        await client.close(**({"release": False} if how == "release=False" else {}))
    assert held(raw) == ["a"]
    assert not lease.lost


@pytest.mark.parametrize("how", ["close", "release=False", "with"])
async def test_a_client_that_releases_at_exit_does_so_when_it_is_closed_unless_told_otherwise(api, server, raw, how):
    client = api.client(server.url, release_at_exit=True)
    lease = await client.lock("a").acquire()
    if how == "with":
        await client.__aenter__()
        await client.__aexit__(None, None, None)
    else:
        await client.close(**({"release": False} if how == "release=False" else {}))
    assert held(raw) == (["a"] if how == "release=False" else [])
    assert lease.lost is (how != "release=False")


def test_a_block_of_another_thread_learns_that_its_client_was_closed(server, raw):
    client, inside, go = Handfast(server.url), threading.Event(), threading.Event()
    lost = threading.Event()

    def work():
        with client.lock("a") as lease:
            lease.add_lost_callback(lost.set)
            inside.set()
            assert go.wait(10)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        assert inside.wait(10)
        client.close(release=True)
        assert lost.wait(10)
        assert held(raw) == []
        go.set()
        with pytest.raises(LeaseLost, match="its client was closed"):
            working.result(10)


async def test_a_block_of_another_task_ends_when_its_client_is_closed(server, raw):
    client, inside = AsyncHandfast(server.url), asyncio.Event()

    async def work():
        async with client.lock("a"):
            inside.set()
            await forever()

    working = asyncio.create_task(work())
    await inside.wait()
    await client.close(release=True)
    assert held(raw) == []
    with pytest.raises(LeaseLost, match="its client was closed"):
        await asyncio.wait_for(working, 10)


async def test_a_block_that_closes_its_own_client_learns_it_at_its_end(api, server, raw, caplog):
    client = api.client(server.url)
    with pytest.raises(LeaseLost, match="its client was closed"):
        async with client.lock("a"):
            await client.close(release=True)
    assert held(raw) == []
    assert not caplog.records


async def test_a_reentrant_lock_is_released_with_its_client(api, server, raw):
    client = api.client(server.url)
    first, second = await client.rlock("a").acquire(), await client.rlock("a").acquire()
    await client.close(release=True)
    assert held(raw) == []
    assert first.lost
    assert second.lost
    assert [await second.release(), await first.release()] == [False, False]


async def test_a_release_whose_reply_is_lost_at_the_close_is_sent_again(api, server, raw, caplog):
    with FaultProxy(server.url) as proxy:
        client = api.client(proxy.url)
        lease = await client.lock("a").acquire()
        fault = proxy.lose_reply(script("permit_release"))
        await client.close(release=True)
        assert fault.happened
        assert lease.lost
    assert held(raw) == []
    assert not caplog.records
