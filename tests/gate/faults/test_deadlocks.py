"""Callers that would wait for themselves are refused, those that may be served are not, and long waits for oneself are logged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from handfast import AcquireTimeout, AsyncHandfast, Handfast, WouldDeadlock
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async

OUTER = {
    "lock": lambda client: client.lock("a"),
    "rlock": lambda client: client.rlock("a"),
    "lock_all": lambda client: client.lock_all(["x", "a"]),
}

INNER = {
    "lock": lambda client, **options: client.lock("a", **options),
    "rlock": lambda client, **options: client.rlock("a", **options),
    "lock_all": lambda client, **options: client.lock_all(["a", "b"], **options),
}

PAIRS = [pair for pair in itertools.product(OUTER, INNER) if pair != ("rlock", "rlock")]

pairs = pytest.mark.parametrize(("outer", "inner"), PAIRS, ids="-".join)


@pytest.fixture
async def ahf(server, raw):
    async with AsyncHandfast(server.url) as client:
        yield client


def queued(raw):
    return Engine(raw).queue()


# --- certain: the block of the caller itself


@pairs
@pytest.mark.parametrize("timeout", [None, 60])
def test_a_thread_that_waits_for_its_own_block_is_refused(hf, raw, outer, inner, timeout):
    with OUTER[outer](hf) as lease:
        with pytest.raises(WouldDeadlock, match="acquiring 'a' here would deadlock") as refused:
            INNER[inner](hf, timeout=timeout).acquire()
        assert refused.value.name == "a"
        with pytest.raises(WouldDeadlock), INNER[inner](hf, timeout=timeout):
            pytest.fail("the block was entered")
        assert not queued(raw)
        lease.check()
    with INNER[inner](hf, timeout=0):
        pass


@pairs
@pytest.mark.parametrize("timeout", [None, 60])
async def test_a_task_that_waits_for_its_own_block_is_refused(ahf, raw, outer, inner, timeout):
    async with OUTER[outer](ahf) as lease:
        with pytest.raises(WouldDeadlock, match="acquiring 'a' here would deadlock") as refused:
            await INNER[inner](ahf, timeout=timeout).acquire()
        assert refused.value.name == "a"
        with pytest.raises(WouldDeadlock):
            async with INNER[inner](ahf, timeout=timeout):
                pytest.fail("the block was entered")
        assert not queued(raw)
        lease.check()
    async with INNER[inner](ahf, timeout=0):
        pass


def test_the_advice_fits(hf):
    with hf.lock("a"):
        with pytest.raises(WouldDeadlock, match=r"use rlock\(\) in both places"):
            hf.lock("a").acquire()
        with pytest.raises(WouldDeadlock, match=r"acquire all names that are needed together with one lock_all\(\)"):
            hf.lock_all(["b", "a"]).acquire()


def test_a_block_of_a_lease_counts_as_well_as_one_of_its_lock(hf):
    with hf.lock("a").acquire(timeout=5), pytest.raises(WouldDeadlock):
        hf.lock("a").acquire()


async def test_a_block_of_a_lease_of_asyncio_counts_as_well(ahf):
    async with ahf.lock("a").acquire(timeout=5):
        with pytest.raises(WouldDeadlock):
            await ahf.lock("a").acquire()


def test_a_decorated_function_that_calls_another_one_is_refused(hf, raw):
    @hf.lock("a")
    def inner():
        pytest.fail("it was called")

    @hf.lock("a")
    def outer():
        inner()

    with pytest.raises(WouldDeadlock):
        outer()
    assert not Engine(raw).holders()


async def test_a_decorated_coroutine_that_calls_another_one_is_refused(ahf, raw):
    @ahf.lock("a")
    async def inner():
        pytest.fail("it was called")

    @ahf.lock("a")
    async def outer():
        await inner()

    with pytest.raises(WouldDeadlock):
        await outer()
    assert not Engine(raw).holders()


def test_a_thread_at_the_shared_connection_is_refused_too(server, raw):
    with Handfast(server.url, max_sessions=1) as client, ThreadPoolExecutor(1) as threads:
        with client.lock("a"):
            waiter = threads.submit(client.lock("a").acquire)
            eventually(lambda: queued(raw))
            with pytest.raises(WouldDeadlock):
                client.lock("a").acquire(timeout=60)
        waiter.result(10).release()


def test_who_does_not_wait_learns_that_it_is_taken(hf):
    with hf.lock("a"):
        assert hf.lock("a").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            hf.lock("a").acquire(timeout=0)


# --- not certain: others may let it go


def test_another_thread_waits_for_the_block_of_this_one(hf):
    with ThreadPoolExecutor(1) as threads:
        with hf.lock("a"):
            waiter = threads.submit(hf.lock("a").acquire, timeout=30)
            eventually(lambda: hf.lock("a").status().waiting)
        waiter.result(10).release()


async def test_a_child_task_waits_for_the_block_of_its_parent(ahf, raw):
    async with ahf.lock("a"):
        child = asyncio.create_task(ahf.lock("a").acquire(timeout=30))
        await eventually_async(lambda: queued(raw))
    await (await child).release()


def test_a_lease_without_a_block_may_be_released_by_another_thread(hf, raw):
    lease = hf.lock("a").acquire()
    releasing = threading.Thread(target=lambda: eventually(lambda: queued(raw)) and lease.release())
    releasing.start()
    hf.lock("a").acquire(timeout=30).release()
    releasing.join()


async def test_a_lease_without_a_block_may_be_released_by_another_task(ahf, raw):
    lease = await ahf.lock("a").acquire()

    async def release():
        await eventually_async(lambda: queued(raw))
        await lease.release()

    releasing = asyncio.create_task(release())
    await (await ahf.lock("a").acquire(timeout=30)).release()
    await releasing


def test_a_generator_that_is_suspended_in_a_block_may_be_left_by_another_thread(hf, raw):
    """As the sync dependencies of a web framework are: the thread that entered serves another request meanwhile."""

    def dependency():
        with hf.lock("a"):
            yield

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        first, second = dependency(), dependency()
        one.submit(next, first).result(10)
        waiter = one.submit(next, second)
        eventually(lambda: queued(raw))
        two.submit(first.close).result(10)
        waiter.result(10)
        second.close()
    assert not Engine(raw).holders()


@pytest.mark.parametrize("side", ["read", "write"])
def test_a_side_of_a_read_write_lock_may_be_held_by_generators_as_well(hf, raw, side):
    """The thread that began a request reads for the next one while the first goes on elsewhere."""

    def dependency():
        with getattr(hf.rwlock("a"), side)():
            with pytest.raises(WouldDeadlock):
                hf.rwlock("a").read().acquire()
            yield

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        first, second = dependency(), dependency()
        one.submit(next, first).result(10)
        waiter = one.submit(next, second)
        if side == "read":
            waiter.result(10)
        else:
            eventually(lambda: hf.rwlock("a").status().waiting)
        two.submit(first.close).result(10)
        waiter.result(10)
        second.close()
    assert not hf.rwlock("a").status().holding


def test_an_exit_stack_that_holds_a_side_of_a_read_write_lock_counts_as_a_block(hf):
    with contextlib.ExitStack() as stack:
        stack.enter_context(hf.rwlock("a").read())
        with pytest.raises(WouldDeadlock):
            hf.rwlock("a").write().acquire()


def test_a_worker_that_enters_a_block_for_others_may_wait_for_it(hf, raw):
    """As anyio's worker threads do: the frame that entered goes on, but another thread leaves the block."""
    orders, lock, entered = SimpleQueue(), hf.lock("a"), []

    def work():
        entered.extend(order() for order in iter(orders.get, None))

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(2):
        orders.put(lock.__enter__)
    orders.put(None)
    eventually(lambda: queued(raw))
    lock.__exit__(None, None, None)
    worker.join(10)
    assert len(entered) == 2
    lock.__exit__(None, None, None)


