"""`lock_all` over several slots of a cluster: group by group in one order, all of them or none, lost and released together."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis.crc import key_slot

import handfast
from handfast import (
    AcquireCancelled,
    AcquireTimeout,
    AsyncHandfast,
    ClientClosed,
    Handfast,
    LeaseLost,
    NotHeld,
    QueueFull,
    ServerRefused,
    WouldDeadlock,
)
from handfast.testing import cancel_everywhere, interrupt_everywhere
from tests._support.apis import ASYNCIO, until_queued
from tests._support.cluster import NODES, Cluster, name_at, state_of
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, settled

pytestmark = pytest.mark.timeout(120)

FIRST, SECOND, THIRD = NAMES = [name_at(number) for number in range(NODES)]
"""Three names, each at another primary, in the order of their slots."""

OURS = Path(handfast.__file__).parent
NEVER = 60.0
"""A ttl in seconds that no test lasts."""


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    running.flush()
    yield running
    left = {name: found for name, found in zip(NAMES, holders(running), strict=True) if found}
    assert not left, f"it was left held: {left}"
    assert not any(queues(running))


@pytest.fixture
async def here(api, cluster):
    async with api.client(cluster.url) as client:
        yield client


@pytest.fixture
async def there(api, cluster):
    async with api.client(cluster.url) as client:
        yield client


def engine(cluster, name):
    return Engine(cluster.node_of(state_of(name)), name)


def holders(cluster):
    """Return, for each name, the tokens that hold it."""
    return [engine(cluster, name).holders() for name in NAMES]


def queues(cluster):
    return [engine(cluster, name).queue() for name in NAMES]


def is_free(cluster):
    return not any(holders(cluster) + queues(cluster))


async def take(lock):
    async with lock.acquire(timeout=30) as lease:
        return lease.fences


# --- holding


async def test_all_names_are_held_each_with_a_fence_and_a_token_of_its_slot(here, there, cluster):
    fences = [(await take(there.lock_all([name])))[name] for name in NAMES]
    lock = here.lock_all([THIRD, FIRST, SECOND])
    lease = await lock.acquire()
    assert lease.name == f"{THIRD}, {FIRST}, {SECOND}"
    assert holders(cluster) == [[token] for token in lease.token.split(",")]
    assert list(lease.fences) == [THIRD, FIRST, SECOND]
    assert all(lease.fences[name] > fence for name, fence in zip(NAMES, fences, strict=True))
    assert lease.fence == min(lease.fences.values())
    assert await lock.locked()
    status = await lock.status()
    assert {name: one.fence for name, one in status.items()} == lease.fences
    assert all(one.holders[0].lock_all for one in status.values())
    for name in NAMES:
        assert await there.lock(name).try_acquire() is None
    assert await there.lock_all([SECOND, "other"]).try_acquire() is None
    lease.check()
    assert lease.remaining() > 0
    assert lease.held_for >= 0
    assert await lease.release() is True
    assert await lease.release() is False
    assert not lease.lost
    with pytest.raises(NotHeld):
        lease.check()
    assert is_free(cluster)


async def test_names_of_one_slot_are_taken_in_one_call(here, cluster):
    name = next(word for word in (f"m{one}" for one in range(10**6)) if same_slot(word, FIRST))
    async with here.lock_all([SECOND]), here.lock_all([FIRST]):
        pass  # so that the scripts are loaded
    cluster.forget_calls()
    async with here.lock_all([name, SECOND, FIRST]) as lease:
        assert lease.fences[name] == lease.fences[FIRST]
    calls = cluster.calls()
    assert [one.get("evalsha", 0) for one in calls] == [2, 2, 0]


def same_slot(one, other):
    return key_slot(f"hf:lock:{one}".encode()) == key_slot(f"hf:lock:{other}".encode())


async def test_blocks_and_decorated_functions_hold_all_names(api, here, cluster):
    lock = here.lock_all(NAMES)
    for block in (lock, lock.acquire(timeout=5)):
        async with block as lease:
            assert holders(cluster) == [[token] for token in lease.token.split(",")]
        assert is_free(cluster)
    with pytest.raises(KeyError, match="mine"):
        async with lock:
            raise KeyError("mine")
    assert is_free(cluster)
    found = []
    job = here.lock_all(["{name}", SECOND])(api.function(lambda name: found.append((name, holders(cluster)))))
    await job(THIRD)
    await job(FIRST)
    assert [[bool(one) for one in held] for _, held in found] == [[False, True, True], [True, True, False]]


async def test_all_groups_are_renewed_and_extended(here, cluster):
    lease = await here.lock_all(NAMES, ttl=0.6).acquire()
    await asyncio.sleep(1.5)
    assert not lease.lost
    assert all(holders(cluster))
    await lease.extend(100)
    for status in (await here.lock_all(NAMES).status()).values():
        assert 90 < lease.remaining() <= status.holders[0].remaining <= 100
    assert await lease.release()


async def test_without_renewal_all_names_run_out(here, there):
    lease = await here.lock_all(NAMES, ttl=0.2, renew=False).acquire()
    assert set(await take(there.lock_all(NAMES))) == set(NAMES)
    assert lease.lost
    assert not await lease.release()


async def test_a_lease_that_is_dropped_is_renewed_no_more(here, there):
    lease = await here.lock_all(NAMES, ttl=0.6).acquire()
    with pytest.warns(ResourceWarning, match="dropped without a release"):
        del lease
    assert await take(there.lock_all(NAMES))


async def test_a_client_that_closes_releases_all_groups(api, cluster):
    client = api.client(cluster.url)
    lease = await client.lock_all(NAMES, ttl=NEVER).acquire()
    await client.close(release=True)
    assert lease.lost
    await eventually_async(lambda: is_free(cluster))


# --- waiting


async def test_earlier_groups_are_held_and_renewed_while_a_later_one_is_waited_for(here, there, cluster):
    async with asyncio.TaskGroup() as tasks:
        lease = await there.lock(SECOND).acquire()
        waiter = tasks.create_task(take(here.lock_all([THIRD, SECOND, FIRST], ttl=0.6)))
        await until_queued(there.lock(SECOND))
        (held,) = holders(cluster)[0]
        await asyncio.sleep(1.5)
        assert holders(cluster) == [[held], [lease.token], []]
        assert await lease.release()
    assert waiter.result()[SECOND] > lease.fence


async def test_random_sets_of_names_never_overlap_or_deadlock(api, cluster):
    names, inside, done = [f"account:{number}" for number in range(10)], {}, []
    assert len({key_slot(f"hf:lock:{name}".encode()) for name in names}) == 10
    clients = [api.client(cluster.url) for _ in range(3)]
    fences = {name: [0] for name in names}

    async def work(client, chance):
        for _ in range(15):
            chosen = chance.sample(names, chance.choice((1, 2, 3)))
            lock = client.lock_all(chosen) if len(chosen) > 1 else client.lock(*chosen)
            async with lock.acquire(timeout=60) as lease:
                for name, fence in lease.fences.items() if len(chosen) > 1 else [(lease.name, lease.fence)]:
                    assert inside.setdefault(name, lease) is lease
                    assert fence > fences[name][-1]
                    fences[name].append(fence)
                await asyncio.sleep(0.001)
                for name in chosen:
                    del inside[name]
            done.append(chosen)

    async with asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(work(clients[number % 3], random.Random(number)))
    assert len(done) == 12 * 15
    for client in clients:
        await client.close()
    assert not any(engine(cluster, name).holders() + engine(cluster, name).queue() for name in names)


def test_fewer_sessions_than_threads_cause_no_deadlock(cluster):
    with Handfast(cluster.url, max_sessions=2) as hf, ThreadPoolExecutor(6) as threads:

        def work(names):
            for _ in range(6):
                with hf.lock_all(names).acquire(timeout=60):
                    pass
            return True

        pairs = [[FIRST, SECOND], [SECOND, THIRD], [THIRD, FIRST]] * 2
        assert all(done.result(100) for done in [threads.submit(work, names) for names in pairs])


# --- all or none


async def test_a_try_takes_all_or_leaves_nothing(here, there, cluster):
    for name in NAMES:
        async with there.lock(name) as lease:
            assert await here.lock_all(NAMES).try_acquire() is None
            assert holders(cluster) == [[lease.token] if name == one else [] for one in NAMES]
    lease = await here.lock_all(NAMES).try_acquire(timeout=1)
    assert all(holders(cluster))
    assert await lease.release()


async def test_a_timeout_counts_for_all_groups_and_names_the_one_that_is_taken(here, there, cluster):
    async with there.lock(FIRST) as first, there.lock(THIRD):
        waiting = asyncio.create_task(fails(here.lock_all(NAMES).acquire(timeout=1.0)))
        await until_queued(there.lock(FIRST))
        await asyncio.sleep(0.3)
        await first.release()
        error = await waiting
        assert isinstance(error, AcquireTimeout)
        assert error.name == ", ".join(NAMES)
        assert "could not be acquired within 1 s" in str(error)
        assert f"has held {THIRD!r} for" in str(error)
        assert (error.timeout, error.position) == (1.0, 0)
        assert [bool(one) for one in holders(cluster)] == [False, False, True]
        assert not any(queues(cluster))
        with pytest.raises(AcquireTimeout, match="is not free"):
            await here.lock_all(NAMES).acquire(timeout=0)
        with pytest.raises(AcquireTimeout):
            async with here.lock_all(NAMES, timeout=0.05):
                pytest.fail("the block was entered")
        assert [bool(one) for one in holders(cluster)] == [False, False, True]


async def test_the_time_counts_from_the_call_for_the_last_group_too(cluster):
    """A minute ago each of them was asked for, with a timeout of a minute."""
    async with AsyncHandfast(cluster.url) as other, AsyncHandfast(cluster.url) as ahf, other.lock(THIRD):
        with Handfast(cluster.url) as hf:
            for client in (ahf, hf):
                driver, began = client._driver, time.monotonic()
                attempt = driver.attempt(client.lock_all(NAMES)._request)
                for part in attempt.parts:
                    part.asked_at -= 60
                with pytest.raises(AcquireTimeout):
                    await settled(driver.acquire(attempt, 60))
                await settled(driver.undo(attempt))
                assert time.monotonic() - began < 30


async def fails(call):
    """Return the error of a call."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 -- the test looks at it
        return error


