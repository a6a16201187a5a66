"""The read-write lock through both APIs, and with processes that are killed."""

from __future__ import annotations

import asyncio

import pytest

from handfast import (
    AcquireTimeout,
    AsyncHandfast,
    LeaseLost,
    NotHeld,
    QueueFull,
    WouldDeadlock,
)
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.family import NOWHERE, Holders, scripts_run, until_listening
from tests._support.helpers import eventually_async, forever

MAX_PERMITS = 1_000_000_000

SIDES = ("read", "write")


def engine_of(raw, name="a"):
    return Engine(raw, name, kind="rwlock")


def nothing_left(raw, name="a"):
    engine = engine_of(raw, name)
    return engine.holders() == engine.queue() == []


def side_of(rwlock, side):
    return rwlock.read() if side == "read" else rwlock.write()


def letters(group):
    return "".join("w" if one.exclusive else "r" for one in group)


async def shape(rwlock):
    """Return the holders and the waiters as strings: r is a reader, w a writer."""
    status = await rwlock.status()
    return letters(status.holders), letters(status.waiters)


# --- holding


async def test_readers_hold_it_together(here, there):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    one = await mine.read().acquire()
    async with yours.read() as two, here.rwlock("b").write():
        three = await mine.read().try_acquire()
        assert await shape(mine) == ("rrr", "")
        assert one.fence < two.fence < three.fence
        assert [lease.writes for lease in (one, two, three)] == [False, False, False]
        assert await mine.write().try_acquire() is None
        with pytest.raises(AcquireTimeout, match=r"'a' could not be acquired within 0\.03 s: .* has held it for"):
            await mine.write().acquire(timeout=0.03)
        assert await three.release() is True
        assert await one.release() is True
        assert await mine.write().try_acquire() is None, "one reader is enough"
    async with mine.write() as writer:
        assert writer.fence > three.fence


async def test_a_writer_holds_it_alone(here, there):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    async with mine.write() as writer:
        assert writer.writes
        assert await shape(mine) == ("w", "")
        for side in (yours.read(), yours.write()):
            assert await side.try_acquire() is None
            with pytest.raises(AcquireTimeout):
                await side.acquire(timeout=0.03)
        assert await shape(mine) == ("w", "")
    async with yours.write() as second:
        assert second.fence > writer.fence
    assert await shape(mine) == ("", "")


async def test_blocks_end_by_exceptions_and_by_early_releases(here, raw):
    for side in (here.rwlock("a").read(), here.rwlock("a").write()):
        async with side.acquire(timeout=5) as lease:
            assert engine_of(raw).holders() == [lease.token]
        assert await lease.release() is False
        with pytest.raises(KeyError, match="mine"):
            async with side:
                raise KeyError("mine")
        async with side as lease:
            assert await lease.release() is True
        assert nothing_left(raw)


@pytest.mark.parametrize("side", SIDES)
async def test_a_decorated_function_runs_under_the_lock(api, here, raw, side):
    rwlock, held = here.rwlock("a"), []

    def body(value):
        """Its own words."""
        held.append(engine_of(raw).holders())
        return value + 1

    job = side_of(rwlock, side)(api.function(body))
    assert [await job(1), await job(2)] == [2, 3]
    assert held[0] != held[1], "each call has a lease of its own"
    assert (job.__name__, job.__doc__) == ("body", "Its own words.")
    assert nothing_left(raw)


async def test_primitives_of_different_kinds_with_one_name_are_independent(here):
    async with here.rwlock("a").write(), here.lock("a"), here.semaphore("a", 1):
        assert await here.rwlock("a").read().try_acquire() is None


# --- the queue


async def test_readers_and_writers_acquire_in_queue_order_and_adjacent_readers_together(here, there):
    mine = here.rwlock("a")
    held = await mine.write().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        for number, who in enumerate(("r0", "r1", "w2", "r3", "w4", "w5", "r6", "r7")):
            rwlock = (here, there)[number % 2].rwlock("a")
            await holders.queue(who, rwlock.read() if who[0] == "r" else rwlock.write())
        assert await shape(mine) == ("w", "rrwrwwrr")
        await held.release()
        assert await shape(mine) == ("rr", "wrwwrr"), "both hold it when the release returns"
        for inside in (("r0", "r1"), ("w2",), ("r3",), ("w4",), ("w5",), ("r6", "r7")):
            await holders.become(*inside)
            for who in inside:
                assert holders.current
                await holders.release(who)
    assert sorted(holders.fences, key=holders.fences.get) == ["r0", "r1", "w2", "r3", "w4", "w5", "r6", "r7"]
    assert min(holders.fences.values()) > held.fence


