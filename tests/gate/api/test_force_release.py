"""Taking the lease of one holder away, by its fence, while the other holders go on. In both APIs."""

from __future__ import annotations

import asyncio

import pytest

from handfast import LeaseLost
from tests._support.apis import until_queued
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async

pytestmark = pytest.mark.usefixtures("short_ticks")

SOLE = {
    "lock": (lambda hf: hf.lock("a"), "acquire"),
    "rlock": (lambda hf: hf.rlock("a"), "acquire"),
    "semaphore": (lambda hf: hf.semaphore("a", 4), "acquire"),
    "reader": (lambda hf: hf.rwlock("a").read(), "acquire"),
    "writer": (lambda hf: hf.rwlock("a").write(), "acquire"),
    "election": (lambda hf: hf.election("a"), "acquire"),
    "group": (lambda hf: hf.group("a"), "join"),
    "once": (lambda hf: hf.once("a").keyed("x"), "acquire"),
}
"""Objects, and how each is taken."""


async def lost(lease, reason):
    """Wait until a lease is lost, and check that its holder has heard why."""
    await eventually_async(lambda: lease.lost)
    with pytest.raises(LeaseLost, match=reason) as caught:
        lease.check()
    assert caught.value.fence == lease.fence
    assert await lease.release() is False


async def go_on(*leases):
    """Check that leases are held, here and on the server."""
    for lease in leases:
        lease.check()
        await lease.extend(60)
        assert not lease.lost


@pytest.mark.parametrize("which", range(4))
async def test_of_four_holders_of_a_semaphore_one_loses_its_lease_and_three_go_on(here, there, raw, which):
    semaphore = here.semaphore("a", 4)
    leases = [await client.semaphore("a", 4).acquire() for client in (here, there, here, there)]
    taken = leases.pop(which)
    await until_listening(raw, 2)
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait(there.semaphore("a", 4)))
        await until_queued(semaphore)
        assert await semaphore.force_release(fence=taken.fence, reason="it hangs") == 1
        await lost(taken, "it hangs")
        await go_on(*leases)
    assert waiter.result() > max(lease.fence for lease in leases)
    last = (await semaphore.status()).last
    assert (last.what, last.why) == ("force_release", "it hangs")
    assert await semaphore.force_release(fence=taken.fence) == 0
    await go_on(*leases)
    assert [await lease.release() for lease in leases] == [True] * 3


async def wait(thing):
    async with thing.acquire(timeout=20) as lease:
        return lease.fence


async def test_as_many_waiters_as_fit_get_the_permits_of_one_holder(here, there):
    semaphore = here.semaphore("a", 3)
    large, small = await semaphore.acquire(permits=2), await there.semaphore("a", 3).acquire()
    may_end = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(hold(there.semaphore("a", 3), may_end))
            await until_queued(semaphore, number + 1)
        assert await semaphore.force_release(fence=large.fence) == 1
        await eventually_async(lambda: semaphore_is(semaphore, holding=3, waiting=1))
        await go_on(small)
        may_end.set()
    assert [await large.release(), await small.release()] == [False, True]


async def hold(semaphore, until):
    async with semaphore:
        await until.wait()


async def semaphore_is(semaphore, *, holding, waiting):
    status = await semaphore.status()
    return (status.holding, status.waiting) == (holding, waiting)


@pytest.mark.parametrize("by", ["both sides", "read", "write"])
async def test_of_three_readers_one_loses_its_lease_and_a_writer_still_waits(here, there, raw, by):
    rwlock = there.rwlock("a")
    leases = [await here.rwlock("a").read().acquire() for _ in range(3)]
    await until_listening(raw)
    async with asyncio.TaskGroup() as tasks:
        writer = tasks.create_task(wait(rwlock.write()))
        await until_queued(rwlock)
        taker = rwlock if by == "both sides" else getattr(rwlock, by)()
        assert await taker.force_release(fence=leases[1].fence, reason="deploy") == 1
        await lost(leases[1], "deploy")
        await go_on(leases[0], leases[2])
        assert not writer.done()
        for lease in (leases[0], leases[2]):
            await lease.release()
    assert writer.result() > leases[2].fence