async def test_a_full_queue_of_a_later_group_undoes_the_earlier_ones(here, there, cluster):
    async with asyncio.TaskGroup() as tasks, there.lock(THIRD):
        tasks.create_task(take(there.lock_all([THIRD])))
        await until_queued(there.lock(THIRD))
        with pytest.raises(QueueFull, match=f"1 are already waiting for '{FIRST}, {THIRD}'"):
            await here.lock_all([FIRST, THIRD], max_waiters=1).acquire()
        assert not holders(cluster)[0]


async def test_a_refusal_of_a_later_group_undoes_the_earlier_ones(here, there, cluster):
    node = cluster.nodes[2]
    await take(here.lock_all(NAMES))
    node.config_set("min-replicas-to-write", 1)
    try:
        for call in (here.lock_all(NAMES).acquire, here.lock_all(NAMES).try_acquire):
            with pytest.raises(ServerRefused):
                await call()
            await eventually_async(lambda: is_free(cluster))
    finally:
        node.config_set("min-replicas-to-write", 0)


async def test_a_group_whose_server_refuses_its_release_keeps_no_other_from_being_released(api, cluster):
    node = cluster.nodes[1]
    async with api.client(cluster.url, retry_for=0) as client:
        await take(client.lock_all(NAMES))
        lease = await client.lock_all(NAMES, ttl=NEVER).acquire()
        node.config_set("min-replicas-to-write", 1)
        try:
            with pytest.raises(ServerRefused):
                await lease.release()
            assert [bool(one) for one in holders(cluster)] == [False, True, False]
        finally:
            node.config_set("min-replicas-to-write", 0)
        await eventually_async(lambda: is_free(cluster))


