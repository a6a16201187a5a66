"""Groups: members, and who watches them, in both APIs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from itertools import pairwise
from math import inf

import pytest

from handfast import LeaseLost
from handfast._api.sync import announced as sync_announced
from handfast._api.sync import group as sync_group
from handfast._api.sync import lease as sync_lease
from handfast._drivers.sync import cleanup, contexts, driver, performing, renewer
from handfast._engine.effects import Answer, Park, Waking
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.packing import doubles
from handfast._protocol import grouping
from handfast._protocol.asking import ObjectAttempt, watch
from handfast.testing import FaultProxy, interrupt_at, script
from tests._support.apis import ASYNCIO
from tests._support.cancelling import context_of
from tests._support.cancelling import settled as still
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async, settled

WHERE = [sync_group, sync_announced, sync_lease, cleanup, contexts, driver, performing, renewer]
"""Modules in which a member that joins or leaves is interrupted at every point."""

SOON_S = 0.3
"""A ttl in seconds that is to end."""


async def watched(api, group, seen):
    """Have all changes noted, until the task is cancelled."""
    if api is ASYNCIO:
        async for members in group.watch():
            seen.append(values(members))

    def look():
        with contextlib.suppress(Exception):  # the client is closed at the end of the test
            for members in group.watch():
                seen.append(values(members))

    threading.Thread(target=look, daemon=True).start()


def values(members):
    return [one.value for one in members]


async def test_a_member_is_seen_by_others(here, there):
    group, other = here.group("a"), there.group("a")
    assert await other.members() == ()
    async with group.join(value="zone=a") as member:
        (seen,) = await other.members()
        assert (seen.value, seen.fence, seen.label) == ("zone=a", member.fence, (await other.status()).holders[0].label)
        assert 0 <= seen.joined_for < seen.remaining <= 15
        assert await other.size() == 1
    assert await other.members() == ()
    assert await other.size() == 0


async def test_members_are_in_the_order_in_which_they_joined(here, there):
    joined = [await client.group("a").join(value=str(number)) for number, client in enumerate((here, there) * 6)]
    listed = await here.group("a").members()
    assert values(listed) == [str(number) for number in range(12)]
    assert [one.fence for one in listed] == [one.fence for one in joined]
    for member in joined:
        await member.release()
    assert await here.group("a").size() == 0


async def test_so_many_members_are_listed_and_all_are_counted(here, monkeypatch):
    monkeypatch.setattr(grouping, "MAX_MEMBERS", 20)
    group = here.group("a")
    joined = [await group.join(value=str(number)) for number in range(25)]
    assert await settled(group.size()) == 25
    listed = await group.members()
    assert len(listed) == 20
    assert all(one.fence < other.fence for one, other in pairwise(listed))
    for member in joined:
        await member.release()


async def test_a_thousand_members_and_as_many_dead_are_listed(server):
    async with ASYNCIO.handfast(server.url) as client:
        group = client.group("a")
        joined = await asyncio.gather(*(group.join(value=str(number)) for number in range(1100)))
        listed = await group.members()
        assert {one.fence for one in listed} == {one.fence for one in joined}
        async for members in group.watch():
            assert members[0].fence == listed[0].fence
            assert len(members) == 1100
            break
        await asyncio.gather(*(one.release() for one in joined))


async def test_others_see_each_change(api, here, there):
    seen = []
    task = asyncio.create_task(watched(api, there.group("a"), seen))
    await eventually_async(lambda: seen == [[]])
    async with here.group("a").join(value="one"):
        await eventually_async(lambda: seen[-1] == ["one"])
        async with here.group("a").join(value="two"):
            await eventually_async(lambda: seen[-1] == ["one", "two"])
        await eventually_async(lambda: seen[-1] == ["one"])
    await eventually_async(lambda: seen[-1] == [])
    assert seen == [[], ["one"], ["one", "two"], ["one"], []]
    task.cancel()


async def test_the_end_of_a_dead_member_is_seen_when_its_lease_ends(api, server, here):
    seen = []
    async with api.client(server.url, release_at_exit=False) as mortal:
        member = await mortal.group("a", ttl=SOON_S).join(value="dead")
        task = asyncio.create_task(watched(api, here.group("a"), seen))
        await eventually_async(lambda: seen == [["dead"]])
    await eventually_async(lambda: seen == [["dead"], []])
    assert member.lost
    task.cancel()


async def test_a_member_can_be_taken_away(api, here, there, raw):
    seen = []
    member = await here.group("a").join(value="one")
    await until_listening(raw)
    task = asyncio.create_task(watched(api, there.group("a"), seen))
    await eventually_async(lambda: seen == [["one"]])
    assert await there.group("a").force_release(reason="maintenance", up_to_fence=member.fence) == 1
    await eventually_async(lambda: seen == [["one"], []])
    await eventually_async(lambda: member.lost)
    with pytest.raises(LeaseLost, match="maintenance"):
        member.check()
    task.cancel()


@pytest.mark.parametrize("value", ["x" * 1025, "\N{GRINNING FACE}" * 257, "\ud800", b"x", 5, None])
async def test_bad_values_are_refused_before_any_io(api, value):
    async with api.client(NOWHERE) as client:
        with pytest.raises((TypeError, ValueError), match="value must"):
            await client.group("a").join(value=value)


async def test_a_member_can_t_be_detached(here):
    async with here.group("a").join() as member:
        with pytest.raises(TypeError, match=r"can't be detached: a group has no adopt\(\)"):
            await member.detach()
        assert not member.lost


async def test_tasks_that_watch_the_same_are_one_waiter(server, raw):
    async with ASYNCIO.client(server.url) as client:
        seen = [[] for _ in range(20)]
        tasks = [asyncio.create_task(watched(ASYNCIO, client.group("a"), one)) for one in seen]
        await eventually_async(lambda: all(one == [[]] for one in seen))
        await eventually_async(lambda: raw.zcard("{hf:group:a}:watchers") == 1)
        async with client.group("a").join(value="x"):
            await eventually_async(lambda: all(one == [[], ["x"]] for one in seen))
        for task in tasks:
            task.cancel()


async def test_a_watcher_goes_on_after_its_connection_broke(api, server, here):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            seen = []
            task = asyncio.create_task(watched(api, far.group("a"), seen))
            await eventually_async(lambda: seen == [[]])
            proxy.cut()
            async with here.group("a").join(value="x"):
                await eventually_async(lambda: seen[-1] == ["x"])
            task.cancel()


async def test_without_a_server_there_are_no_others(api):
    async with api.client("null:") as client:
        group = client.group("a")
        async with group.join(value="x") as member:
            assert member.fence
            assert await settled(group.members()) == ()
            assert await settled(group.size()) == 0
        seen = []
        await asyncio.wait_for(watched(api, group, seen), 10)
        await eventually_async(lambda: seen == [[]])


# --- at every point


def test_an_interrupt_of_a_release_leaves_no_member(hf):
    step, run, group = 0, None, hf.group("a")
    while run is None or run.struck:
        member = group.join()
        run = interrupt_at(member.release, step := step + 1, within=WHERE)
        member.release()
        assert not group.size(), run
        assert not member.lost, run
    assert step > 15


async def test_a_watcher_that_is_cancelled_leaves_nothing_in_the_client(server):
    async with ASYNCIO.handfast(server.url) as client:

        async def look():
            async for members in client.group("a").watch():
                assert members == ()

        for _ in range(3):
            task = asyncio.create_task(look())
            await eventually_async(lambda: client._driver._contexts and context_of(client).session.inbox)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await still(client)
            assert not context_of(client).session.inbox


@pytest.mark.parametrize("name", ["group_ring", "group_watch", "permit_acquire", "permit_release"])
async def test_a_reply_that_is_lost_changes_nothing(api, server, here, name):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            seen = []
            task = asyncio.create_task(watched(api, far.group("a"), seen))
            await eventually_async(lambda: seen == [[]])
            fault = proxy.lose_reply(script(name))
            async with far.group("a").join(value="x"):
                await eventually_async(lambda: seen[-1] == ["x"])
                assert await here.group("a").size() == 1
            await eventually_async(lambda: seen[-1] == [])
            assert fault.happened == 1
            task.cancel()


# --- without a server


def watching(seen, until=inf):
    request = ObjectRequest(KeySet("hf", "group", "a")).having(**seen._asdict(), shown=1000)
    attempt = ObjectAttempt(request, b"t" * 32, 100.0)
    return attempt, watch(attempt, "watch", until, has_end=True, pause=grouping.PAUSE_S)


def test_changes_soon_after_each_other_cost_a_single_call():
    attempt, steps = watching(grouping.Seen(1, 1))
    call = next(steps)
    assert call.prefix.name == "group_watch"
    assert steps.send(Answer(100.0, b"waits " + doubles(60_000_000))) == Park(attempt.token, 105.0)
    assert steps.send(Waking(101.0, None)) == Park(attempt.token, 101.05)
    assert steps.send(Waking(101.05, None)) == call
    with pytest.raises(StopIteration) as ended:
        steps.send(Answer(101.06, b"empty " + doubles(1)))
    assert grouping.seen(ended.value.value) == grouping.Seen(1, 0)
    assert grouping.members(ended.value.value) == ()


def test_a_poll_is_not_put_off():
    attempt, steps = watching(grouping.Seen(1, 1))
    call = next(steps)
    assert steps.send(Answer(100.0, b"waits " + doubles(1_000_000))) == Park(attempt.token, 101.002)
    assert steps.send(Waking(101.002, None)) == call


def test_a_pause_ends_with_the_time_of_the_caller():
    attempt, steps = watching(grouping.Seen(1, 1), until=101.01)
    next(steps)
    assert steps.send(Answer(100.0, b"waits " + doubles(0))) == Park(attempt.token, 101.01)
    assert steps.send(Waking(101.0, None)) == Park(attempt.token, 101.01)
    steps.send(Waking(101.01, None))
    with pytest.raises(StopIteration):
        steps.send(Answer(101.01, b"waits " + doubles(0)))
