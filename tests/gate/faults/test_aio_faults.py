"""Replies lost, requests lost, connections cut, silent servers, forks: the asyncio API leaves nothing behind either.

Here a whole crowd of tasks shares the one connection that breaks.
"""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
import redis

from handfast import AcquireTimeout, AsyncHandfast, LeaseLost, ServerRefused
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, script
from tests._support.cancelling import connections_since, newest, session_of, settled
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async

ROUNDS = 20

CROWD = 200

CALLS = {verb: script(f"permit_{verb}") for verb in ("acquire", "release", "renew", "cancel")}


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def near(server, raw):
    """A client of the server itself, which knows all scripts from now on."""
    async with AsyncHandfast(server.url) as client:
        lock = client.lock("warm")
        lease = await lock.acquire()
        await lease.extend(1)
        with pytest.raises(AcquireTimeout):
            await lock.acquire(timeout=0.001)
        await lease.release()
        await lock.force_release()
        yield client


@pytest.fixture
async def far(proxy, near):
    """A client behind the proxy that was connected once."""
    async with AsyncHandfast(proxy.url) as client:
        async with client.lock("warm"):
            pass
        yield client


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_cancel_of_a_cancelled_task_leaves_no_queue_entry(far, proxy, raw, near, what):
    async with near.lock("a") as lease:
        for _ in range(5):
            fault = getattr(proxy, what)(CALLS["cancel"])
            waiter = asyncio.create_task(far.lock("a").acquire())
            await eventually_async(Engine(raw).queue)
            waiter.cancel()
            await asyncio.wait((waiter,))
            assert waiter.cancelled()
            assert fault.spent
            await settled(far)
            assert Engine(raw).queue() == []
        assert Engine(raw).holders() == [lease.token]


async def test_a_crowd_in_flight_gets_in_one_by_one_though_the_connection_is_cut(proxy, raw, near):
    known = newest(raw)
    inside, fences, lost = [], [], []

    async def work(lock):
        for _ in range(2):
            try:
                async with lock.acquire(timeout=40) as lease:
                    inside.append(lease)
                    fences.append(lease.fence)
                    assert inside == [lease]
                    await asyncio.sleep(0)
                    inside.remove(lease)
            except LeaseLost as error:
                lost.append(error)

    async def cut():
        for part in (1, 2, 3):
            await eventually_async(lambda part=part: len(fences) > part * CROWD / 2)
            proxy.cut()

    async with AsyncHandfast(proxy.url) as far, asyncio.TaskGroup() as group:
        lock = far.lock("a")
        for _ in range(CROWD):
            group.create_task(work(lock))
        group.create_task(cut())
    assert lost == []
    assert len(fences) == 2 * CROWD
    assert fences == sorted(set(fences))
    assert proxy.connections >= 4
    assert nothing_left(raw)
    await eventually_async(lambda: not connections_since(known, raw))


async def test_one_connection_is_left_after_many_were_cut(proxy, raw, near):
    known = newest(raw)
    far = AsyncHandfast(proxy.url)
    held = await near.lock("a").acquire()
    waiters = [asyncio.create_task(far.lock("a").acquire(timeout=20)) for _ in range(CROWD)]
    await eventually_async(lambda: len(Engine(raw).queue()) == CROWD)
    for _ in range(3):
        proxy.cut()
        await eventually_async(lambda: session_of(far).is_open)
    await eventually_async(lambda: len(Engine(raw).queue()) == CROWD)
    await eventually_async(lambda: len(connections_since(known, raw)) == 1)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    assert all(waiter.cancelled() for waiter in waiters)
    await settled(far)
    assert Engine(raw).queue() == []
    await far.close()
    assert await held.release() is True


async def test_an_idle_connection_that_has_ended_fails_no_call(proxy, raw):
    """Neither the first one of a turn, which is sent at once, nor those that wait for the end of the turn."""
    async with AsyncHandfast(proxy.url, retry_for=0) as far:
        await far.lock("warm").locked()
        proxy.cut()
        leases = await asyncio.gather(*(far.lock(f"n{number}").try_acquire() for number in range(4)))
        assert [await lease.release() for lease in leases] == [True] * 4
    assert nothing_left(raw)


async def test_a_connection_that_went_silent_is_replaced(proxy, raw, near):
    async with AsyncHandfast(f"{proxy.url}?socket_timeout=0.4") as far:
        await far.lock("warm").locked()
        assert proxy.connections == 1
        with proxy.black_hole("to server"):  # only what was said is lost
            asked = [asyncio.create_task(far.lock(f"n{number}").acquire(timeout=20)) for number in range(10)]
            await eventually_async(lambda: any(map(script("locks_acquire"), proxy.commands)))  # of all but the first
        leases = await asyncio.gather(*asked)
        assert proxy.connections == 2
        for number, lease in enumerate(leases):
            assert Engine(raw, f"n{number}").holders() == [lease.token]
            assert await lease.release() is True


