"""An announcement ends however many watch, and an operator reaches each of 10,000 holders."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from handfast import AsyncHandfast
from handfast.testing import FaultProxy, script
from tests._support.helpers import eventually_async

WATCHERS = 300
AWAY_S = 0.05
"""How far the one that announces is from the server, in seconds."""

HOLDERS = 10_000

AT_ONCE = 100
"""Messages of one call of a script that announces."""


async def seen(iterator, seen, place):
    async with contextlib.aclosing(iterator):
        async for _ in iterator:
            seen[place] += 1


WATCHES = {
    "election": (
        lambda client: client.election("a").observe(),
        lambda client: client.election("a"),
        "election_announce",
    ),
    "group": (lambda client: client.group("a").watch(), lambda client: client.group("a").join(), "group_ring"),
}
"""By kind: what watches, a block whose beginning is announced, and the script that does it."""


@pytest.mark.parametrize("kind", WATCHES)
async def test_an_announcement_to_many_watchers_ends(server, raw, kind):
    watch, block, announce = WATCHES[kind]
    counts = [0] * WATCHERS
    async with contextlib.AsyncExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(server.url))
        clients = [await stack.enter_async_context(AsyncHandfast(server.url)) for _ in counts]
        leader = await stack.enter_async_context(AsyncHandfast(proxy.url))
        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(seen(watch(client), counts, place)) for place, client in enumerate(clients)]
            await eventually_async(lambda: min(counts) >= 1)
            announcing = proxy.delay(script(announce), seconds=AWAY_S, times=None)
            async with block(leader):
                await eventually_async(lambda: min(counts) >= 2)
                while True:
                    assert announcing.happened
                    before = announcing.happened
                    await asyncio.sleep(20 * AWAY_S)
                    if announcing.happened == before:
                        break
                    assert before <= 4 * WATCHERS / AT_ONCE, "it does not end"
                for one in watching:
                    one.cancel()


async def test_a_latch_with_many_who_wait_opens_at_once(server, raw):
    async with contextlib.AsyncExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(server.url))
        clients = [await stack.enter_async_context(AsyncHandfast(server.url)) for _ in range(WATCHERS)]
        last = await stack.enter_async_context(AsyncHandfast(proxy.url))
        opening = proxy.delay(script("latch_done"), seconds=AWAY_S, times=None)
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(client.latch("a", 1).wait()) for client in clients]
            await eventually_async(lambda: raw.zcard("{hf:latch:a}:watchers") >= WATCHERS)
            await last.latch("a", 1).done("x")
        assert all(one.done() for one in waiting)
        assert opening.happened <= 2 * WATCHERS / AT_ONCE


async def test_an_operator_reaches_each_of_many_holders(server, raw):
    async with AsyncHandfast(server.url) as client, AsyncHandfast(server.url) as operator:
        semaphore, lost = client.semaphore("a", HOLDERS), []
        leases = await asyncio.gather(*(semaphore.acquire() for _ in range(HOLDERS)))
        assert (await operator.semaphore("a", HOLDERS).status()).held == HOLDERS
        for lease in leases:
            lease.add_lost_callback(lambda fence=lease.fence: lost.append(fence))
        await operator.hold("a", 600, kind="semaphore", reason="a migration", now=True, grace=0)
        await eventually_async(lambda: len(lost) == HOLDERS)
        assert sorted(lost) == sorted(lease.fence for lease in leases)
        assert (await semaphore.status()).held == 0
        assert await operator.unhold("a", kind="semaphore")
        async with semaphore:
            pass
