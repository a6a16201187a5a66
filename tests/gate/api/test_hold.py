"""An operator's hold on a name: holders go on, no one else gets in, and it ends by itself. In both APIs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from handfast import AcquireTimeout, LeaseLost, Preempted
from handfast.testing import FaultProxy, script
from tests._support.apis import take, until_queued
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async, settled
from tests._support.kinds import ROWS

SOON_S = 0.3
"""A hold in seconds that is to end."""

rows = pytest.mark.parametrize(
    "row", [ROWS[name] for name in ("lock", "semaphore", "read", "election")], ids=lambda row: row.of
)


async def test_an_error_and_a_status_show_the_hold(here, there):
    async with asyncio.TaskGroup() as tasks:
        async with here.lock("a") as lease:
            hold = await there.hold("a", 60, reason="DB migration")
            assert 0 < hold.remaining <= 60
            assert abs((hold.until - datetime.now(UTC)).total_seconds() - 60) < 30
            await lease.extend(90)
            assert await there.lock("a").try_acquire() is None
            assert await there.unhold("other") is False
            with pytest.raises(AcquireTimeout, match=r"is on hold until .* UTC by .*: DB migration") as caught:
                await there.lock("a").acquire(timeout=0)
            assert caught.value.status.hold.reason == "DB migration"
            waiter = tasks.create_task(take(there.lock("a")))
            await until_queued(there.lock("a"))
        status = await here.lock("a").status()
        assert (status.holding, status.holders, status.waiting) == (0, (), 1)
        assert status.hold.by == there._driver.label
        assert str(status).endswith("UTC by " + there._driver.label + ": DB migration")
        assert await here.unhold("a")
        assert await waiter > lease.fence
    assert not await here.unhold("a")
    last = (await here.lock("a").status()).last
    assert (last.what, last.by, last.why) == ("unhold", here._driver.label, "released")


@rows
async def test_it_ends_by_itself_and_the_first_that_waits_is_served(here, there, row):
    await there.hold("a", SOON_S, kind=row.of, reason="short")
    async with row.make(here).acquire(timeout=20) as lease:
        assert lease.waited > SOON_S / 2
    assert (await row.make(here).status()).hold is None


async def test_a_key_of_once_is_not_run_meanwhile_and_an_old_result_counts(api, here, there):
    key = here.once("job", refresh=SOON_S / 10, keep=600).keyed("7")
    ran = []
    assert await key.run(api.function(lambda: ran.append(1) or "one")) == "one"
    await there.hold("job|7", 60, kind="once", reason="a migration")
    for _ in range(3):
        assert await key.run(api.function(lambda: ran.append(2) or "two")) == "one"
    other = here.once("job").keyed("8")
    await there.hold("job|8", SOON_S, kind="once", reason="a migration")
    assert await other.run(api.function(lambda: "three")) == "three"
    assert ran == [1]


@pytest.mark.parametrize("kind", ["lock", "semaphore", "rwlock", "election"])
async def test_a_name_on_hold_is_not_held_and_can_not_be_taken(here, there, kind):
    made = getattr(here, kind)(*(["a", 3] if kind == "semaphore" else ["a"]))
    if kind == "semaphore":
        lease = await made.acquire()
    await there.hold("a", 60, kind=kind, reason="a migration")
    if kind == "semaphore":
        status = await made.status()
        assert (status.held, status.free) == (1, 0)
        assert str(status).startswith("1 of 3 permits held, by ")
        await lease.release()
    status = await made.status()
    assert (status.held, status.free, await made.locked()) == (0, 0, True)
    assert str(status).startswith("0 of 3 permits held" if kind == "semaphore" else "not held")


async def test_a_second_hold_takes_the_place_of_the_first(here, there):
    first = await here.hold("a", 60, reason="one")
    second = await there.hold("a", 3600, reason="two")
    assert second.until > first.until
    assert (await here.lock("a").status()).hold.reason == "two"
    assert await here.unhold("a", reason="all is well")
    async with there.lock("a").acquire(timeout=20):
        pass
    assert (await here.lock("a").status()).last.why == "all is well"


async def test_only_the_hold_that_is_meant_ends(here, there):
    first = await here.hold("a", 60, reason="one")
    second = await there.hold("a", 3600, reason="two")
    assert not await here.unhold("a", only=first)
    shown = (await here.lock("a").status()).hold
    assert (shown.reason, shown.until) == ("two", second.until)
    assert not await here.unhold("b", only=shown)
    assert await here.unhold("a", only=shown)
    assert not await here.unhold("a", only=second)
    assert (await here.lock("a").status()).hold is None


async def test_taking_leases_by_force_leaves_the_hold(here, there):
    await there.hold("a", 60, reason="a migration")
    assert await here.lock("a").force_release() == 0
    assert await here.lock("a").force_release(up_to_fence=2**53) == 0
    assert (await here.lock("a").status()).hold


async def test_of_now_the_holders_are_asked_and_then_revoked(here, there, raw):
    lease = await here.lock("a", yields=False).acquire()
    await until_listening(raw)
    hold = await there.hold("a", 60, reason="a migration", now=True, grace=SOON_S)
    assert hold.remaining < 60
    await eventually_async(lambda: lease.lost)
    assert lease.wanted == "a migration"
    with pytest.raises(LeaseLost, match="its holder was asked to end and did not in time: a migration") as caught:
        lease.check()
    assert not isinstance(caught.value, Preempted)
    assert (await here.lock("a").status()).hold


async def test_a_hold_that_another_operator_has_ended_does_not_come_back(here, there, raw):
    lease = await here.lock("a", yields=False).acquire()
    await until_listening(raw)
    holding = asyncio.create_task(settled(there.hold("a", 3600, reason="a migration", now=True, grace=3600)))
    await eventually_async(lambda: lease.wanted)
    assert await here.unhold("a", reason="never mind")
    await holding
    assert (await here.lock("a").status()).hold is None
    assert await lease.release()


async def test_of_now_all_holders_end_however_many(here, there):
    leases = [await here.semaphore("a", 250).try_acquire() for _ in range(230)]
    await there.hold("a", 3600, kind="semaphore", reason="a migration", now=True, grace=0)
    assert (await there.semaphore("a", 250).status()).holding == 0
    await eventually_async(lambda: all(lease.lost for lease in leases))


async def test_a_request_that_preempts_waits_for_the_end_and_asks_no_one(here, there):
    async with here.lock("a") as lease:
        await there.hold("a", 60, reason="a migration")
        with pytest.raises(AcquireTimeout, match="on hold"):
            await there.lock("a").preempt(grace=0, timeout=SOON_S)
        assert not lease.wanted


async def test_a_lost_reply_sets_it_again(api, server, here):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            lost = proxy.lose_reply(script("permit_hold"))
            await far.hold("a", 60, reason="a migration")
            assert lost.happened == 1
    assert (await here.lock("a").status()).hold.reason == "a migration"
    assert await here.unhold("a")


async def test_names_shows_it(here, there):
    await there.hold("a", 60, reason="a migration", kind="semaphore")
    found = [one async for one in here.names("a")] if hasattr(here.names("a"), "__aiter__") else [*here.names("a")]
    (one,) = found
    assert (one.kind, one.status.limit, one.status.hold.reason) == ("semaphore", 0, "a migration")


async def test_bad_input_is_refused_before_any_io(api):
    async with api.client(NOWHERE) as client:
        for arguments, options in (
            (("", 5), {"reason": "x"}),
            ((7, 5), {"reason": "x"}),
            (("a", 0), {"reason": "x"}),
            (("a", "5"), {"reason": "x"}),
            (("a", 5), {"reason": ""}),
            (("a", 5), {"reason": "x", "kind": "group"}),
            (("a", 5), {"reason": "x", "kind": "limiter"}),
            (("a", 5), {"reason": "x", "grace": -1}),
        ):
            with pytest.raises((TypeError, ValueError)):
                await client.hold(*arguments, **options)
        with pytest.raises((TypeError, ValueError)):
            await client.unhold("a", kind="latch")
        with pytest.raises((TypeError, ValueError)):
            await client.unhold("a", reason="")
        with pytest.raises(TypeError, match="only must be a Hold or None"):
            await client.unhold("a", only=5)


async def test_without_a_server_it_changes_nothing(api):
    async with api.client("null:") as client:
        await settled(client.hold("a", 60, reason="a migration"))
        async with client.lock("a"):
            assert not await settled(client.unhold("a"))
