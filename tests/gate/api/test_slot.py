"""Numbers of their own for the holders of a semaphore, in both APIs."""

from __future__ import annotations

import asyncio

import pytest

from handfast import LeaseLost, NotHeld
from handfast._api.sync import semaphore as sync_semaphore
from handfast._drivers.sync import driver, performing
from handfast.testing import FaultProxy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO
from tests._support.family import until_listening
from tests._support.helpers import eventually_async, settled

WHERE = [sync_semaphore, driver, performing]
"""Modules in which a call is interrupted at every point."""

SOON_S = 0.3
"""A ttl in seconds that is to end."""


async def test_each_holder_has_a_number_and_keeps_it(here, there):
    leases = [await client.semaphore("a", 4).acquire() for client in (here, there) * 2]
    assert [await one.slot() for one in reversed(leases)] == [0, 1, 2, 3]
    assert [await one.slot() for one in leases] == [3, 2, 1, 0]
    holders = (await there.semaphore("a", 4).status()).holders
    assert {one.fence: one.slot for one in holders} == {one.fence: 3 - place for place, one in enumerate(leases)}
    assert await leases[2].release()
    async with there.semaphore("a", 4) as next_one:
        assert await next_one.slot(prefer=3) == 1
        assert await next_one.slot(prefer=0) == 1
    for one in leases:
        await one.release()


async def test_a_number_that_is_preferred_is_given_if_it_is_free(here, there):
    async with here.semaphore("a", 4) as one, there.semaphore("a", 4) as other:
        assert await one.slot(prefer=2) == 2
        assert await other.slot(prefer=2) == 0


async def test_a_second_call_takes_no_io(api, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far, far.semaphore("a", 2) as lease:
            assert await lease.slot() == 0
            hold = proxy.lose_reply(script("permit_slot"))
            assert await lease.slot() == 0
            assert hold.happened == 0


async def test_the_number_of_a_dead_holder_is_free_when_its_lease_ends(api, server, here):
    async with api.client(server.url, release_at_exit=False) as mortal:
        lease = await mortal.semaphore("a", 2, ttl=SOON_S).acquire()
        assert await lease.slot() == 0
    async with here.semaphore("a", 2) as other:
        assert await other.slot() == 1
    await eventually_async(lambda: lease.lost)

    async def is_free():
        async with here.semaphore("a", 2) as other:
            return await other.slot() == 0

    await eventually_async(is_free)


async def test_the_number_goes_with_a_lease_that_is_adopted(here, there):
    lease = await here.semaphore("a", 3).acquire()
    assert await lease.slot(prefer=1) == 1
    async with there.semaphore("a", 3).adopt(await lease.detach()) as adopted:
        assert await adopted.slot() == 1
        with pytest.raises(NotHeld):
            await lease.slot()


async def test_after_the_end_of_a_lease_there_is_no_number(here, there, raw):
    lease = await here.semaphore("a", 3).acquire()
    await lease.release()
    with pytest.raises(NotHeld):
        await lease.slot()
    lost = await here.semaphore("a", 3).acquire()
    assert await lost.slot() == 0
    await until_listening(raw)
    await there.semaphore("a", 3).force_release(reason="maintenance")
    await eventually_async(lambda: lost.lost)
    with pytest.raises(LeaseLost, match="maintenance"):
        await lost.slot()


async def test_a_loss_that_the_server_reports_ends_the_lease(here, raw):
    lease = await here.semaphore("a", 3).acquire()
    raw.flushall()
    with pytest.raises(LeaseLost, match="no longer had it when it was to be numbered"):
        await lease.slot()
    assert lease.lost


async def test_what_can_have_no_number_is_refused(here):
    async with here.semaphore("a", 3).acquire(permits=2) as several:
        with pytest.raises(TypeError, match="has 2 permits"):
            await several.slot()
    async with here.semaphore("b", 1025) as wide:
        with pytest.raises(ValueError, match=r"limit of 1025, and only up to 1,024"):
            await wide.slot()
    async with here.semaphore("c", 1024) as lease:
        assert await lease.slot(prefer=1023) == 1023
        for prefer in (-1, 1024, "1", True, 1.0):
            with pytest.raises((TypeError, ValueError), match="prefer must"):
                await lease.slot(prefer=prefer)


async def test_more_holders_than_numbers_get_an_error(server):
    async with ASYNCIO.client(server.url) as client:
        await client.semaphore("a", 1024).resize(1030)
        leases = await asyncio.gather(*(client.semaphore("a", 1024).acquire() for _ in range(1027)))
        with pytest.raises(ValueError, match="more than 1,024 holders"):
            await leases[-1].slot()
        await asyncio.gather(*(one.release() for one in leases))


async def test_without_a_server_the_number_is_0(api):
    async with api.client("null:") as client:
        async with client.semaphore("a", 3) as lease:
            assert await settled(lease.slot(prefer=2)) == 0


@pytest.mark.parametrize("at", ["reply", "call"])
async def test_a_call_or_reply_that_is_lost_changes_nothing(api, server, here, at):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far, far.semaphore("a", 3) as lease, here.semaphore("a", 3) as other:
            fault = (
                proxy.lose_reply(script("permit_slot")) if at == "reply" else proxy.lose_request(script("permit_slot"))
            )
            assert await lease.slot() == 0
            assert fault.happened == 1
            assert await other.slot() == 1


async def test_a_cancellation_at_any_await_leaves_a_lease_that_can_ask_again(server):
    cancelled = 0
    async with ASYNCIO.client(server.url) as client:
        async with client.semaphore("a", 3) as first, client.semaphore("a", 3) as second:
            assert await first.slot() == 0
            async for outcome in cancel_everywhere(second.slot):
                assert outcome.how != "failed", outcome
                cancelled += outcome.how == "stopped"
                assert await second.slot() == 1, outcome
                second._slot = None
    assert cancelled >= 1


def test_an_interrupt_at_any_point_leaves_a_lease_that_can_ask_again(hf):
    struck = 0
    with hf.semaphore("a", 3) as first, hf.semaphore("a", 3) as second:
        assert first.slot() == 0
        for outcome in interrupt_everywhere(second.slot, within=WHERE):
            assert outcome.how != "failed", outcome
            struck += outcome.how == "stopped"
            assert second.slot() == 1, outcome
            second._slot = None
    assert struck > 5
