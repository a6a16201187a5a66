"""The semaphore through both APIs, and with processes that are killed or whose clocks are wrong.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio

import pytest

from handfast import (
    AcquireTimeout,
)
from tests._support.actor import Actors, family_user
from tests._support.helpers import eventually, kill_waiter
from tests.gate.api.test_semaphore import engine_of, nothing_left

HOUR = 3600

DAY = 24 * HOUR


@pytest.fixture
def crew(server, raw):
    with Actors(family_user, server.url) as actors:
        yield lambda *ahead: actors.start(*((seconds,) for seconds in ahead))


# --- renewal and loss


async def test_permits_are_renewed_while_held_and_expire_with_renewal_off(here, there):
    renewed = await here.semaphore("a", 3, ttl=0.3).acquire(permits=2)
    once = await here.semaphore("a", 3, ttl=0.3, renew=False).acquire()
    await asyncio.sleep(0.8)
    renewed.check()
    assert once.lost
    status = await there.semaphore("a", 3).status()
    assert [(holder.fence, holder.weight) for holder in status.holders] == [(renewed.fence, 2)]
    assert status.free == 1
    assert await there.semaphore("a", 3).try_acquire(permits=2) is None
    async with await there.semaphore("a", 3).try_acquire():
        assert await there.semaphore("a", 3).locked()
    assert await renewed.release() is True
    assert await once.release() is False


# --- resize


async def test_a_resize_is_remembered_for_30_days_after_the_last_use(here, raw):
    semaphore = here.semaphore("a", 2, ttl=1)
    await semaphore.resize(3)
    state = engine_of(raw).key("state")
    assert 29 * DAY < raw.ttl(state) <= 31 * DAY
    await (await semaphore.acquire()).release()
    assert 29 * DAY < raw.ttl(state) <= 31 * DAY
    await semaphore.resize(None)
    assert (await semaphore.status()).limit == 2


# --- processes


def test_the_leases_of_a_killed_holder_expire_one_by_one_after_their_ttl(hf, crew):
    dead, alive = crew(0, 0)
    semaphore = hf.semaphore("a", 3)
    dead.ask("acquire", kind="semaphore", limit=3, ttl=0.3, key="short")
    dead.ask("acquire", kind="semaphore", limit=3, ttl=0.7, permits=2, key="long")
    for key, permits in (("one", 1), ("two", 2)):
        alive.tell("acquire", kind="semaphore", limit=3, permits=permits, key=key)
    eventually(lambda: semaphore.status().waiting == 1)
    dead.kill()
    first = alive.answer()
    eventually(lambda: semaphore.status().waiting == 1)
    status = semaphore.status()
    assert sorted(holder.weight for holder in status.holders) == [1, 2], (
        "the other lease of the killed process still counts"
    )
    second = alive.answer()
    assert second > first
    assert semaphore.status().free == 0
    assert alive.ask("release", key="one") is True
    assert semaphore.status().free == 1
    assert alive.ask("release", key="two") is True


def test_a_killed_first_waiter_that_would_not_fit_blocks_no_request(hf, crew, raw):
    dead, alive = crew(0, 0)
    semaphore = hf.semaphore("a", 3)
    held = semaphore.acquire(permits=2)
    dead.tell("acquire", kind="semaphore", limit=3, permits=3)
    eventually(lambda: semaphore.status().waiting == 1)
    kill_waiter(dead, raw)
    alive.ask("acquire", kind="semaphore", limit=3)
    assert semaphore.status().waiting == 0
    assert held.release() is True
    assert alive.ask("release") is True
    assert nothing_left(raw)


def test_clients_with_clocks_an_hour_apart_work(hf, crew, raw):
    fast, slow, right = crew(HOUR, -HOUR, 0)
    assert fast.ask("time") - slow.ask("time") > 2 * HOUR - 60
    semaphore = hf.semaphore("a", 2)
    fences = [fast.ask("acquire", kind="semaphore", limit=2, permits=2, ttl=0.4)]
    for position, actor in enumerate((slow, right), 1):
        actor.tell("acquire", kind="semaphore", limit=2, permits=2, ttl=0.4)
        eventually(lambda position=position: semaphore.status().waiting == position)
    with pytest.raises(AcquireTimeout):
        semaphore.acquire(timeout=0.7)
    (holder,) = semaphore.status().holders
    assert holder.fence == fences[0], "the lease is renewed"
    assert 0 < holder.remaining <= 0.4
    assert 0 < fast.ask("remaining") <= 0.4
    assert fast.ask("release") is True
    fences.append(slow.answer())
    assert 0 < slow.ask("remaining") <= 0.4
    slow.kill()
    fences.append(right.answer())
    assert right.ask("release") is True
    assert fences == sorted(set(fences))
    assert nothing_left(raw)
