"""The relatives of the lock, cancelled and interrupted wherever that can strike: nothing is left behind.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import LimitExceeded
from handfast._api.sync.scope import LeaseScope, PrimitiveScope
from tests._support import cancelling
from tests._support.cancelling import Operation, Scene, try_every_point
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, without_coverage
from tests.gate.faults import test_family_cancel as gate
from tests.gate.faults.test_family_cancel import FORMS, LIMIT, Blocks, up_to_try

no_litter = gate.no_litter


class FamilyScene(Scene):
    """A scene about a relative of the lock. The other one holds, and waits for, all of it."""

    kind = ""

    def __init__(self, url, raw):
        super().__init__(url, raw)
        self.engine = Engine(raw, kind=self.kind, limit=LIMIT)
        self.lock = self.way(self.mine)

    def way(self, client):
        """What is acquired, and looked at for blocks that are left."""
        raise NotImplementedError

    def everything(self, client):
        """A try to have all of it."""
        raise NotImplementedError

    async def __aenter__(self):
        await super().__aenter__()
        semaphore = self.other.semaphore("warm", LIMIT)  # so that the server knows these scripts too
        await semaphore.resize(2)
        await semaphore.resize(None)
        async with self.other.rwlock("warm").write() as lease:
            await lease.downgrade()
        return self

    async def held_by_other(self):
        self.held = await self.everything(self.other)

    async def other_queues_and_releases(self):
        """The waiter gets in, and with or after it one that came later."""
        if self.held is not None and self.engine.queue():
            self.waiter = asyncio.create_task(self.way(self.other).acquire())
            await eventually_async(lambda: len(self.engine.queue()) == 2)
            await self.held.release()

    async def complaints(self):
        found = await super().complaints()
        for client in (self.other, self.mine):
            lease = await self.everything(client)
            if lease is None or not await lease.release():
                found.append("it is not free")
        return found


class SemaphoreScene(FamilyScene):
    """Three permits, of which two are wanted."""

    kind = "semaphore"

    def way(self, client):
        return client.semaphore("a", LIMIT)

    def everything(self, client):
        return self.way(client).try_acquire(permits=LIMIT)

    async def one_held_by_other(self):
        """One is out, so two fit."""
        self.held = await self.way(self.other).acquire()

    async def other_resizes(self):
        """A waiter for two permits gets an error when the limit is lowered to one."""
        if self.held is not None and self.engine.queue():
            await self.way(self.other).resize(1)

    async def resized_and_wanted(self):
        """There is one permit, it is held, and a waiter wants two."""
        await self.way(self.other).resize(2)
        self.held = await self.way(self.other).acquire(permits=2)
        self.waiter = asyncio.create_task(self.way(self.other).acquire())
        await eventually_async(self.engine.queue)

    async def resized(self):
        await self.way(self.other).resize(1)

    async def clear(self, result):
        if self.held is not None and self.waiter is not None and not self.held._state.is_released:
            await self.held.release()
        await super().clear(result)
        await self.way(self.other).resize(None)


class ReadScene(FamilyScene):
    """A read-write lock that is wanted to read."""

    kind = "rwlock"

    def way(self, client):
        return client.rwlock("a").read()

    def everything(self, client):
        return client.rwlock("a").write().try_acquire()


class WriteScene(ReadScene):
    """A read-write lock that is wanted to write."""

    def way(self, client):
        return client.rwlock("a").write()

    async def read_by_other(self):
        self.held = await self.other.rwlock("a").read().acquire()

    async def written_by_me(self):
        self.lease = await self.lock.acquire()

    async def written_by_me_and_wanted(self):
        await self.written_by_me()
        self.waiter = asyncio.create_task(self.other.rwlock("a").read().acquire())
        await eventually_async(self.engine.queue)

    async def clear(self, result):
        if self.lease is not None and not self.lease._state.is_released:
            await self.lease.downgrade()  # whatever became of the first one, it may be done again
            assert not self.lease.writes
            assert {holder.weight for holder in (await self.lock.status()).holders} == {1}
            self.lease.check()
        await super().clear(result)


class RLockScene(FamilyScene):
    """A reentrant lock. Only the task that acquires can release, so an operation does both."""

    kind = "lock"

    def way(self, client):
        return client.rlock("a")

    def everything(self, client):
        return client.lock("a").try_acquire()


async def _acquire_and_release(scene):
    outer = await scene.lock.acquire()
    inner = await scene.lock.acquire()
    await outer.release()
    await inner.release()


async def _nested_blocks(scene):
    async with scene.lock:
        async with scene.lock.acquire(timeout=20):
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def _try_and_release(scene):
    if (lease := await scene.lock.try_acquire()) is not None:
        await lease.release()


async def _block(scene):
    async with scene.lock as lease:
        return lease.fence


async def _block_of_two(scene):
    async with scene.lock.acquire(permits=2) as lease:
        return lease.fence


async def _block_downgraded(scene):
    async with scene.lock as lease:
        await lease.downgrade()
        await asyncio.sleep(0)


async def _too_much(scene):
    with pytest.raises(LimitExceeded):
        await scene.lock.acquire(permits=2)


# --- an interrupt in the sync API


OPERATIONS = {
    SemaphoreScene: (
        Operation("acquire(permits=2), free", lambda scene: scene.lock.acquire(permits=2), 1),
        Operation(
            "acquire(permits=2), one is out",
            lambda scene: scene.lock.acquire(permits=2),
            1,
            SemaphoreScene.one_held_by_other,
        ),
        Operation(
            "acquire(permits=2), contended",
            lambda scene: scene.lock.acquire(permits=2),
            2,
            SemaphoreScene.held_by_other,
            SemaphoreScene.other_queues_and_releases,
        ),
        Operation("async with acquire(permits=2)", _block_of_two, 2),
        Operation("try_acquire(permits=2)", lambda scene: scene.lock.try_acquire(permits=2), 1),
        Operation("acquire(permits=2), and there is one", _too_much, 1, SemaphoreScene.resized, at_random=False),
        Operation(
            "acquire(permits=2), and soon there is one",
            _too_much,
            3,
            SemaphoreScene.held_by_other,
            SemaphoreScene.other_resizes,
            at_random=False,
        ),
        Operation("resize up", lambda scene: scene.lock.resize(LIMIT), 1, SemaphoreScene.resized_and_wanted),
        Operation("resize down", lambda scene: scene.lock.resize(1), 1, SemaphoreScene.one_held_by_other),
        Operation("resize(None)", lambda scene: scene.lock.resize(None), 1, SemaphoreScene.resized_and_wanted),
    ),
    ReadScene: (
        Operation("read, free", lambda scene: scene.lock.acquire(), 1),
        Operation(
            "read, contended",
            lambda scene: scene.lock.acquire(),
            2,
            ReadScene.held_by_other,
            ReadScene.other_queues_and_releases,
        ),
        Operation("async with read", _block, 2),
    ),
    WriteScene: (
        Operation("write, free", lambda scene: scene.lock.acquire(), 1),
        Operation(
            "write, contended",
            lambda scene: scene.lock.acquire(),
            2,
            WriteScene.read_by_other,
            WriteScene.other_queues_and_releases,
        ),
        Operation("downgrade", lambda scene: scene.lease.downgrade(), 1, WriteScene.written_by_me),
        Operation(
            "downgrade, contended", lambda scene: scene.lease.downgrade(), 1, WriteScene.written_by_me_and_wanted
        ),
        Operation("async with write, downgrade", _block_downgraded, 4),
    ),
    RLockScene: (
        Operation("acquire, release, free", _acquire_and_release, 2),
        Operation(
            "acquire, release, contended",
            _acquire_and_release,
            3,
            RLockScene.held_by_other,
            RLockScene.other_queues_and_releases,
        ),
        Operation("nested blocks, free", _nested_blocks, 4),
        Operation("try_acquire, release", _try_and_release, 2),
    ),
}


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations],
    ids=lambda value: value.name if isinstance(value, Operation) else value.__name__,
)
async def test_a_cancellation_at_any_suspension_leaves_nothing_behind(server, raw, kind, operation):
    async with kind(server.url, raw) as scene:
        tally = await try_every_point(scene, operation)
    assert tally.orphans == []
    assert tally.suspensions >= operation.suspensions
    assert tally.points >= 3 * tally.suspensions, "the states of the world were not reached"
    if "contended" in operation.name:
        assert tally.executed > tally.points / 3, "the server had nothing of it yet"


# --- an interrupt in the sync API


@pytest.mark.usefixtures("no_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_before_any_instruction_of_leaving_a_block_leaves_nothing_held_but_before_the_try(hf, form):
    """Stricter than signals are. It has a thread of its own: where Python itself cleans up, it is struck as well."""
    blocks = Blocks(hf, form)
    with ThreadPoolExecutor(1) as threads:
        places = threads.submit(blocks.everywhere, blocks.interrupted_while_left).result(50)
    assert places
    _, options = blocks.blocks[-1]
    assert set(places) <= set(up_to_try((PrimitiveScope if options is None else LeaseScope).__exit__))


ROUNDS = 40
"""Cancellations at random moments, for each relative."""


@pytest.mark.parametrize("kind", OPERATIONS)
async def test_cancellations_at_random_moments_leave_nothing_behind(server, raw, monkeypatch, kind):
    monkeypatch.setattr(cancelling, "OPERATIONS", OPERATIONS[kind])
    async with kind(server.url, raw) as scene:
        tally = await cancelling.try_at_random(scene, ROUNDS, seed=1)
    assert tally.orphans == []
    assert 0 < tally.finished < tally.points == ROUNDS


INTERRUPTED = """
import random, sys
from handfast import AcquireTimeout, Handfast
from handfast._api.sync.scope import PrimitiveScope
from handfast.testing import interrupt_after

