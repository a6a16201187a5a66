"""Replies lost, requests lost, connections cut: in both APIs each call happens once, and nothing is left behind.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from handfast.embedded import PrivateServer, find_binary, supervisor
from handfast.testing import containing
from tests._support.apis import ASYNCIO
from tests._support.engine import Engine
from tests._support.helpers import eventually_async
from tests.gate.faults import test_lost_calls as gate
from tests.gate.faults.test_lost_calls import CALLS, ROUNDS

proxy = gate.proxy
far = gate.far


async def test_a_lost_extension_does_not_add_up(far, proxy, raw):
    lease = await far.lock("a", ttl=1.0).acquire()
    for _ in range(ROUNDS):
        fault = proxy.lose_reply(CALLS["renew"])
        await lease.extend(10)
        assert fault.spent
        (holder,) = (await far.lock("a").status()).holders
        assert lease.remaining() <= holder.remaining <= 10
    assert await lease.release() is True


async def test_a_lost_renewal_is_made_up_for(far, proxy, raw):
    async with far.lock("a", ttl=1.0) as lease:
        for _ in range(3):  # the third is due when the first ttl is over
            fault = proxy.lose_reply(CALLS["renew"])
            await eventually_async(lambda fault=fault: fault.spent)
        await eventually_async(lambda: lease.remaining() > 0.8)
        assert not lease.lost
        assert Engine(raw).holders() == [lease.token]


async def test_nothing_is_sent_for_a_token_after_its_release_returned(far, proxy, raw):
    for _ in range(60):
        lease = await far.lock("a", ttl=0.012).acquire()
        await asyncio.sleep(0.004)
        await lease.release()
        await asyncio.sleep(0.005)  # what was sent before the release returned may take its time through the proxy
        seen = len(proxy.commands)
        await asyncio.sleep(0.008)
        assert not any(map(containing(lease.token.encode()), proxy.commands[seen:]))


async def test_a_server_that_comes_back_is_waited_for(api):
    with PrivateServer() as server:
        path = server.socket
        hf = api.client(server.url)
        lease = await hf.lock("a").acquire()
    folder = Path(path).parent
    folder.mkdir(0o700)
    waiters = [asyncio.ensure_future(hf.lock("b").acquire(timeout=20)) for _ in range(3)]
    await asyncio.sleep(0.01)
    again = supervisor.SupervisedServer(find_binary(), str(folder), remove_dir=True)
    try:
        for _ in range(3):
            done, _ = await asyncio.wait(waiters, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            (first,) = done
            waiters.remove(first)
            assert await first.result().release() is True
        assert await lease.release() is False, "a server that forgot everything has no lease to give up"
        assert lease.lost
    finally:
        await hf.close()
        again.end()


async def test_the_blocks_own_exception_wins_over_a_server_that_is_gone(api, caplog):
    with PrivateServer() as server:
        hf = api.client(server.url)
        with pytest.raises(KeyError):
            async with hf.lock("a", ttl=1):
                server.close()
                raise KeyError
    assert api is ASYNCIO or "the cleanup of 'a' goes on in the background" in caplog.text
    await hf.close()
