"""`lock_all` through both APIs: it acquires all names or none, and holds no name while it waits.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from handfast import AcquireTimeout, LeaseLost
from handfast_lab.children import ProcessGroup
from tests._support.apis import ASYNCIO
from tests._support.cancelling import OPERATIONS, try_at_random, try_every_point
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, kill_waiter
from tests._support.lockall_pairs import campaign, hold
from tests.gate.api import test_lock_all as gate
from tests.gate.api.test_lock_all import CALLS, SceneOfAll, holders, nothing_left, queues

proxy = gate.proxy
far = gate.far


# --- lost leases


@pytest.mark.parametrize("lost", ["a", "b"])
async def test_the_next_renewal_detects_a_lost_key(here, raw, lost):
    lease = await here.lock_all(["a", "b"], ttl=0.6).acquire()
    told = []
    lease.add_lost_callback(lambda: told.append(True))
    raw.delete(Engine(raw, lost).key("state"))
    await eventually_async(lambda: told)
    assert lease.lost
    assert await lease.release() is False
    assert nothing_left(raw)


async def test_a_block_that_loses_one_key_releases_the_others(api, here, raw):
    with pytest.raises(LeaseLost):
        async with here.lock_all(["a", "b"], ttl=0.3) as lease:
            raw.delete(Engine(raw, "a").key("state"))
            await eventually_async(lambda: lease.lost)
            await asyncio.sleep(60 if api is ASYNCIO else 0)  # the asyncio API cancels the block
    await eventually_async(lambda: nothing_left(raw))


async def test_extension_and_renewal_cover_all_names(here, raw):
    lock = here.lock_all(["a", "b"], ttl=0.6)
    lease = await lock.acquire()
    await asyncio.sleep(0.8)
    assert not lease.lost
    assert holders(raw) == [[lease.token]] * 2
    await lease.extend(100)
    for status in (await lock.status()).values():
        (holder,) = status.holders
        assert 90 < lease.remaining() <= holder.remaining <= 100
    await lease.extend(1)
    assert lease.remaining() > 90, "extend never shortens the ttl"
    raw.delete(Engine(raw, "b").key("state"))
    with pytest.raises(LeaseLost):
        await lease.extend(100)
    assert await lease.release() is False
    assert nothing_left(raw)


async def test_without_renewal_all_names_expire_together(here, there, raw):
    lease = await here.lock_all(["a", "b"], ttl=0.05, renew=False).acquire()
    async with there.lock_all(["b", "a"]).acquire(timeout=10) as second:
        assert lease.lost
        assert second.fence > lease.fence
        assert await lease.release() is False
        assert holders(raw) == [[second.token]] * 2
    assert nothing_left(raw)


async def test_a_waiter_follows_a_vanished_holder_after_its_ttl(api, server, raw, there):
    async with api.client(server.url) as gone:
        lost = await gone.lock_all(["a", "b"], ttl=0.3).acquire()
    async with there.lock_all(["b", "c"]).acquire(timeout=10) as lease:
        assert lease.fence > lost.fence


# --- lost requests and replies


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_try_or_extension_is_retried(far, proxy, raw, what):
    lock = far.lock_all(["a", "b"], ttl=5.0)
    getattr(proxy, what)(CALLS["acquire"])
    lease = await lock.try_acquire()
    assert holders(raw) == [[lease.token]] * 2
    getattr(proxy, what)(CALLS["acquire"])
    assert await lock.try_acquire() is None
    assert queues(raw) == [[], []]
    fault = getattr(proxy, what)(CALLS["renew"])
    await lease.extend(50)
    assert fault.spent
    for status in (await lock.status()).values():
        assert 40 < lease.remaining() <= status.holders[0].remaining <= 50
    assert await lease.release() is True


# --- kills, freezes, cancellations and interrupts


def test_a_killed_waiter_is_skipped_in_all_its_queues(hf, other, server, raw):
    lease = hf.lock("b").acquire()
    with ProcessGroup() as group, ThreadPoolExecutor(2) as threads:
        dead = group.start(hold, server.url, "a", "b")
        eventually(lambda: all(queues(raw)))
        bundle = threads.submit(lambda: other.lock_all(["b", "a"]).acquire(timeout=20))
        eventually(lambda: all(len(line) == 2 for line in queues(raw)))
        kill_waiter(dead, raw)
        lease.release()
        assert bundle.result(20).release() is True
    assert nothing_left(raw)


def test_a_frozen_first_waiter_costs_one_claim_window_and_requeues_when_it_thaws(hf, other, server, raw):
    lease = hf.lock("b").acquire()
    with ProcessGroup() as group, ThreadPoolExecutor(1) as threads:
        frozen = group.start(hold, server.url, "a", "b")
        eventually(lambda: all(queues(raw)))
        _, (slow,) = queues(raw)
        waiter = threads.submit(lambda: other.lock("b").acquire(timeout=20))
        eventually(lambda: len(queues(raw)[1]) == 2)
        frozen.freeze()
        lease.release()
        assert queues(raw)[1][0] == slow, "it keeps its position for a claim window"
        second = waiter.result(20)
        assert queues(raw) == [[slow], []]
        bundle = threads.submit(lambda: other.lock_all(["b", "a"]).acquire(timeout=20))
        eventually(lambda: len(queues(raw)[0]) == 2)
        frozen.thaw()
        eventually(lambda: queues(raw)[1][:1] == [slow])  # before the other one, in both queues: it has its ticket
        assert queues(raw)[0][:1] == [slow]
        second.release()
        eventually(lambda: holders(raw) == [[slow], [slow]])
        frozen.send("done")
        frozen.join(20)
        bundle.result(20).release()
    assert nothing_left(raw)


def test_processes_that_acquire_random_pairs_never_overlap_or_deadlock(server, raw):
    found = campaign(server.url, 2, 50, 4)
    assert [(one["rounds"], one["timeouts"], one["overlaps"]) for one in found] == [(50, 0, 0)] * 2
    assert nothing_left(raw, [f"n{number}" for number in range(4)])


INTERRUPTED = """
import random, sys
from handfast import AcquireTimeout, Handfast
from handfast.testing import calm, interrupt_after