async def test_a_stream_of_readers_does_not_starve_a_writer(here, there):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    early = [await mine.read().acquire() for _ in range(2)]
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        await holders.queue("writer", mine.write())
        for number, lease in enumerate(early):
            assert await yours.read().try_acquire() is None, "a new request queues behind the writer"
            await holders.queue(f"late {number}", yours.read())
            assert holders.current == []
            await lease.release()
        await holders.become("writer")
        assert await shape(mine) == ("w", "rr")
        await holders.release("writer")
        await holders.become("late 0", "late 1")
        await holders.release("late 0")
        await holders.release("late 1")


async def test_a_stream_of_writers_does_not_starve_a_reader(here, there):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    held = await mine.write().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        for who in ("w0", "reader", "w1"):
            await holders.queue(who, yours.read() if who == "reader" else yours.write())
        await held.release()
        await holders.become("w0")
        await holders.queue("w2", mine.write())
        await holders.release("w0")
        await holders.become("reader")
        assert await shape(mine) == ("r", "ww")
        await holders.release("reader")
        for who in ("w1", "w2"):
            await holders.become(who)
            await holders.release(who)


async def test_a_writer_that_times_out_lets_the_readers_behind_it_in(here, there, raw):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    held = await mine.read().acquire()

    async def impatient():
        with pytest.raises(AcquireTimeout):
            await yours.write().acquire(timeout=0.2)

    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        giving_up = tasks.create_task(impatient())
        await until_queued(mine)
        await holders.queue("reader", yours.read())
        await giving_up
        assert await shape(mine) == ("rr", ""), "each acquires as soon as the one before has released"
        await holders.become("reader")
        await holders.release("reader")
    assert await held.release() is True
    assert nothing_left(raw)


async def test_a_full_queue_refuses_the_next_waiter(here, there, raw):
    full = here.rwlock("a", max_waiters=1)
    held = await full.read().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, full)
        await holders.queue("writer", there.rwlock("a").write())
        for side in (full.read(), full.write()):
            with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
                await side.acquire()
        await held.release()
        await holders.release("writer")
    assert nothing_left(raw)


async def test_one_release_admits_more_readers_than_one_script_call_can(server, raw):
    async with AsyncHandfast(server.url) as mine:
        rwlock, leave, inside = mine.rwlock("a"), asyncio.Event(), []

        async def read():
            async with rwlock.read() as lease:
                inside.append(lease.fence)
                await leave.wait()

        held = await rwlock.write().acquire()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(250):
                tasks.create_task(read())
            await until_queued(rwlock, 250)
            await held.release()
            status = await rwlock.status()
            assert (status.waiting, status.free) == (0, MAX_PERMITS - 250)
            await eventually_async(lambda: len(inside) == 250)
            leave.set()
    assert len(set(inside)) == 250
    assert nothing_left(raw)


# --- downgrading


async def test_a_downgraded_writer_reads_with_the_same_lease(here, there, raw):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    async with mine.write() as lease:
        before = (lease.token, lease.fence)
        assert await lease.downgrade() is None
        assert not lease.writes
        assert (lease.token, lease.fence) == before
        (holder,) = (await mine.status()).holders
        assert (holder.weight, holder.exclusive, holder.fence) == (1, False, lease.fence)
        assert await yours.write().try_acquire() is None
        async with yours.read() as reader:
            assert reader.fence > lease.fence
        lease.check()
        await lease.extend(40)
    assert nothing_left(raw)