async def test_of_three_members_of_a_group_one_is_taken_away(here, there, raw):
    members = [await here.group("a").join(value=value) for value in "xyz"]
    await until_listening(raw)
    assert await there.group("a").force_release(fence=members[1].fence, reason="maintenance") == 1
    await lost(members[1], "maintenance")
    assert [one.value for one in await there.group("a").members()] == ["x", "z"]
    for member in (members[0], members[2]):
        assert await member.release() is True


@pytest.mark.parametrize("kind", SOLE)
async def test_only_the_fence_of_the_lease_takes_it(here, there, raw, kind):
    make, verb = SOLE[kind]
    lease = await getattr(make(here), verb)()
    await until_listening(raw)
    taker = make(there)
    for fence in (1, lease.fence - 1, lease.fence + 1, 2**53):
        assert await taker.force_release(fence=fence, reason="wrong") == 0
    if kind != "once":
        assert (await taker.status()).last is None
    await go_on(lease)
    assert await taker.force_release(fence=lease.fence, reason="it hangs") == 1
    await lost(lease, "it hangs")


async def test_a_holder_that_has_released_is_not_followed_to_its_next_lease(here, there):
    lock = here.lock("a")
    first = await lock.acquire()
    await first.release()
    async with lock as second:
        assert await there.lock("a").force_release(fence=first.fence) == 0
        await go_on(second)


async def test_on_a_name_with_a_hold_one_lease_is_taken_and_no_waiter_gets_in(here, there, raw):
    semaphore = here.semaphore("a", 2)
    taken, kept = await semaphore.acquire(), await semaphore.acquire()
    await until_listening(raw)
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait(there.semaphore("a", 2)))
        await until_queued(semaphore)
        await there.hold("a", 60, kind="semaphore", reason="migration")
        assert await there.semaphore("a", 2).force_release(fence=taken.fence, reason="it hangs") == 1
        await lost(taken, "it hangs")
        status = await semaphore.status()
        assert (status.holding, status.waiting, status.hold.reason) == (1, 1, "migration")
        await go_on(kept)
        assert await there.unhold("a", kind="semaphore") is True
    assert waiter.result() > kept.fence
    assert await kept.release() is True


async def test_a_lease_whose_fence_was_evicted_is_left_and_shown(here, there, raw):
    semaphore = here.semaphore("a", 2)
    leases = [await semaphore.acquire(), await semaphore.acquire()]
    raw.hdel("{hf:semaphore:a}:state", leases[1].token)
    assert await there.semaphore("a", 2).force_release(fence=leases[1].fence) == 0
    assert (await semaphore.status()).holding == 2
    assert await there.semaphore("a", 2).force_release() == 2
    assert [await lease.release() for lease in leases] == [False, False]


@pytest.mark.parametrize(
    ("fences", "error", "words"),
    [
        ({"fence": 5, "up_to_fence": 5}, ValueError, "give one of them"),
        ({"fence": 0, "up_to_fence": 0}, ValueError, "give one of them"),
        ({"fence": 0}, ValueError, "fence must be from 1"),
        ({"fence": -1}, ValueError, "fence must be from 1"),
        ({"fence": 2**53 + 1}, ValueError, "fence must be from 1"),
        ({"fence": True}, TypeError, "fence must be an int"),
        ({"fence": 1.0}, TypeError, "fence must be an int"),
        ({"fence": "1"}, TypeError, "fence must be an int"),
        ({"fence": 5, "reason": ""}, ValueError, "reason"),
    ],
)
@pytest.mark.parametrize("kind", ["lock", "semaphore", "reader", "election", "group", "once"])
async def test_what_is_no_fence_is_refused_before_any_io(api, kind, fences, error, words):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error, match=words):
            await SOLE[kind][0](client).force_release(**fences)