async def test_a_server_without_memory_refuses_and_nothing_is_left(near, raw):
    held = await near.lock("a").acquire()
    before = Engine(raw, "b").dump()
    raw.config_set("maxmemory", 1)
    for ask in (near.lock("b").acquire, near.lock("b").try_acquire, near.lock("a").acquire):
        with pytest.raises(ServerRefused, match="out of memory") as caught:
            await ask()
        assert caught.value.changed_nothing
    outcomes = await asyncio.gather(*(near.lock("b").acquire() for _ in range(20)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ServerRefused}
    assert Engine(raw, "b").dump() == before
    assert Engine(raw).queue() == []
    await held.extend(40)
    assert await held.release() is True
    raw.config_set("maxmemory", 0)
    async with near.lock("b"):
        pass


async def test_a_primary_that_is_a_replica_for_a_while_is_asked_again():
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        async with AsyncHandfast(server.url) as hf:
            held = await hf.lock("a").acquire()
            waiters = [asyncio.create_task(hf.lock("a").acquire(timeout=20)) for _ in range(3)]
            await eventually_async(lambda: len(Engine(behind).queue()) == 3)
            refused = behind.info("errorstats")
            behind.replicaof("127.0.0.1", 1)
            releasing = asyncio.create_task(held.release())
            await eventually_async(lambda: behind.info("errorstats") != refused)
            assert not releasing.done()
            behind.replicaof("no", "one")
            assert await releasing is True
            for waiter in waiters:
                assert await (await waiter).release() is True
            assert nothing_left(behind)


async def test_replies_and_messages_that_come_byte_by_byte_are_read(far, proxy, raw, near):
    with proxy.dribbling():
        held = await near.lock("a").acquire()
        waiters = [asyncio.create_task(far.lock("a").acquire(timeout=20)) for _ in range(5)]
        others = [asyncio.create_task(far.lock(f"n{number}").acquire(timeout=20)) for number in range(5)]
        await eventually_async(lambda: len(Engine(raw).queue()) == 5)
        await held.release()
        fences = []
        for waiter in waiters:
            lease = await waiter
            fences.append(lease.fence)
            assert await lease.release() is True
        assert fences == sorted(set(fences))
        for number, other in enumerate(others):
            assert Engine(raw, f"n{number}").holders() == [(await other).token]
            assert await other.result().release() is True


async def test_a_revoked_lease_is_lost_at_once_with_the_reason(far, near):
    lease = await far.lock("a", ttl=3600).acquire()
    assert await near.lock("a").force_release(reason="deploy") == 1
    await asyncio.wait_for(lease.lost_event.wait(), 10)
    with pytest.raises(LeaseLost, match="deploy"):
        lease.check()
    assert await lease.release() is False


async def test_a_revocation_whose_message_is_lost_is_found_by_a_renewal(far, proxy, near, raw):
    lease = await far.lock("a", ttl=3600).acquire()
    with proxy.black_hole("to server"):
        Engine(raw).revoke(2**53)
        proxy.cut()
    await asyncio.wait_for(lease.lost_event.wait(), 10)
    assert await lease.release() is False


# --- several loops


def test_one_client_on_two_loops_in_two_threads(server, raw):
    hf = AsyncHandfast(server.url)
    inside, fences, together = [], [], []

    async def work():
        for _ in range(60):
            async with hf.lock("a").acquire(timeout=30) as lease:
                inside.append(lease.fence)
                together.append(len(inside))
                await asyncio.sleep(0)
                fences.append(lease.fence)
                inside.remove(lease.fence)

    async def crowd():
        await asyncio.gather(work(), work())

    other = threading.Thread(target=lambda: asyncio.run(crowd()))
    other.start()
    asyncio.run(crowd())
    other.join(40)
    assert max(together) == 1
    assert len(fences) == 240
    assert fences == sorted(set(fences))
    assert nothing_left(raw)


def test_one_client_in_several_runs_one_after_the_other(server, raw):
    hf = AsyncHandfast(server.url)
    lock = hf.lock("a")
    fences, leases = [], []

    async def use():
        async with lock as lease:
            fences.append(lease.fence)

    async def take():
        leases.append(await hf.lock("b").acquire())

    async def give():
        return await leases.pop().release()

    known = newest(raw)
    for _ in range(5):
        asyncio.run(use())
        eventually(lambda: not connections_since(known, raw))
    asyncio.run(take())
    assert asyncio.run(give()) is True, "a lease may be given up on another loop than it was taken on"
    assert fences == sorted(set(fences))
    assert len(fences) == 5
    assert nothing_left(raw, "b")


def test_a_loop_may_start_while_another_one_looks_for_closed_loops(server, raw):
    hf = AsyncHandfast(server.url)
    asked, left = [], []

    async def use():
        return await hf.lock("a").locked()

    class Gone:
        """A closed loop that gives another thread, when it is asked, the time to look for closed loops, too."""

        def is_closed(self):
            asked.append(self)
            if len(asked) == 1:
                other = threading.Thread(target=lambda: asyncio.run(use()))
                other.start()
                other.join(20)
            return True

    gone = Gone()
    hf._driver._contexts[gone] = SimpleNamespace(loop=gone, close_now=lambda: left.append(True))
    assert asyncio.run(use()) is False
    assert len(asked) > 1
    assert left
    asyncio.run(hf.close())


async def test_tasks_that_all_begin_at_once_are_not_all_refused_for_a_script_that_is_new():
    with PrivateServer() as server, redis.Redis.from_url(server.url) as behind:
        async with AsyncHandfast(server.url) as hf:

            async def use(number):
                async with hf.semaphore(f"s{number}", 1):
                    pass

            await asyncio.gather(*map(use, range(CROWD)))
        assert 1 <= behind.info("errorstats")["errorstat_NOSCRIPT"]["count"] <= CROWD // 10


async def test_a_call_that_does_not_wait_ends_in_time_though_its_connection_is_still_opening(proxy, near):
    """The handshake and the reply come in time each, but not both together."""
    proxy.delay(lambda sent: sent.name in ("INFO", "EVALSHA"), seconds=0.4, times=2)
    async with AsyncHandfast(f"{proxy.url}?socket_timeout=0.6") as client:
        with pytest.raises(redis.TimeoutError, match="did not answer"):
            await client.lock("a").try_acquire()
        await (await client.lock("a").acquire()).release()
