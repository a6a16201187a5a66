"""Locks that stay taken for a while since their grant, through both APIs.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests.gate.api.test_at_least import LONG


async def test_waiters_get_in_when_the_time_is_over(here, there, raw):
    lease = await here.lock("a", at_least=timedelta(seconds=1)).acquire()

    async def wait():
        async with there.lock("a") as second:
            return second.fence

    waiter = asyncio.create_task(wait())
    await until_queued(here.lock("a"))
    assert await lease.release() is True
    assert await waiter - lease.fence >= 1_000_000, "fences are times of the server's clock, in microseconds"


async def test_a_lease_lasts_at_least_as_long_without_a_renewal(here, there, raw):
    async with here.lock("a", ttl=0.5, at_least=LONG, renew=False) as lease:
        assert LONG - 60 < lease.remaining() <= LONG
        (end,) = Engine(raw).stored().holders.values()
        assert end - lease.fence == LONG * 1_000_000


async def test_a_lease_that_is_handed_over_lasts_as_long(here, there, raw):
    held = await here.lock("a").acquire()

    async def wait():
        lease = await there.lock("a", ttl=0.5, at_least=LONG).acquire()
        remaining = lease.remaining()
        await lease.release()
        return remaining

    waiter = asyncio.create_task(wait())
    await until_queued(here.lock("a"))
    await held.release()
    await waiter
    (holder,) = (await here.lock("a").status()).holders
    assert holder.released
    assert LONG - 60 < holder.remaining + holder.held_for <= LONG