def test_a_block_that_was_entered_by_hand_counts_while_its_function_runs(hf):
    lock = hf.lock("a")
    lock.__enter__()
    with pytest.raises(WouldDeadlock):
        hf.lock("a").acquire()
    lock.__exit__(None, None, None)

    def enter():
        lock.__enter__()

    enter()
    with pytest.raises(AcquireTimeout):
        hf.lock("a").acquire(timeout=0.05)
    lock.__exit__(None, None, None)


def test_a_semaphore_may_get_more_permits(hf):
    semaphore = hf.semaphore("s", 1)
    with semaphore, ThreadPoolExecutor(1) as threads:
        resizing = threads.submit(lambda: eventually(lambda: semaphore.status().waiting) and semaphore.resize(2))
        semaphore.acquire(timeout=30).release()
        resizing.result()


def test_another_client_is_another_holder(hf, other):
    with contextlib.ExitStack() as stack:  # its frames come and go, and the last one of them waits
        for _ in range(2):
            stack.enter_context(hf.lock("b"))
            with pytest.raises(AcquireTimeout):
                stack.enter_context(hf.lock("b", timeout=0.05))
            stack.close()
    with hf.lock("a"), pytest.raises(AcquireTimeout):
        other.lock("a").acquire(timeout=0.05)