async def test_a_client_that_is_closed_while_it_waits_leaves_nothing(api, cluster, there):
    client = api.client(cluster.url)
    async with there.lock(THIRD) as lease:
        waiting = asyncio.create_task(fails(client.lock_all(NAMES, ttl=NEVER).acquire()))
        await until_queued(there.lock(THIRD))
        await client.close()
        assert isinstance(await waiting, ClientClosed)
        await eventually_async(lambda: holders(cluster) == [[], [], [lease.token]] and not any(queues(cluster)))


def test_an_event_of_a_thread_ends_the_wait(cluster):
    cancel = threading.Event()
    with Handfast(cluster.url) as hf, Handfast(cluster.url) as other, other.lock(THIRD), ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(lambda: hf.lock_all(NAMES).acquire(cancel=cancel))
        eventually(lambda: queues(cluster)[2])
        cancel.set()
        with pytest.raises(AcquireCancelled):
            waiter.result(10)
        assert not holders(cluster)[0]


TOGETHER = r"acquire all names that are needed together with one lock_all\(\)"


async def test_a_task_that_would_wait_for_its_own_block_is_refused_and_what_it_has_undone(cluster):
    async with AsyncHandfast(cluster.url) as hf:
        async with hf.lock(THIRD) as lease:
            with pytest.raises(WouldDeadlock, match=TOGETHER) as refused:
                await hf.lock_all(NAMES).acquire()
            assert refused.value.name == THIRD
            assert holders(cluster) == [[], [], [lease.token]]
        async with hf.lock_all([FIRST, THIRD]):
            with pytest.raises(WouldDeadlock, match=TOGETHER):
                await hf.lock(THIRD).acquire()
            with pytest.raises(WouldDeadlock):
                await hf.lock_all(NAMES).acquire()
            async with hf.lock(SECOND):
                pass


