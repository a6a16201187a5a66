"""The relatives of the lock, cancelled and interrupted wherever that can strike: nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

import handfast
from handfast import Lease, LimitExceeded, NotOwner, RLease
from handfast._drivers.sync import driver, scope
from handfast._drivers.sync.scope import LeaseScope, PrimitiveScope
from handfast._protocol import lease as lease_module
from handfast.testing import interrupt_at
from tests._support import cancelling
from tests._support.cancelling import Operation, Scene, try_every_point
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, without_coverage

LIMIT = 3

ROUNDS = 40
"""Cancellations at random moments, for each relative."""


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
@pytest.mark.slow
async def test_a_cancellation_at_any_suspension_leaves_nothing_behind(server, raw, kind, operation):
    async with kind(server.url, raw) as scene:
        tally = await try_every_point(scene, operation)
    assert tally.orphans == []
    assert tally.suspensions >= operation.suspensions
    assert tally.points >= 3 * tally.suspensions, "the states of the world were not reached"
    if "contended" in operation.name:
        assert tally.executed > tally.points / 3, "the server had nothing of it yet"


@pytest.mark.parametrize("kind", OPERATIONS)
async def test_cancellations_at_random_moments_leave_nothing_behind(server, raw, monkeypatch, kind):
    monkeypatch.setattr(cancelling, "OPERATIONS", OPERATIONS[kind])
    async with kind(server.url, raw) as scene:
        tally = await cancelling.try_at_random(scene, ROUNDS, seed=1)
    assert tally.orphans == []
    assert 0 < tally.finished < tally.points == ROUNDS


# --- an interrupt in the sync API

INTERRUPTED = """
import random, sys
from handfast import AcquireTimeout, Handfast
from handfast._drivers.sync.scope import PrimitiveScope
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
            block._entered.clear()
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