def test_the_frame_of_a_block_is_not_kept_alive_by_its_lease(hf):
    leases = []

    def use(leave):
        lease = hf.lock("a").acquire()
        leases.append(lease)
        with contextlib.suppress(ValueError), lease:
            leave(lease)

    def fail(_):
        raise ValueError

    for leave in (lambda _: None, lambda lease: lease.release(), fail, lambda lease: lease.detach()):
        use(leave)
        assert leases[-1]._state.block is None


# --- sync calls in coroutines


@pytest.mark.parametrize(
    "make",
    [
        lambda hf: hf.lock("a"),
        lambda hf: hf.semaphore("a", 1),
        lambda hf: hf.rwlock("a").write(),
        lambda hf: hf.once("a"),
        lambda hf: hf.lock_all(["a", "b"]),
    ],
    ids=["lock", "semaphore", "rwlock", "once", "lock_all"],
)
@pytest.mark.parametrize("blocks", [True, False])
async def test_a_sync_call_that_would_wait_for_another_task_of_its_loop_is_refused(hf, raw, make, blocks):
    entered = asyncio.Event()

    async def hold():
        lease = make(hf).acquire()
        with lease if blocks else contextlib.closing(contextlib.ExitStack()):
            entered.set()
            await asyncio.sleep(0)
        return lease.release()

    async def wait():
        await entered.wait()
        with pytest.raises(
            WouldDeadlock, match=r"an event loop runs in this thread, .* use AsyncHandfast in coroutines"
        ):
            make(hf).acquire()

    await asyncio.wait_for(asyncio.gather(hold(), wait()), 20)
    make(hf).acquire(timeout=0).release()


async def test_a_sync_call_that_fits_beside_what_its_thread_has_waits_for_others(hf, raw, server):
    mine, theirs = (client.semaphore("a", 2).acquire() for client in (hf, Handfast(server.url)))
    with pytest.raises(AcquireTimeout):
        hf.semaphore("a", 2).acquire(timeout=0.05)
    assert (mine.release(), theirs.release()) == (True, True)


async def test_a_sync_call_in_the_thread_of_a_loop_waits_for_another_thread_and_says_so_once(hf, raw, caplog):
    lease = await asyncio.to_thread(hf.lock("a").acquire)
    for _ in range(2):
        with pytest.raises(AcquireTimeout):
            hf.lock("a").acquire(timeout=0.05)
    await asyncio.to_thread(lease.release)
    (record,) = [record for record in caplog.records if record.name == "handfast.lease"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("a call of the sync API waits for 'a' in a thread whose event loop runs")


async def test_other_waits_of_the_sync_api_in_the_thread_of_a_loop_are_logged_too(server, raw, caplog):
    for wait in (
        lambda client: client.debounce("a", 0.01).wait(),
        lambda client: [client.limiter("a", "1/30ms").acquire() for _ in range(2)],
    ):
        caplog.clear()
        with Handfast(server.url) as client:
            wait(client)
        assert [record.name for record in caplog.records] == ["handfast.lease"]


def test_a_sync_call_without_a_loop_says_nothing(hf, raw, caplog):
    hf.debounce("a", 0.01).wait()
    assert not caplog.records