def hold(block):
    with block:
        pass

beginning = PrimitiveScope.__exit__.__code__  # which cannot be guarded in Python
unavoidable = f"{beginning.co_filename}:{beginning.co_firstlineno} in {beginning.co_qualname}"

random.seed(1)
hf, other = Handfast(sys.argv[1]), Handfast(sys.argv[1])
semaphore, rlock, rwlock = hf.semaphore("a", 3), hf.rlock("a"), hf.rwlock("a")
free = {
    "semaphore": lambda: hold(semaphore),
    "read": lambda: hold(rwlock.read()),
    "write": lambda: hold(rwlock.write()),
    "rlock": lambda: hold(rlock),
}
held = {
    "semaphore": (other.semaphore("a", 3).acquire, lambda: semaphore.acquire(permits=3, timeout=0.0015)),
    "read": (other.rwlock("a").write().acquire, lambda: rwlock.read().acquire(timeout=0.0015)),
    "write": (other.rwlock("a").read().acquire, lambda: rwlock.write().acquire(timeout=0.0015)),
    "rlock": (other.lock("a").acquire, lambda: rlock.acquire(timeout=0.0015)),
}
looks = {"semaphore": other.semaphore("a", 3), "read": other.rwlock("a"), "write": other.rwlock("a"), "rlock": other.lock("a")}
with semaphore, rwlock.write(), rlock:  # what is made only once is made now
    struck = 0
for round in range(int(sys.argv[2])):
    kind = random.choice(list(free))
    begin, act = held[kind] if round % 2 else (None, free[kind])
    lease = begin and begin()
    run = interrupt_after(act, random.uniform(1e-5, 6e-4))
    struck += run.how == "stopped"
    if run.how == "failed" and not isinstance(run.error, AcquireTimeout):
        raise run.error
    waiters = looks[kind].status().waiters  # a release would drop a waiter without a subscriber
    if lease:
        lease.release()
    status = looks[kind].status()
    if status.holders and run.place == unavoidable:
        run = None  # with the lease that it has
        looks[kind].force_release()
        for block in (semaphore, rlock, rwlock.read(), rwlock.write()):
            block._blocks._entered.clear()
    elif waiters or status.waiters or status.holders:
        print("left behind in round", round, kind, status, run)
        sys.exit(1)
with rlock as lease:
    lease.check()
print("struck", struck)
"""


def test_an_interrupt_anywhere_in_acquire_or_a_block_leaves_nothing_behind(server, raw):
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", INTERRUPTED, server.url, "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=without_coverage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50
