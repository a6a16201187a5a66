"""No server: a client of ``null:``, and every client while `deactivate` is in force. In both APIs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

import handfast
from handfast import (
    AcquireTimeout,
    AlreadyRunning,
    ClientClosed,
    HandfastError,
    LeaseLost,
    NotHeld,
    RateLimited,
    ServerUnsupported,
    WouldDeadlock,
)
from handfast._drivers.aio.null import AsyncNullDriver
from handfast._drivers.sync.null import SyncNullDriver
from handfast.testing import busy, deactivate
from tests._support.apis import ASYNCIO
from tests._support.helpers import eventually_async, settled
from tests._support.kinds import ROWS

SOON = timedelta(milliseconds=10)
"""After this a lease without renewal has ended. One that is renewed is so when it is asked, however late that is."""

NOWHERE = ["redis://nowhere.invalid", "redis+sentinel://nowhere.invalid/mymaster", "redis+cluster://nowhere.invalid"]


@pytest.fixture(params=["null:", *NOWHERE])
async def client(request, api):
    """A client that reaches no server. Those that name one were made before."""
    made = api.client(request.param)
    with deactivate() if request.param != "null:" else contextlib.nullcontext():
        yield made
    await made.close()


@pytest.mark.parametrize("kind", ["lock", "lock_all", "semaphore", "read", "write"])
async def test_every_acquire_is_granted_and_fences_grow(client, kind):
    first = await ROWS[kind].make(client).acquire()
    async with ROWS[kind].make(client, ttl=60).acquire(timeout=0) as second:
        assert second.fence >= first.fence
        assert 0 < second.remaining() <= 60
        await second.extend(90)
        assert 60 < second.remaining() <= 90
    third = await ROWS[kind].make(client).try_acquire()
    assert third.fence > first.fence
    for lease in (first, third):
        assert await lease.release() is True
        assert await lease.release() is False
    with pytest.raises(NotHeld):
        second.check()


async def test_a_reentrant_lock_is_one_lease_for_its_owner(client):
    async with client.rlock("a") as outer, client.rlock("a") as inner:
        assert inner.fence == outer.fence
    async with client.rlock("a") as again:
        assert again.fence > outer.fence


async def test_a_lease_is_renewed_as_long_as_it_is_held_and_not_without_renewal(client):
    async with client.lock("a", ttl=SOON, renew=True) as renewed:
        ending = await client.lock("a", ttl=SOON, renew=False).acquire()
        await eventually_async(lambda: ending.lost)
        renewed.check()
    assert await ending.release() is False
    with pytest.raises(LeaseLost, match="max_hold"):
        async with client.lock("a", ttl=SOON, max_hold=0.02) as held:
            await eventually_async(lambda: held.lost)


async def test_decorators_run_with_their_lease(api, client):
    @client.lock("order:{number}", timeout=5)
    @api.function
    def work(number):
        return number

    assert await work(7) == 7


async def test_the_rest_of_what_locks_can_do(client):
    async with client.rwlock("a").write() as writer:
        await writer.downgrade()
        writer.check()
    token = await (await client.lock("a").acquire()).detach(ttl=60)
    assert await (await client.lock("a").adopt(token)).release() is True
    await client.semaphore("a", 2).resize(3)
    assert (await client.lock("a").status()).holders == ()
    assert not await client.lock("a").locked()
    assert await client.lock("a").force_release() == 0
    assert await client.semaphore("a", 4).force_release(fence=5) == 0


async def test_what_is_done_once_is_done_each_time(api, client):
    done, once = [], client.once("a")

    def work():
        done.append(len(done))
        return done[-1]

    assert [await once.run(api.function(work)) for _ in range(2)] == [0, 1]
    assert (await once.status()).state == "idle"
    assert await once.forget() is False


async def test_a_limiter_admits_all(client):
    limiter = client.limiter("a", "1/h; 2/d")
    for _ in range(3):
        async with limiter:
            pass
    assert await limiter.try_acquire()
    assert [rate.used for rate in (await limiter.status()).rates] == [0, 0]


async def test_what_needs_data_says_so(client):
    with pytest.raises(ServerUnsupported, match="needs a server, and there is none behind 'null:'"):
        await client.scores("a").newest()
    with pytest.raises(ServerUnsupported, match="'ZADD' needs a server"):
        await client.autocomplete("a").add(["b"])
    with pytest.raises(ServerUnsupported, match=r"'(INFO|CLUSTER)' needs a server"):
        await client.check_server()


async def test_what_shows_who_is_there_shows_no_one(client):
    assert (await client.latch("a", 2).status()).left == 2
    assert not await client.election("a").history()
    assert await client.election("a").leader() is None
    assert await client.group("a").size() == 0


@pytest.mark.parametrize("kind", [SyncNullDriver, AsyncNullDriver])
def test_it_has_all_that_the_api_asks_a_driver_for(kind):
    source = "".join(path.read_text() for path in (Path(handfast.__file__).parent / "_api").rglob("*.py"))
    asked = set(re.findall(r"\b_?driver\.([a-z]\w+)", source))
    assert {"acquire", "is_cluster", "is_embedded", "events"} <= asked
    null = kind()
    assert sorted(name for name in asked if not hasattr(null, name)) == []


async def test_wrong_arguments_are_refused_as_ever(client):
    with pytest.raises(TypeError, match="ttl must be"):
        client.lock("a", ttl="30")
    with pytest.raises(HandfastError, match="was closed"):
        await client.close()
        await client.lock("a").acquire()


async def test_after_close_nothing_is_granted(api):
    client = api.client("null:")
    await client.close()
    for call in (client.lock("a").acquire, client.lock("a").try_acquire, client.limiter("a", "1/s").acquire):
        with pytest.raises(ClientClosed):
            await call()


async def test_many_callers_hold_it_at_once(client):
    held, everyone = [], asyncio.Event()

    async def work():
        async with client.lock("a") as lease:
            held.append(lease.fence)
            if len(held) == 10:
                everyone.set()
            await everyone.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(work())
    assert len(set(held)) == 10


# --- while it is in force


async def test_outside_of_it_the_client_is_as_before(here, raw):
    async with here.lock("a") as lease:
        with deactivate():
            async with here.lock("a").acquire(timeout=0):
                assert not await here.lock("a").locked()
            assert await lease.extend(60) is None
        assert await here.lock("a").locked()
        [holder] = (await here.lock("a").status()).holders
        assert holder.remaining > 50
        with deactivate():
            assert await lease.release() is True
    assert not await here.lock("a").locked()


async def test_a_name_that_is_busy_is_granted_to_no_one(api):
    """The other branch of a program, without a server: of each kind, and where the name is that of a key, or one of several."""
    with busy("a", "a|x", "b"), busy("b"):
        async with api.client("null:") as client:
            locks = client.lock("a"), client.semaphore("a", 2), client.rwlock("a").read(), client.lock_all(["c", "a"])
            for lock in locks:
                assert await lock.try_acquire() is None
                with pytest.raises(AcquireTimeout):
                    await lock.acquire(timeout=5)
                with pytest.raises(WouldDeadlock, match="would wait forever"):
                    await lock.acquire()
            with pytest.raises(AlreadyRunning):
                await client.once("a", on_running="raise").keyed("x").acquire()
            assert await client.once("a").keyed("x").try_acquire() is None
            limiter = client.limiter("a", "5/s").keyed("x")
            assert (await limiter.try_acquire()).retry_after == 1
            with pytest.raises(RateLimited):
                await limiter.acquire(timeout=5)
            assert await client.limiter("a", "5/s").keyed("y").try_acquire()
            async with client.lock("c"):
                pass
    async with api.client("null:") as client, client.lock("a"), client.lock("b"):
        pass


async def test_a_deactivated_client_finds_a_busy_name(api):
    client = api.handfast("redis://nowhere.invalid")
    with deactivate(), busy("order:7"):
        assert await settled(client.lock("order:7").try_acquire()) is None
        assert await settled(client.lock("order:8").try_acquire()) is not None


@pytest.mark.parametrize("names", [(), (7,), (["a"],)])
def test_what_is_busy_has_names(names):
    with pytest.raises(TypeError, match="needs the names"), busy(*names):
        pytest.fail("it began")


def test_a_client_needs_no_name_of_a_server_in_it(api, monkeypatch):
    for name in ("HANDFAST_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    with deactivate():
        with deactivate():
            assert "null:" in repr(api.client())
        assert "null:" in repr(api.client())
    with pytest.raises(HandfastError, match="no server is configured"):
        api.client()
    assert "HANDFAST_URL" not in os.environ


@pytest.mark.usefixtures("handfast_deactivated")
async def test_the_fixture_does_it_for_a_test(api):
    async with api.client("redis://nowhere.invalid") as client, client.lock("a"):
        assert not await client.lock("a").locked()


@pytest.mark.parametrize("options", [{"renew": False, "max_hold": 0.1}, {"max_hold": 0.1}], ids=str)
async def test_the_holder_of_a_lease_that_ends_hears_of_it(api, options):
    async with api.client("null:") as client:
        lease = await client.lock("a", **options).acquire()
        told = []
        lease.add_lost_callback(lambda: told.append(1))
        event = lease.lost_event
        await eventually_async(event.is_set)
        assert told == [1]
        assert lease.lost
        assert await lease.release() is False


async def test_a_block_of_a_lease_that_ends_is_cancelled_in_asyncio():
    async with ASYNCIO.handfast("null:") as client:
        with pytest.raises(LeaseLost):
            async with client.lock("a", max_hold=0.05):
                await asyncio.Event().wait()


async def test_a_lease_that_was_released_ends_for_no_one(api, caplog):
    async with api.client("null:") as client:
        released = await client.lock("a", max_hold=0.05).acquire()
        ended = await client.lock("b", max_hold=0.1).acquire()
        assert await released.release() is True
        await eventually_async(ended.lost_event.is_set)
        assert [record.lock for record in caplog.records] == ["b"]