@pytest.mark.parametrize(
    ("kind", "method", "relative"),
    [(Lease, "_begin", "semaphore"), (Lease, "_begin", "rlock"), (RLease, "__init__", "rlock")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_interrupt_while_an_inner_block_is_entered_leaves_the_outer_one_to_be_left(
    hf, raw, monkeypatch, *, kind, method, relative
):
    real, armed = getattr(kind, method), []

    def interrupted(self, *args):
        done = real(self, *args)
        if armed:
            armed.clear()
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(kind, method, interrupted)
    thing = hf.semaphore("a", LIMIT) if relative == "semaphore" else hf.rlock("a")
    with pytest.raises(KeyboardInterrupt) as caught:
        with thing:
            armed.append(True)
            with thing:
                pytest.fail("it was entered")
    try:
        assert not thing.status().holders
        assert not thing._entered
    finally:
        thing.force_release()
    assert caught.value is not None, "and all that while its traceback is there"


FORMS = {
    "lock": lambda hf: [(hf.lock("a"), None)],
    "lock.acquire()": lambda hf: [(hf.lock("a"), {})],
    "semaphore": lambda hf: [(hf.semaphore("a", LIMIT), None)],
    "semaphore.acquire(permits=2)": lambda hf: [(hf.semaphore("a", LIMIT), {"permits": 2})],
    "semaphore, semaphore": lambda hf: 2 * [(hf.semaphore("a", LIMIT), None)],
    "read": lambda hf: [(hf.rwlock("a").read(), None)],
    "read.acquire()": lambda hf: [(hf.rwlock("a").read(), {})],
    "write": lambda hf: [(hf.rwlock("a").write(), None)],
    "write.acquire()": lambda hf: [(hf.rwlock("a").write(), {})],
    "rlock": lambda hf: [(hf.rlock("a"), None)],
    "rlock, rlock": lambda hf: 2 * [(hf.rlock("a"), None)],
    "rlock.acquire(), rlock.acquire()": lambda hf: 2 * [(hf.rlock("a"), {})],
    "rlock, rlock.acquire()": lambda hf: [(rlock := hf.rlock("a"), None), (rlock, {})],
    "lock_all": lambda hf: [(hf.lock_all(["a", "b"]), None)],
    "lock_all.acquire()": lambda hf: [(hf.lock_all(["a", "b"]), {})],
}
"""Blocks within each other: of something itself, or of a lease that is acquired with these options for it."""


def forms(*quick):
    """All of them; the others are so much like these that once in a while is enough."""
    return [form if form in quick else pytest.param(form, marks=pytest.mark.slow) for form in FORMS]


class Alarm(Exception):
    """What a signal handler may raise as well."""


class Blocks:
    """Blocks that are interrupted, and what is held after that."""

    def __init__(self, hf, form):
        self.hf = hf
        self.blocks = FORMS[form](hf)
        self.kept = []
        """The leases of a run. One that is dropped is interrupted, too, but that exception is lost."""

    def run(self, depth=0):
        """Enter all of them and leave them again."""
        primitive, options = self.blocks[depth]
        with primitive if options is None else primitive.acquire(timeout=20, **options) as lease:
            self.kept.append(lease)
            if depth + 1 < len(self.blocks):
                self.run(depth + 1)

    def interrupted(self, step, exception):
        """At a point of all that."""
        return interrupt_at(self.run, step, within=handfast, exception=exception)

    def interrupted_while_left(self, step, exception):
        """Before an instruction of leaving the innermost one; then the others are left."""
        entered = [primitive if options is None else primitive.acquire(**options) for primitive, options in self.blocks]
        self.kept += [block.__enter__() for block in entered]
        ours = [handfast._api, driver, scope, lease_module]  # not the renewer: its locks would stay locked
        leave = entered.pop().__exit__
        run = interrupt_at(lambda: leave(None, None, None), step, within=ours, points="bytecodes", exception=exception)
        while entered:
            entered.pop().__exit__(exception, run.error, None)
        return run

    def everywhere(self, interrupted, exception=KeyboardInterrupt):
        """Interrupt it at each point. The places where something is held afterwards.

        While something is held all the time, the renewer need not be woken, and each run has the same points.
        """
        with self.hf.lock("warm"):
            eventually(lambda: self.hf._driver._renewer._wakes_at < inf)
            return self._everywhere(interrupted, exception)

    def _everywhere(self, interrupted, exception):
        places, step = [], 0
        self.run()  # what is made only once is made now
        self.kept.clear()
        while (place := self.place(interrupted(step := step + 1, exception))) is not None:
            if self.is_held():
                places.append(place)
                self.forget()
            assert not any(primitive._entered for primitive, _ in self.blocks), place
            self.kept.clear()
            self.run()  # so that there is a connection again
            self.kept.clear()
        assert step > 50
        return places

    def place(self, run):
        """Where it was struck, if it was."""
        assert run.how == ("stopped" if run.struck else "finished"), run
        return run.place

    def is_held(self):
        status = self.blocks[0][0].status()
        return any(one.holders or one.waiters for one in (status.values() if isinstance(status, dict) else [status]))

    def forget(self):
        """Release everything."""
        for primitive, _ in self.blocks:
            primitive._entered.clear()
        self.kept.clear()
        gc.collect()
        self.blocks[0][0].force_release()


@pytest.fixture
def no_litter():
    """Nothing is collected in the middle of a run, since that would be struck, too."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.usefixtures("no_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # leases that an interrupt took from the caller
@pytest.mark.parametrize("exception", [KeyboardInterrupt, Alarm])
@pytest.mark.parametrize("form", forms("lock"))
def test_an_interrupt_at_any_point_of_a_block_leaves_nothing_held_but_at_the_very_beginning_of_a_method(
    hf, form, exception
):
    """These beginnings are of ``with lock``: that of ``__exit__``; of ``with lock.acquire()``: those of ``__enter__`` and ``__exit__``.

    A signal handler is run as the first thing in a function, before any of its own instructions.
    """
    blocks = Blocks(hf, form)
    unavoidable = []
    for _, options in blocks.blocks:
        unavoidable += [PrimitiveScope.__exit__] if options is None else [LeaseScope.__enter__, LeaseScope.__exit__]
    places = blocks.everywhere(blocks.interrupted, exception)
    assert sorted(places) == sorted(up_to_try(method)[0] for method in unavoidable)


@pytest.mark.usefixtures("no_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_an_interrupt_before_any_instruction_of_leaving_a_block_leaves_nothing_held_but_before_the_try(hf, form):
    """Stricter than signals are. It has a thread of its own: where Python itself cleans up, it is struck as well."""
    blocks = Blocks(hf, form)
    with ThreadPoolExecutor(1) as threads:
        places = threads.submit(blocks.everywhere, blocks.interrupted_while_left).result(50)
    assert places
    _, options = blocks.blocks[-1]
    assert set(places) <= set(up_to_try((PrimitiveScope if options is None else LeaseScope).__exit__))


def test_a_caller_that_may_not_leave_a_block_gets_that_error_and_no_other(hf, raw):
    rlock = hf.rlock("a")
    with rlock as lease, ThreadPoolExecutor(1) as threads:
        for block, holders in ((rlock, [lease.token]), (lease, [])):  # a block of the lease is known to be its own
            with pytest.raises(NotOwner) as caught:
                threads.submit(block.__exit__, None, None, None).result(10)
            assert caught.value.__context__ is None
            assert Engine(raw).holders() == holders


def up_to_try(method):
    """Where something was struck that was struck before the ``try`` of this method was entered, from its beginning."""
    lines, first = inspect.getsourcelines(method)
    code, last = method.__code__, first + [line.strip() for line in lines].index("try:")
    return [f"{code.co_filename}:{line} in {code.co_qualname}" for line in range(first, last + 1)]