def test_a_thread_that_would_wait_for_its_own_block_is_refused_and_what_it_has_undone(cluster):
    with Handfast(cluster.url) as hf:
        with hf.lock(THIRD) as lease:
            with pytest.raises(WouldDeadlock, match=TOGETHER) as refused:
                hf.lock_all(NAMES).acquire()
            assert refused.value.name == THIRD
            assert holders(cluster) == [[], [], [lease.token]]
        with hf.lock_all([FIRST, THIRD]):
            with pytest.raises(WouldDeadlock, match=TOGETHER):
                hf.lock(THIRD).acquire()
            with pytest.raises(WouldDeadlock):
                hf.lock_all(NAMES).acquire()
            with hf.lock(SECOND):
                pass


# --- losses


@pytest.mark.parametrize("lost", NAMES)
async def test_losing_one_group_is_losing_the_lease(api, here, there, cluster, lost):
    called = []
    with pytest.raises(LeaseLost, match="maintenance") as error:
        async with here.lock_all(NAMES, ttl=NEVER) as lease:
            lease.add_lost_callback(lambda: called.append(1))
            await eventually_async(lambda: all(node.pubsub_channels("hf:control:*") for node in cluster.nodes))
            await there.lock(lost).force_release(reason="maintenance")
            await eventually_async(lambda: lease.lost)
            with pytest.raises(LeaseLost):
                lease.check()
            assert lease.remaining() == 0
            assert not here._driver._here.leases if api is not ASYNCIO else True, "the rest is not renewed any more"
            await asyncio.sleep(60 if api is ASYNCIO else 0)  # the asyncio API cancels the block
    assert error.value.name == ", ".join(NAMES)
    await eventually_async(lambda: is_free(cluster))
    assert called == [1]
    assert await lease.release() is False