hf, other = Handfast(sys.argv[1]), Handfast(sys.argv[1])
random.seed(1)
lock = hf.lock_all(["a", "b"])

def block():
    with lock:
        calm()  # a with statement that is being left cannot be guarded in Python

def wait():
    lock.acquire(timeout=0.0015)

block()
struck = 0
for round in range(int(sys.argv[2])):
    held = other.lock("ab"[round % 4 // 2]).acquire() if round % 2 else None
    run = interrupt_after(wait if held else block, random.uniform(1e-5, 6e-4))
    struck += run.how == "stopped"
    if run.how == "failed" and not isinstance(run.error, AcquireTimeout):
        raise run.error
    if held:
        held.release()
    status = lock.status()
    if any(one.waiters or one.holders for one in status.values()):
        print("left behind in round", round, status, run)
        sys.exit(1)
print("struck", struck)
"""


def test_an_interrupt_at_any_point_of_acquire_leaves_no_state(server, raw):
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", INTERRUPTED, server.url, "150"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 15


CANCELLED = [
    replace(one, meanwhile=one.meanwhile and getattr(SceneOfAll, one.meanwhile.__name__))
    for one in OPERATIONS
    if one.name in {"acquire, free", "acquire, held", "acquire, held, others behind", "acquire, timing out"}
    or one.name.startswith(("try_acquire", "async with lock, held", "release", "extend"))
]


@pytest.mark.parametrize("operation", CANCELLED, ids=lambda operation: operation.name)
async def test_a_cancellation_at_any_suspension_leaves_no_state(scene, operation):
    tally = await try_every_point(scene, operation)
    assert tally.orphans == []
    assert tally.suspensions >= operation.suspensions
    assert tally.points >= 3 * tally.suspensions, "some states were not reached"


@pytest.fixture
async def scene(server, raw):
    async with SceneOfAll(server.url, raw) as scene:
        lease = await scene.lock.acquire()  # to load every script on the server
        await lease.extend(60)
        with pytest.raises(AcquireTimeout):
            await scene.lock.acquire(timeout=0.001)
        await lease.release()
        yield scene


async def test_cancellations_at_random_times_leave_no_state(scene):
    tally = await try_at_random(scene, 100, 1)
    assert tally.orphans == []
