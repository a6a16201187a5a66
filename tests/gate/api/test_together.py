"""Several limits taken together: in one order, under one timeout, and given back in reverse. In both APIs."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AcquireTimeout, LeaseLost, QueueFull, RateLimited, WouldDeadlock
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, until_queued
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async, settled

SOON_S = 0.05
"""A timeout in seconds that is to end."""


def tenant(client, **options):
    limits = client.semaphore("tenant:7", 2), client.lock("job"), client.limiter("api", "5/min")
    return client.together(*limits, **options)


async def nothing_is_held(client):
    assert not await client.semaphore("tenant:7", 2).locked()
    assert not await client.lock("job").locked()
    assert (await client.lock("job").status()).waiting == 0


async def used(client):
    return (await client.limiter("api", "5/min").status()).rates[0].used


async def test_all_are_held_in_the_block_and_given_back_after_it(here, there):
    async with tenant(here) as held:
        assert [one.name for one in held.leases] == ["tenant:7", "job"]
        assert held.fence == held.leases[-1].fence
        assert held.admission.admitted
        assert await there.lock("job").try_acquire() is None
        assert (await there.semaphore("tenant:7", 2).status()).free == 1
        held.check()
    await nothing_is_held(there)
    assert await used(there) == 1
    assert tenant(here).name == "tenant:7, job, api"


async def test_acquire_returns_what_is_released_by_hand(here, there):
    held = await tenant(here).acquire(timeout=5)
    assert await held.release()
    assert not await held.release()
    async with tenant(here).acquire(timeout=5) as held:
        assert held.fence
    async with await tenant(here).try_acquire() as held:
        assert held.admission
    await nothing_is_held(there)
    assert await used(there) == 3


async def test_what_is_not_free_in_time_gives_the_others_back_and_counts_nothing(here, there):
    async with there.lock("job") as lease:
        with pytest.raises(AcquireTimeout, match="'job' could not be acquired"):
            await tenant(here).acquire(timeout=SOON_S)
        with pytest.raises(AcquireTimeout):
            async with tenant(here, timeout=SOON_S):
                pytest.fail("the block was entered")
        assert await tenant(here).try_acquire() is None
        assert (await there.semaphore("tenant:7", 2).status()).holding == 0
        assert lease.remaining() > 0
        assert await used(there) == 0
    await nothing_is_held(there)


async def test_a_try_ends_with_the_first_that_is_not_free(here, there):
    async with there.semaphore("tenant:7", 1):
        assert await here.together(here.semaphore("tenant:7", 1), here.lock("job")).try_acquire() is None
    assert (await there.lock("job").status()).grants == 0


async def test_a_limiter_that_admits_no_more_gives_the_leases_back(here, there):
    for _ in range(5):
        await here.limiter("api", "5/min").acquire()
    with pytest.raises(RateLimited):
        await tenant(here).acquire(timeout=SOON_S)
    assert await tenant(here).try_acquire() is None
    await nothing_is_held(there)


@pytest.mark.parametrize("how", ["block", "acquire"])
async def test_a_lease_that_was_lost_during_the_wait_for_the_limiter_begins_no_block(api, here, there, raw, how):
    limits = here.together(here.lock("job"), here.limiter("api", "1/h"))
    await there.limiter("api", "1/h").acquire()

    async def block():
        async with limits:
            pytest.fail("the block was entered")

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(raises(LeaseLost, limits) if how == "acquire" else lost(block))
        await eventually_async(there.lock("job").locked)
        await until_listening(raw)
        assert await there.lock("job").force_release(reason="a test") == 1
        await there.limiter("api", "1/h").reset()
        await waiting
    assert (await there.limiter("api", "1/h").status()).rates[0].used == 0
    await nothing_is_held(there)


async def lost(block):
    with pytest.raises(LeaseLost):
        await block()


async def test_a_wait_for_one_ends_when_another_is_lost(here, there):
    async with asyncio.TaskGroup() as tasks:
        async with there.lock("job"):
            waiting = tasks.create_task(raises(LeaseLost, tenant(here)))
            await until_queued(there.lock("job"))
            assert await there.semaphore("tenant:7", 2).force_release(reason="a test") == 1
            await waiting
    await nothing_is_held(there)


async def raises(error, steps):
    with pytest.raises(error):
        async with steps:
            pytest.fail("the block was entered")


async def test_a_block_reports_the_loss_of_one_and_releases_the_others(here, there):
    with pytest.raises(LeaseLost, match="'job'"):
        async with tenant(here) as held:
            assert await there.lock("job").force_release(reason="a test") == 1
            await eventually_async(lambda: held.leases[-1].lost)
            held.check()
    await nothing_is_held(there)


async def test_reentrant_locks_and_read_write_locks_may_be_among_them(here, there):
    async with here.together(here.rlock("r"), here.rwlock("w").read(), here.lock_all(["x", "y"])) as held:
        assert len(held.leases) == 3
        async with here.rlock("r"):
            pass
        assert await there.rlock("r").try_acquire() is None
        assert await there.rwlock("w").write().try_acquire() is None
    async with there.rlock("r"), there.rwlock("w").write(), there.lock("x"):
        pass


async def test_a_decorated_call_fills_the_names(api, plain, there):
    seen = []

    def render(who):
        seen.append(who)
        return who

    limits = plain.semaphore("t:{who}", 1), plain.semaphore("gpu", 8), plain.limiter("api", "1/min", by="who")
    decorated = plain.together(*limits)(api.function(render))
    assert await settled(decorated("a")) == "a"
    assert await settled(decorated("b")) == "b"
    skips = plain.together(*limits)(on_busy="skip")(api.function(render))
    assert await settled(skips("a")) is None
    assert seen == ["a", "b"]
    with pytest.raises(RateLimited):
        await settled(plain.together(*limits)(timeout=SOON_S)(api.function(render))("a"))
    async with there.semaphore("t:a", 1), there.semaphore("t:b", 1):
        pass


async def test_orders_that_contradict_each_other_are_refused_within_a_client(here, there):
    here.together(here.lock("a"), here.lock("b"), here.lock("c"))
    here.together(here.lock("a"), here.lock("c"))
    with pytest.raises(ValueError, match=r"lock:c is to be taken before lock:a here, and was after it elsewhere"):
        here.together(here.lock("c"), here.lock("a"))
    with pytest.raises(ValueError, match=r"lock:a is taken twice"):
        here.together(here.lock("a"), here.rlock("a"))
    there.together(there.lock("b"), there.lock("a"))
    here.together(here.semaphore("c", 2), here.lock("a"))


async def test_a_decorated_call_whose_arguments_make_such_an_order_is_refused(api, plain):
    ran = []
    accounts = plain.together(plain.lock("account:{source}"), plain.lock("account:{target}"))

    @accounts(on_busy="skip")
    @api.function
    def move(source, target):
        ran.append((source, target))

    await settled(move(1, 2))
    await settled(move(2, 3))
    with pytest.raises(ValueError, match=r"lock:account:2 is to be taken before lock:account:1 here, .* or lock_all"):
        await settled(move(2, 1))
    with pytest.raises(ValueError, match=r"lock:account:4 is taken twice"):
        await settled(move(4, 4))
    with pytest.raises(ValueError, match=r"lock:account:2 is to be taken before lock:account:1 here"):
        plain.together(plain.lock("account:2"), plain.lock("account:1"))
    await settled(move(1, 2))
    assert ran == [(1, 2), (2, 3), (1, 2)]


async def test_the_names_of_a_lock_of_all_have_no_order(api, plain):
    plain.together(plain.lock_all(["a", "b"]), plain.lock("c"))
    plain.together(plain.lock_all(["b", "a"]), plain.lock("c"))
    plain.together(plain.lock("a"), plain.lock("b"))
    with pytest.raises(ValueError, match=r"lock:c is to be taken before lock:b here"):
        plain.together(plain.lock("c"), plain.lock_all(["b", "d"]))
    with pytest.raises(ValueError, match=r"lock:x is taken twice"):
        plain.together(plain.lock_all(["y", "x"]), plain.lock("x"))
    both = plain.together(plain.lock_all(["account:{one}", "account:{other}"]), plain.lock("c"))
    moved = both(api.function(lambda one, other: (one, other)))
    assert [await settled(moved(*pair)) for pair in ((1, 2), (2, 1), (3, 3))] == [(1, 2), (2, 1), (3, 3)]


async def test_a_name_that_the_caller_holds_is_refused(server):
    async with ASYNCIO.client(server.url) as client, client.lock("job"):
        with pytest.raises(WouldDeadlock):
            await tenant(client).acquire(timeout=5)
        assert not await client.semaphore("tenant:7", 2).locked()


async def test_a_full_queue_gives_the_others_back(here, there):
    async with asyncio.TaskGroup() as tasks:
        async with there.lock("job"):
            waiter = tasks.create_task(settled_turn(there.lock("job")))
            await until_queued(there.lock("job"))
            with pytest.raises(QueueFull):
                await here.together(here.semaphore("tenant:7", 2), here.lock("job", max_waiters=1)).acquire(timeout=5)
            assert (await there.semaphore("tenant:7", 2).status()).holding == 0
        await waiter


async def settled_turn(steps):
    async with steps:
        pass


async def test_bad_input_is_refused_before_any_io(api):
    async with api.client(NOWHERE) as client, api.client(NOWHERE) as other:
        lock, limiter = client.lock("a"), client.limiter("a", "1/s")
        for error, match, limits in (
            (ValueError, "must come last", (limiter, lock)),
            (ValueError, "another client", (lock, other.lock("b"))),
            (ValueError, "number of limits", ()),
            (ValueError, "number of limits", tuple(client.lock(f"l{number}") for number in range(17))),
            (ValueError, "at least", (limiter,)),
            (TypeError, "together", (lock, "b")),
            (TypeError, "together", (client.latch("a", 2),)),
        ):
            with pytest.raises(error, match=match):
                client.together(*limits)
        with pytest.raises(TypeError, match="timeout must"):
            client.together(lock, timeout="5")


# --- faults


@pytest.mark.parametrize("name", ["permit_acquire", "limit_acquire", "permit_release"])
async def test_a_lost_reply_leaves_nothing(api, server, here, name):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            lost = proxy.lose_reply(script(name))
            async with tenant(far):
                pass
            assert lost.happened == 1
    await nothing_is_held(here)
    assert await used(here) == 1