async def test_a_group_that_the_server_forgot_is_found_at_the_release_and_the_others_are_released(here, cluster):
    lease = await here.lock_all(NAMES, ttl=NEVER).acquire()
    cluster.node_of(state_of(SECOND)).delete(state_of(SECOND))
    assert await lease.release() is False
    assert lease.lost
    assert is_free(cluster)
    with pytest.raises(LeaseLost):
        async with here.lock_all(NAMES, ttl=NEVER):
            cluster.node_of(state_of(THIRD)).delete(state_of(THIRD))
    lease = await here.lock_all(NAMES, ttl=NEVER).acquire()
    cluster.node_of(state_of(FIRST)).delete(state_of(FIRST))
    with pytest.raises(LeaseLost):
        await lease.extend(100)
    assert await lease.release() is False


async def test_a_group_that_is_lost_while_another_is_waited_for_ends_the_wait(here, there, cluster):
    async with there.lock(THIRD) as lease:
        waiting = asyncio.create_task(fails(here.lock_all(NAMES, ttl=0.6).acquire()))
        await until_queued(there.lock(THIRD))
        await there.lock(FIRST).force_release(reason="maintenance")
        error = await waiting
        assert isinstance(error, LeaseLost), error
        assert error.name == ", ".join(NAMES)
        assert holders(cluster) == [[], [], [lease.token]]
        assert not any(queues(cluster))


# --- a cluster that changes


async def test_groups_follow_a_slot_that_moves(here, there, cluster):
    with cluster.moves(state_of(FIRST), to=state_of(SECOND)):
        assert set(await take(here.lock_all(NAMES))) == set(NAMES)
    await take(there.lock_all(NAMES))
    lease = await here.lock_all(NAMES, ttl=0.6).acquire()
    waiter = asyncio.create_task(take(there.lock_all(NAMES)))
    await until_queued(here.lock(FIRST))
    with cluster.moves(state_of(FIRST), to=state_of(SECOND)):
        await asyncio.sleep(1.5)
        assert not lease.lost
        assert not waiter.done()
        assert await lease.release()
        fences = await waiter
    assert all(fences[name] > lease.fences[name] for name in NAMES)


@pytest.fixture
def doubled():
    with Cluster(with_replicas=True) as cluster:
        yield cluster


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1, "replica_timeout": 0.5}], ids=["plain", "min_replicas"])
async def test_leases_and_waiters_of_several_slots_survive_a_planned_failover(api, doubled, options):
    async with api.client(doubled.url) as client, api.client(doubled.url) as other:
        doubled.replicate()
        lease = await client.lock_all(NAMES, ttl=12, **options).acquire()
        waiter = asyncio.create_task(take(other.lock_all(NAMES, **options)))
        await until_queued(client.lock(FIRST))
        doubled.fail_over(1)
        before = [part.deadline for part in lease._state.parts]
        await eventually_async(
            lambda: all(part.deadline > was for part, was in zip(lease._state.parts, before, strict=True)), within=12
        )
        assert not waiter.done()
        assert await lease.release()
        fences = await waiter
        assert all(fences[name] > lease.fences[name] for name in NAMES)


# --- cancellations and interrupts


@pytest.mark.parametrize("busy", [None, SECOND, THIRD])
async def test_a_cancellation_at_any_suspension_leaves_nothing(cluster, busy):
    async with AsyncHandfast(cluster.url) as hf, AsyncHandfast(cluster.url) as other:
        lock = hf.lock_all(NAMES, ttl=NEVER)

        async def use():
            with contextlib.suppress(AcquireTimeout):
                async with lock.acquire(timeout=0.02):
                    await asyncio.sleep(0)

        async def use_and_release():
            with contextlib.suppress(AcquireTimeout):
                lease = await lock.acquire(timeout=0.02)
                try:
                    await asyncio.sleep(0)
                finally:
                    await lease.release()

        async def attempt():
            async with contextlib.AsyncExitStack() as stack:
                if (lease := await lock.try_acquire()) is not None:
                    await stack.enter_async_context(lease)

        async with contextlib.AsyncExitStack() as stack:
            mine = (await stack.enter_async_context(other.lock(busy))).token if busy else None
            expected = [[mine] if name == busy else [] for name in NAMES]
            for make in (use, use_and_release, attempt):
                await make()
                runs = 0
                async for run in cancel_everywhere(make, twice=True):
                    runs += 1
                    await eventually_async(lambda: holders(cluster) == expected and not any(queues(cluster)))
                    assert not [context.leases for context in hf._driver._contexts.values() if context.leases], run
                assert runs > 6


