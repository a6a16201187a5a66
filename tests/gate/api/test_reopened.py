"""A client that was closed and is entered again, in both APIs: as an application that starts twice in one process."""

from __future__ import annotations

import asyncio

import pytest

from handfast import ClientClosed, LeaseLost
from handfast.testing import deactivate
from tests._support.apis import ASYNCIO, use
from tests._support.helpers import eventually_async, settled


async def test_a_closed_client_is_of_use_again_once_it_is_entered(api, server, raw):
    client = api.client(server.url)
    for _ in range(3):
        async with client:
            await use(client)
        with pytest.raises(ClientClosed):
            await client.lock("a").acquire()


async def test_a_client_of_redis_py_is_enough(api, server, raw):
    async with api.users_client(unix_socket_path=server.url.removeprefix("unix://").partition("?")[0]) as users:
        client = api.client(users)
        for _ in range(2):
            async with client:
                await use(client)


async def test_leases_of_before_stay_lost(api, server, raw):
    client = api.client(server.url, release_at_exit=True)
    lock = client.lock("a")
    async with client:
        lease = await lock.acquire()
    async with client:
        assert lease.lost
        with pytest.raises(LeaseLost, match="closed"):
            lease.check()
        assert await lease.release() is False
        async with lock.acquire(timeout=0) as later:
            assert later.fence > lease.fence
            assert lease.lost


async def test_what_waited_before_has_ended(api, server, raw, there):
    client = api.client(server.url)
    async with there.lock("a"), client:
        waiting = asyncio.create_task(settled(client.lock("a").acquire()))
        await eventually_async(lambda: _waits(there))
        await client.close()
        async with client:
            with pytest.raises(ClientClosed):
                await waiting
            assert not (await there.lock("a").status()).waiting
            assert await client.lock("a").try_acquire() is None


async def _waits(there):
    return (await there.lock("a").status()).waiting


async def test_a_loop_of_before_has_ended(api, server, raw):
    """Also where the client is open again before the loop has noticed."""
    client, led = api.client(server.url), []

    def lead(term):
        led.append(term.fence)
        term.lost_event.wait()

    async def lead_async(term):
        led.append(term.fence)
        await asyncio.Event().wait()

    async with client:
        campaign = asyncio.create_task(settled(client.election("a").run(lead_async if api is ASYNCIO else lead)))
        await eventually_async(lambda: led)
        await client.close(release=True)
        async with client:
            with pytest.raises(ClientClosed):
                await campaign
    assert len(led) == 1


async def test_without_a_server_it_is_the_same(api, server):
    client = api.client("null:")
    for _ in range(2):
        async with client, client.lock("a"):
            pass
        with pytest.raises(ClientClosed):
            await client.lock("a").acquire()
    client = api.client(server.url)
    with deactivate():
        for _ in range(2):
            async with client, client.lock("a"):
                pass
            with pytest.raises(ClientClosed):
                await client.lock("a").acquire()
