"""Replies lost, requests lost, connections cut: in both APIs each call happens once, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest
import redis

from handfast import AcquireTimeout
from handfast.testing import FaultProxy, script
from tests._support.engine import Engine
from tests._support.helpers import eventually_async

ROUNDS = 20

CALLS = {verb: script(f"permit_{verb}") for verb in ("acquire", "release", "renew", "cancel", "revoke", "hold")}

lost = pytest.mark.parametrize("what", ["lose_reply", "lose_request"])


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, proxy, here):
    """A client behind the proxy that was connected once; the server knows all scripts already."""
    lease = await here.lock("warm").acquire()
    await lease.extend(1)
    with pytest.raises(AcquireTimeout):
        await here.lock("warm").acquire(timeout=0.001)
    await lease.release()
    async with api.client(proxy.url) as client:
        async with client.lock("warm"):
            pass
        yield client


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


@lost
@pytest.mark.parametrize("verb", ["acquire", "release"])
async def test_a_lost_acquire_or_release_is_sent_again_and_happens_once(far, proxy, raw, verb, what):
    fences = []
    for _ in range(ROUNDS):
        fault = getattr(proxy, what)(CALLS[verb])
        lease = await far.lock("a").acquire(timeout=5)
        assert Engine(raw).holders() == [lease.token]
        assert await lease.release() is True
        assert fault.spent
        assert nothing_left(raw)
        fences.append(lease.fence)
    assert fences == sorted(set(fences))


@lost
async def test_an_operator_whose_reply_is_lost_learns_what_was_done(far, proxy, raw, here, what):
    lease = await here.lock("a").acquire()
    fault = getattr(proxy, what)(CALLS["revoke"])
    assert await far.lock("a").force_release(reason="hangs", up_to_fence=lease.fence) == 1
    assert fault.spent
    fault = getattr(proxy, what)(CALLS["revoke"])
    assert await far.lock("a").force_release(reason="another reason", up_to_fence=lease.fence) == 0
    assert fault.spent
    await far.hold("a", 60, reason="migration")
    fault = getattr(proxy, what)(CALLS["hold"])
    assert await far.unhold("a", reason="done") is True
    assert fault.spent
    assert (await far.lock("a").status()).hold is None
    assert await lease.release() is False


@lost
async def test_an_operator_who_takes_one_lease_after_the_other_learns_which_were_taken(far, proxy, raw, here, what):
    """All for one reason: the note of the lease before must not count for one that its holder has released."""
    semaphore = far.semaphore("a", 3)
    leases = [await here.semaphore("a", 3).acquire() for _ in range(3)]
    for lease in leases[:2]:
        fault = getattr(proxy, what)(CALLS["revoke"])
        assert await semaphore.force_release(reason="hangs", fence=lease.fence) == 1
        assert fault.spent
    await leases[2].release()
    fault = getattr(proxy, what)(CALLS["revoke"])
    assert await semaphore.force_release(reason="hangs", fence=leases[2].fence) == 0
    assert fault.spent
    assert [await lease.release() for lease in leases[:2]] == [False, False]


@lost
async def test_a_lost_try_is_sent_again(far, proxy, raw, what):
    first = getattr(proxy, what)(CALLS["acquire"])
    lease = await far.lock("a").try_acquire()
    assert Engine(raw).holders() == [lease.token]
    second = getattr(proxy, what)(CALLS["acquire"])
    assert await far.lock("a").try_acquire() is None
    assert first.spent
    assert second.spent
    assert await lease.release() is True


@lost
async def test_a_lost_cancel_leaves_no_queue_entry(far, proxy, raw, here, what):
    async with here.lock("a") as lease:
        for _ in range(5):
            fault = getattr(proxy, what)(CALLS["cancel"])
            with pytest.raises(AcquireTimeout):
                await far.lock("a").acquire(timeout=0.01)
            assert fault.spent
            assert Engine(raw).queue() == []
        assert Engine(raw).holders() == [lease.token]


async def test_a_waiter_whose_connection_is_cut_keeps_its_queue_entry(far, proxy, raw, here):
    lease = await here.lock("a").acquire()
    waiter = asyncio.ensure_future(far.lock("a").acquire(timeout=20))
    (token,) = await eventually_async(lambda: Engine(raw).queue())
    for _ in range(5):
        seen = len(proxy.commands)
        proxy.cut()
        await eventually_async(lambda seen=seen: any(map(CALLS["acquire"], proxy.commands[seen:])))
    assert Engine(raw).queue() == [token]
    await lease.release()
    assert await (await waiter).release() is True


async def test_a_grant_whose_message_is_lost_is_found_by_asking_again(far, proxy, raw, here):
    lease = await here.lock("a").acquire()
    waiter = asyncio.ensure_future(far.lock("a").acquire(timeout=20))
    (token,) = await eventually_async(lambda: Engine(raw).queue())
    with proxy.black_hole("to client"):
        Engine(raw).run("release", token=lease.token)
        assert Engine(raw).holders() == [token]
        assert not waiter.done()
        proxy.cut()
    granted = await waiter
    assert granted.token == token
    assert await granted.release() is True
    assert await lease.release() is False, "another was granted it since, and no copy of this release was sent"


async def test_a_server_that_never_was_there_is_reported_at_once(api, tmp_path):
    async with api.client(f"unix://{tmp_path}/missing") as hf:
        lock = hf.lock("a")
        for ask in (lock.acquire, lock.try_acquire, lock.status, lock.force_release, lambda: lock.acquire(timeout=20)):
            with pytest.raises(redis.ConnectionError):
                await ask()
        for outcome in await asyncio.gather(*(lock.acquire() for _ in range(20)), return_exceptions=True):
            assert isinstance(outcome, redis.ConnectionError)