async def test_a_downgrade_admits_the_next_readers_at_once(here, there):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    lease = await mine.write().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        for who in ("one", "two", "writer", "three"):
            await holders.queue(who, yours.write() if who == "writer" else yours.read())
        await lease.downgrade()
        assert await shape(mine) == ("rrr", "wr"), "they hold it when the call returns"
        await holders.become("one", "two")
        await holders.release("one")
        assert await lease.release() is True
        assert await shape(mine) == ("r", "wr")
        await holders.release("two")
        for who in ("writer", "three"):
            await holders.become(who)
            await holders.release(who)


async def test_at_maxmemory_a_downgrade_still_admits_readers(here, there, raw):
    rwlock = here.rwlock("a")
    lease = await rwlock.write().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, rwlock)
        await holders.queue("reader", there.rwlock("a").read())
        raw.config_set("maxmemory", 1)
        await lease.downgrade()
        assert await shape(rwlock) == ("rr", "")
        await holders.become("reader")
        raw.config_set("maxmemory", 0)
        await holders.release("reader")
    assert await lease.release() is True
    assert nothing_left(raw)


async def test_downgrading_a_read_lease_sends_no_request(here, raw):
    lease = await here.rwlock("a").write().acquire()
    reader = await here.rwlock("b").read().acquire()
    await lease.downgrade()
    before = scripts_run(raw)
    await lease.downgrade()
    await reader.downgrade()
    assert scripts_run(raw) == before
    assert [lease.writes, reader.writes] == [False, False]
    assert await lease.release() is True
    assert await reader.release() is True


@pytest.mark.usefixtures("short_ticks")
async def test_a_lost_or_released_lease_cannot_be_downgraded(here, there, raw):
    rwlock = here.rwlock("a")
    released = await rwlock.write().acquire()
    assert await released.release() is True
    with pytest.raises(NotHeld, match="the lease of 'a' was already released or detached; acquire a new one"):
        await released.downgrade()
    forgotten = await rwlock.write().acquire()
    raw.delete(engine_of(raw).key("state"))
    with pytest.raises(LeaseLost, match="downgraded"):
        await forgotten.downgrade()
    assert forgotten.lost
    assert await forgotten.release() is False
    taken = await rwlock.write().acquire()
    await until_listening(raw)
    await there.rwlock("a").force_release(reason="deploy")
    await eventually_async(lambda: taken.lost)
    before = scripts_run(raw)
    with pytest.raises(LeaseLost, match="deploy"):
        await taken.downgrade()
    assert scripts_run(raw) == before
    assert await taken.release() is False


@pytest.mark.usefixtures("short_ticks")
async def test_losing_a_downgraded_lease_ends_its_block(here, there, raw):
    with pytest.raises(LeaseLost, match="deploy"):
        async with here.rwlock("a").write() as lease:
            await lease.downgrade()
            await until_listening(raw)
            await there.rwlock("a").force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
    assert nothing_left(raw)


# --- deadlocks with an enclosing block


ADVICE = {
    ("read", "read"): "it may read already; a second lease to read could wait behind a writer that waits for the first",
    (
        "read",
        "write",
    ): "there is no upgrade from read to write, since two readers that both wanted it would wait for each",
    ("write", "read"): r"a writer may read already; use downgrade\(\) to go on as a reader",
    ("write", "write"): "it may write already",
}
"""Pairs of the side that the block holds and the side that is acquired within it."""


@pytest.mark.parametrize("outer", SIDES)
@pytest.mark.parametrize("inner", SIDES)
async def test_an_acquire_that_would_deadlock_with_its_own_block_raises_before_any_request(
    api, here, raw, outer, inner
):
    rwlock = here.rwlock("a")
    wanted, advice = side_of(here.rwlock("a", ttl=60), inner), ADVICE[outer, inner]

    async def blocks(block):
        async with block:
            pytest.fail("the block was entered")

    job = wanted(api.function(lambda: pytest.fail("the function was called")))
    ways = (
        lambda: side_of(rwlock, inner).acquire(),
        wanted.acquire,
        lambda: wanted.acquire(timeout=0.01),
        lambda: blocks(wanted),
        lambda: blocks(wanted.acquire()),
        job,
    )
    async with side_of(rwlock, outer) as lease:
        before = scripts_run(raw)
        for way in ways:
            with pytest.raises(WouldDeadlock, match=f"^acquiring 'a' here would deadlock: .*; {advice}") as caught:
                await way()
            assert caught.value.name == "a"
            assert isinstance(caught.value, RuntimeError)
        assert scripts_run(raw) == before
        lease.check()
        assert engine_of(raw).holders() == [lease.token]
    async with wanted.acquire(timeout=5):
        pass
    assert nothing_left(raw)