async def test_a_coroutine_that_is_closed_leaves_nothing(cluster):
    async with AsyncHandfast(cluster.url) as hf, AsyncHandfast(cluster.url) as other, other.lock(THIRD) as lease:
        await take(hf.lock_all([FIRST, SECOND]))
        waiting = hf.lock_all(NAMES, ttl=NEVER).acquire()
        sent = waiting.send(None)
        while not queues(cluster)[2]:
            sent._asyncio_future_blocking = False
            await asyncio.wait([sent], timeout=0.05)
            if sent.done():
                sent = waiting.send(None)
        waiting.close()
        await eventually_async(lambda: holders(cluster) == [[], [], [lease.token]] and not any(queues(cluster)))


VERBS = {
    "acquire": lambda lock: lock.acquire(timeout=0.001),
    "try_acquire": lambda lock: lock.try_acquire(),
}


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # leases that an interrupt took from the caller
@pytest.mark.parametrize("busy", [None, SECOND])
@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_at_any_point_of_an_acquire_leaves_nothing(cluster, verb, busy):
    """With a lease held all the time, so that the points of each run are the same."""
    with Handfast(cluster.url) as hf, Handfast(cluster.url) as other, hf.lock("warm"):
        lock, got, runs = hf.lock_all([FIRST, SECOND], ttl=NEVER), [], 0
        mine = other.lock(busy or "elsewhere", ttl=NEVER).acquire()
        expected = [[mine.token] if name == busy else [] for name in NAMES]

        def use():
            with contextlib.suppress(AcquireTimeout):
                got.append(VERBS[verb](lock))

        use()
        for run in interrupt_everywhere(use, within=OURS):
            runs += 1
            while got:
                if (lease := got.pop()) is not None:
                    lease.release()
            eventually(lambda: holders(cluster) == expected and not any(queues(cluster)))
            assert len(hf._driver._here.leases) == 1, run
        assert runs > 50
        mine.release()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_at_any_point_of_a_block_leaves_nothing_but_at_the_very_beginning_of_its_exit(cluster):
    left, kept = set(), []
    with Handfast(cluster.url) as hf, hf.lock("warm"):
        lock = hf.lock_all([FIRST, SECOND], ttl=NEVER)

        def use():
            with lock as lease:
                kept.append(lease)  # one that is dropped is interrupted, too, but that exception is lost

        for run in interrupt_everywhere(use, within=OURS):
            if not is_free(cluster):
                left.add(run.place.rpartition(" ")[2])
                lock._blocks._entered.clear()
                lock.force_release()
            kept.clear()
    assert left == {"PrimitiveScope.__exit__"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_at_any_point_of_a_release_leaves_nothing_but_at_its_very_beginning(cluster):
    with Handfast(cluster.url) as hf, hf.lock("warm"):
        lock, unreleased = hf.lock_all([FIRST, SECOND], ttl=NEVER), []
        held = []

        def release():
            held[-1].release()

        held.append(lock.acquire())
        for run in interrupt_everywhere(release, within=OURS):
            lease = held.pop()
            if lease.remaining():
                unreleased.append(run.place)
                assert lease.release()
            eventually(lambda: is_free(cluster))
            assert len(hf._driver._here.leases) == 1, run
            held.append(lock.acquire())
        held.pop().release()
    assert len(unreleased) <= 4, unreleased
    assert all("in Lease.release" in place or "Driver.release" in place for place in unreleased), unreleased