async def test_try_acquire_within_a_block_never_raises_a_deadlock_error(here, raw):
    rwlock = here.rwlock("a")
    async with rwlock.read():
        assert await rwlock.write().try_acquire() is None
        async with await rwlock.read().try_acquire():
            assert await shape(rwlock) == ("rr", "")
            with pytest.raises(WouldDeadlock):
                await rwlock.read().acquire()
        with pytest.raises(WouldDeadlock):
            await rwlock.write().acquire()
    async with rwlock.write() as lease:
        assert await rwlock.read().try_acquire() is None
        await lease.downgrade()
        with pytest.raises(WouldDeadlock):
            await rwlock.write().acquire()
        async with await rwlock.read().try_acquire():
            pass
    assert nothing_left(raw)


async def test_another_thread_or_task_waits_for_the_block(here):
    rwlock = here.rwlock("a")
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, rwlock)
        async with rwlock.read():
            await holders.queue("writer", rwlock.write())
            assert holders.current == []
        await holders.become("writer")
        await holders.release("writer")


async def test_a_block_of_another_client_or_name_is_no_deadlock(api, server, here, there):
    async with api.client(server.url, namespace="other") as elsewhere:
        async with here.rwlock("a").read():
            async with here.rwlock("b").write(), elsewhere.rwlock("a").write():
                pass
            with pytest.raises(AcquireTimeout):
                await there.rwlock("a").write().acquire(timeout=0.03)
            async with there.rwlock("a").read():
                pass


async def test_a_lease_held_outside_a_block_is_no_deadlock(here):
    rwlock = here.rwlock("a")
    lease = await rwlock.read().acquire()
    async with rwlock.read().acquire(timeout=5):
        pass
    with pytest.raises(AcquireTimeout):
        await rwlock.write().acquire(timeout=0.03)
    async with lease:
        with pytest.raises(WouldDeadlock):
            await rwlock.write().acquire(timeout=0.03)
    async with rwlock.write().acquire(timeout=5):
        pass


@pytest.mark.usefixtures("short_ticks")
async def test_a_block_whose_lease_was_released_or_lost_blocks_no_acquire(here, there, raw):
    rwlock = here.rwlock("a", on_lost="warn")
    async with rwlock.read() as lease:
        assert await lease.release() is True
        async with rwlock.write().acquire(timeout=5):
            pass
    with pytest.warns(RuntimeWarning, match="deploy"):
        async with rwlock.read() as lease:
            await until_listening(raw)
            await there.rwlock("a").force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
            async with rwlock.write().acquire(timeout=5):
                pass
    assert nothing_left(raw)


# --- status


async def test_status_lists_readers_and_writers(api, server, raw):
    async with api.client(server.url, label="reader 7") as mine, api.client(server.url) as yours:
        rwlock = mine.rwlock("a")
        leases = [await rwlock.read().acquire() for _ in range(2)]
        async with asyncio.TaskGroup() as tasks:
            holders = Holders(tasks, rwlock)
            await holders.queue("writer", yours.rwlock("a").write())
            await holders.queue("reader", yours.rwlock("a").read())
            status = await rwlock.read().status()  # both sides have the same name and status
            assert {holder.label for holder in status.holders} == {"reader 7"}
            assert [(holder.weight, holder.exclusive) for holder in status.holders] == [(1, False)] * 2
            waiting = [(waiter.position, waiter.weight, waiter.exclusive) for waiter in status.waiters]
            assert waiting == [(0, MAX_PERMITS, True), (1, 1, False)]
            assert (status.limit, status.free, status.waiting) == (MAX_PERMITS, MAX_PERMITS - 2, 2)
            assert status.fence == leases[1].fence
            for lease in leases:
                await lease.release()
            await holders.become("writer")
            status = await rwlock.write().status()
            assert [(holder.weight, holder.exclusive) for holder in status.holders] == [(MAX_PERMITS, True)]
            assert (status.limit, status.free) == (MAX_PERMITS, 0)
            await holders.release("writer")
            await holders.release("reader")


async def test_locked_tells_whether_that_side_is_unavailable(here):
    rwlock = here.rwlock("a")

    async def locked():
        return [await thing.locked() for thing in (rwlock, rwlock.read(), rwlock.write())]

    assert await locked() == [False, False, False]
    async with rwlock.read():
        assert await locked() == [True, False, True]
    async with rwlock.write():
        assert await locked() == [True, True, True]


# --- renewal and loss


@pytest.mark.usefixtures("short_ticks")
async def test_force_release_revokes_all_readers_and_admits_the_writer(here, there, raw):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    lost = [await mine.read().acquire(), await yours.read().acquire()]
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        await holders.queue("writer", mine.write())
        await holders.queue("reader", mine.read())
        await until_listening(raw, 2)
        assert await mine.force_release(reason="deploy") == 2
        await holders.become("writer")
        for lease in lost:
            await eventually_async(lambda lease=lease: lease.lost)
            with pytest.raises(LeaseLost, match="deploy"):
                lease.check()
            assert await lease.release() is False
        assert await shape(mine) == ("w", "r")
        await holders.release("writer")
        await holders.release("reader")
    writer = await yours.write().acquire()
    assert await mine.read().force_release() == 1, "both sides have the same name"
    assert await writer.release() is False


@pytest.mark.parametrize("side", SIDES)
async def test_leaving_a_block_after_a_loss_raises_unless_the_block_raised(here, raw, side):
    with pytest.raises(LeaseLost, match="released"):
        async with side_of(here.rwlock("a"), side):
            raw.flushall()
    with pytest.raises(KeyError):
        async with side_of(here.rwlock("a"), side):
            raw.flushall()
            raise KeyError
    with pytest.warns(RuntimeWarning, match="was lost"):
        async with side_of(here.rwlock("a", on_lost="warn"), side):
            raw.flushall()
    assert nothing_left(raw)


@pytest.mark.parametrize("how", ["read", "write", "downgraded"])
async def test_in_asyncio_the_block_is_cancelled_when_its_lease_is_lost(server, raw, how):
    reached = []
    async with AsyncHandfast(server.url) as mine, AsyncHandfast(server.url) as operator:
        with pytest.raises(LeaseLost, match="deploy"):
            async with side_of(mine.rwlock("a"), "read" if how == "read" else "write") as lease:
                if how == "downgraded":
                    await lease.downgrade()
                taking = asyncio.create_task(operator.rwlock("a").force_release(reason="deploy"))
                try:
                    await forever()
                except asyncio.CancelledError:
                    reached.append("cancelled")
                    raise
                reached.append("the end")
        assert await taking == 1
        assert not lease.is_in_block
        async with mine.rwlock("a").write().acquire(timeout=5):
            pass
    assert reached == ["cancelled"]
    assert asyncio.current_task().cancelling() == 0


# --- invalid arguments


def test_only_a_side_of_the_rwlock_can_be_acquired(api):
    rwlock = api.handfast(NOWHERE).rwlock("a")
    for verb in ("acquire", "try_acquire", "__enter__", "__aenter__", "__call__"):
        assert not hasattr(rwlock, verb)


async def test_an_inner_block_is_found_after_the_outer_block_released_its_lease(here):
    rwlock = here.rwlock("a")
    async with rwlock.read() as outer:
        inner = await rwlock.read().try_acquire()
        async with inner:
            await outer.release()
            with pytest.raises(WouldDeadlock, match="no upgrade"):
                await rwlock.write().acquire(timeout=5)
        async with rwlock.write().acquire(timeout=5) as lease:
            assert lease.writes


def test_who_has_not_chosen_a_side_gets_advice(api):
    rwlock = api.handfast(NOWHERE).rwlock("a")
    for method in ("acquire", "try_acquire"):
        with pytest.raises(AttributeError, match=f"has no attribute '{method}'; use its read\\(\\) or write\\(\\)"):
            getattr(rwlock, method)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        rwlock.nothing  # noqa: B018 -- the error is the purpose
