"""The semaphore through both APIs, and with processes that are killed or whose clocks are wrong."""

from __future__ import annotations

import asyncio
import random

import pytest
import redis

from handfast import (
    AcquireTimeout,
    AsyncHandfast,
    LeaseLost,
    LimitExceeded,
    NotHeld,
    QueueFull,
    ServerRefused,
)
from tests._support.apis import until_queued
from tests._support.engine import Engine, read_message
from tests._support.family import NOWHERE, Holders, scripts_run, until_listening
from tests._support.helpers import eventually, eventually_async, forever
from tests._support.least_privilege import operators


def engine_of(raw, name="a"):
    return Engine(raw, name, kind="semaphore")


def nothing_left(raw, name="a"):
    engine = engine_of(raw, name)
    return engine.holders() == engine.queue() == []


# --- holding


async def test_a_block_that_is_left_elsewhere_releases_no_other_callers_lease(here, raw):
    """With several others in blocks it can't be known whose block is meant; with one it can."""
    semaphore, leave, leases = here.semaphore("a", 3), asyncio.Event(), []

    async def hold():
        async with semaphore as lease:
            leases.append(lease)
            await leave.wait()
        return await lease.release()

    async def only_enter():
        leases.append(await semaphore.__aenter__())

    async with asyncio.TaskGroup() as tasks:
        holder, _ = tasks.create_task(hold()), tasks.create_task(only_enter())
        await eventually_async(lambda: len(leases) == 2)
        with pytest.raises(RuntimeError, match="several others are in blocks of it: nothing was released"):
            await semaphore.__aexit__(None, None, None)
        assert len(engine_of(raw).holders()) == 2
        leave.set()
        assert await holder is False, "it was released by its own block, and not before"
        await semaphore.__aexit__(None, None, None)
        assert nothing_left(raw)
        with pytest.raises(RuntimeError, match="never entered"):
            await semaphore.__aexit__(None, None, None)


async def test_there_are_as_many_holders_as_permits(here, there):
    leases = [await client.semaphore("a", 3).acquire() for client in (here, there, here)]
    assert await there.semaphore("a", 3).try_acquire() is None
    with pytest.raises(AcquireTimeout, match=r"'a' could not be acquired within 0\.05 s: .* has held it for"):
        await there.semaphore("a", 3).acquire(timeout=0.05)
    assert await leases[1].release() is True
    leases.append(await here.semaphore("a", 3).try_acquire())
    assert await here.semaphore("a", 3).try_acquire() is None
    fences = [lease.fence for lease in leases]
    assert fences == sorted(set(fences)), "every grant has a larger fence"
    assert [await lease.release() for lease in leases] == [True, False, True, True]


async def test_several_permits_are_acquired_atomically(here, there, raw):
    semaphore = there.semaphore("a", 4)
    lease = await here.semaphore("a", 4).acquire(permits=2)
    assert await semaphore.try_acquire(permits=3) is None
    with pytest.raises(AcquireTimeout):
        await semaphore.acquire(permits=3, timeout=0.05)
    status = await semaphore.status()
    assert (status.free, status.waiting, [holder.weight for holder in status.holders]) == (2, 0, [2])
    second = await semaphore.try_acquire(permits=2)
    assert await semaphore.try_acquire() is None
    assert await second.release() is True
    assert await lease.release() is True
    async with await semaphore.try_acquire(permits=4):
        assert (await semaphore.status()).free == 0


async def test_a_release_returns_all_its_permits_once(here):
    semaphore = here.semaphore("a", 3)
    lease = await semaphore.acquire(permits=3)
    assert await lease.release() is True
    assert await lease.release() is False
    assert (await semaphore.status()).free == 3
    assert not lease.lost
    with pytest.raises(NotHeld, match="already released"):
        lease.check()


async def test_a_release_hands_its_permits_to_the_waiters(here, there, raw):
    lease = await here.semaphore("a", 2).acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, here.semaphore("a", 2))
        await holders.queue("one", there.semaphore("a", 2))
        await holders.queue("two", here.semaphore("a", 2))
        tokens = engine_of(raw).queue()
        assert await lease.release() is True
        assert sorted(engine_of(raw).holders()) == sorted(tokens), "they hold their permits when the release returns"
        await holders.become("one", "two")
        assert lease.fence < holders.fences["one"] < holders.fences["two"]
        await holders.release("one")
        await holders.release("two")
    assert nothing_left(raw)


async def test_a_block_holds_one_permit_unless_permits_is_given(here, raw):
    semaphore = here.semaphore("a", 4)
    async with semaphore as one, semaphore.acquire(permits=2, timeout=5) as two:
        assert set(engine_of(raw).holders()) == {one.token, two.token}
        assert (await semaphore.status()).free == 1
        async with await semaphore.acquire() as three:
            assert three.fence > two.fence > one.fence
            assert (await semaphore.status()).free == 0
    assert nothing_left(raw)


async def test_an_exception_in_the_block_propagates_and_frees_the_permits(here):
    semaphore = here.semaphore("a", 2)
    for block in (semaphore, semaphore.acquire(permits=2)):
        with pytest.raises(KeyError, match="mine"):
            async with block:
                assert (await semaphore.status()).holders
                raise KeyError("mine")
        assert (await semaphore.status()).free == 2


async def test_a_decorated_function_holds_one_permit_while_it_runs(api, here, raw):
    semaphore, held = here.semaphore("a", 2), []

    def body(value):
        """Its own words."""
        held.append(engine_of(raw).holders())
        if value < 0:
            raise KeyError("mine")
        return value + 1

    job = semaphore(api.function(body))
    assert [await job(1), await job(2)] == [2, 3]
    with pytest.raises(KeyError, match="mine"):
        await job(-1)
    assert [len(tokens) for tokens in held] == [1, 1, 1]
    assert len({tokens[0] for tokens in held}) == 3, "each call has a lease of its own"
    assert (job.__name__, job.__doc__) == ("body", "Its own words.")
    assert nothing_left(raw)


async def test_the_permits_held_never_exceed_the_limit(here, there, raw):
    chance, inside, most, fences = random.Random(5), [], [], []

    async def work(client):
        semaphore = client.semaphore("a", 5)
        for _ in range(8):
            permits = chance.randint(1, 5)
            async with semaphore.acquire(permits=permits) as lease:
                inside.append(permits)
                most.append(sum(inside))
                fences.append(lease.fence)
                await asyncio.sleep(0)
                inside.remove(permits)

    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(work((here, there)[number % 2]))
    assert len(most) == 48
    assert max(most) == 5, "all permits were used, and never more"
    assert len(set(fences)) == 48
    assert nothing_left(raw)


async def test_primitives_of_different_kinds_with_one_name_are_independent(here):
    async with here.semaphore("a", 1), here.lock("a"), here.rwlock("a").write():
        assert await here.semaphore("a", 1).try_acquire() is None


# --- the queue


async def test_small_requests_do_not_starve_a_large_first_waiter(here, there):
    mine, yours = here.semaphore("a", 3), there.semaphore("a", 3)
    held = [await mine.acquire() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        await holders.queue("large", yours, permits=3)
        await holders.queue("small", mine)
        await holders.queue("other", yours)
        for free, lease in enumerate(held, 1):
            assert holders.current == []
            assert await yours.try_acquire() is None, "a new request would overtake"
            assert await lease.release() is True
            if free < 3:
                assert ((await mine.status()).free, (await mine.status()).waiting) == (free, 3)
        await holders.become("large")
        assert ((await mine.status()).free, (await mine.status()).waiting) == (0, 2)
        await holders.release("large")
        await holders.become("small", "other")
        await holders.release("small")
        await holders.release("other")
    assert holders.fences["large"] < holders.fences["small"] < holders.fences["other"]


async def test_requests_of_different_weights_acquire_in_queue_order(here, there):
    semaphore = here.semaphore("a", 3)
    held = await semaphore.acquire(permits=3)
    sizes = {"a": 2, "b": 1, "c": 3, "d": 1, "e": 1, "f": 3}
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        for number, (who, permits) in enumerate(sizes.items()):
            await holders.queue(who, (here, there)[number % 2].semaphore("a", 3), permits=permits)
        await held.release()
        await holders.become("a", "b")
        await holders.release("b")
        assert (await semaphore.status()).free == 1, "one permit is free, and the next waiter needs three"
        await holders.release("a")
        await holders.become("c")
        await holders.release("c")
        await holders.become("d", "e")
        await holders.release("d")
        assert [waiter.weight for waiter in (await semaphore.status()).waiters] == [3]
        await holders.release("e")
        await holders.become("f")
        await holders.release("f")
    assert sorted(holders.fences, key=holders.fences.get) == list(sizes)


async def test_a_first_waiter_that_times_out_lets_the_next_ones_in(here, there, raw):
    mine = here.semaphore("a", 3)
    held = await mine.acquire(permits=2)

    async def impatient():
        with pytest.raises(AcquireTimeout):
            await there.semaphore("a", 3).acquire(permits=3, timeout=0.3)

    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        giving_up = tasks.create_task(impatient())
        await until_queued(mine)
        await holders.queue("small", there.semaphore("a", 3))
        await giving_up
        await holders.become("small")
        assert await held.release() is True
        await holders.release("small")
    assert nothing_left(raw)


async def test_a_full_queue_refuses_the_next_waiter(here, there, raw):
    full = here.semaphore("a", 2, max_waiters=1)
    held = await full.acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, full)
        await holders.queue("one", there.semaphore("a", 2))
        before = engine_of(raw).dump()
        with pytest.raises(
            QueueFull, match="1 are already waiting for 'a'; try again later or raise max_waiters="
        ) as no:
            await full.acquire(permits=2)
        assert no.value.waiting == 1
        assert engine_of(raw).dump() == before
        await held.release()
        await holders.release("one")


# --- status


async def test_status_lists_weights_and_free_permits(api, server, raw):
    async with api.client(server.url, label="trainer 3") as mine, api.client(server.url) as yours:
        semaphore = mine.semaphore("a", 8)
        empty = await semaphore.status()
        assert (empty.holders, empty.waiters, empty.limit, empty.free, empty.waiting) == ((), (), 8, 8, 0)
        one, five = await semaphore.acquire(), await semaphore.acquire(permits=5)
        async with asyncio.TaskGroup() as tasks:
            holders = Holders(tasks, semaphore)
            await holders.queue("all", yours.semaphore("a", 8), permits=8)
            await holders.queue("next", yours.semaphore("a", 8), permits=2)
            status = await semaphore.status()
            held = {holder.fence: holder for holder in status.holders}
            assert {fence: holder.weight for fence, holder in held.items()} == {one.fence: 1, five.fence: 5}
            assert {holder.label for holder in status.holders} == {"trainer 3"}
            assert not any(holder.exclusive for holder in status.holders)
            assert five.token.startswith(held[five.fence].token)
            assert all(29 < holder.remaining <= 30 for holder in status.holders)
            waiting = [(waiter.position, waiter.weight, waiter.exclusive) for waiter in status.waiters]
            assert waiting == [(0, 8, True), (1, 2, False)]
            assert (status.limit, status.free, status.waiting, status.fence) == (8, 2, 2, five.fence)
            await one.release()
            await five.release()
            await holders.become("all")
            (holder,) = (await semaphore.status()).holders
            assert holder.exclusive, "it holds all permits"
            await holders.release("all")
            await holders.release("next")


async def test_locked_is_true_when_no_permit_is_free(here):
    semaphore = here.semaphore("a", 2)
    assert not await semaphore.locked()
    async with semaphore:
        assert not await semaphore.locked()
        async with semaphore:
            assert await semaphore.locked()
    assert not await semaphore.locked()


# --- renewal and loss


@pytest.mark.usefixtures("short_ticks")
async def test_force_release_revokes_all_leases_and_admits_the_waiters(here, there, raw):
    mine = here.semaphore("a", 3)
    lost = [await mine.acquire(permits=2), await there.semaphore("a", 3).acquire()]
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        await holders.queue("one", mine, permits=2)
        await holders.queue("two", there.semaphore("a", 3))
        await until_listening(raw, 2)
        assert await mine.force_release(reason="the rack is on fire") == 2
        await holders.become("one", "two")
        for lease in lost:
            await eventually_async(lambda lease=lease: lease.lost)
            with pytest.raises(LeaseLost, match="the rack is on fire") as caught:
                lease.check()
            assert (caught.value.name, caught.value.fence) == ("a", lease.fence)
            assert await lease.release() is False
        assert min(holders.fences.values()) > max(lease.fence for lease in lost)
        assert (await mine.status()).free == 0, "a release after the loss does not affect the next holders"
        await holders.release("one")
        await holders.release("two")
    assert await mine.force_release() == 0


@pytest.mark.usefixtures("short_ticks")
async def test_leaving_a_block_after_a_loss_raises_unless_the_block_raised(here, there, raw):
    with pytest.raises(LeaseLost, match="deploy"):
        async with here.semaphore("a", 3).acquire(permits=2) as lease:
            await until_listening(raw)
            await there.semaphore("a", 3).force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
    with pytest.raises(KeyError):
        async with here.semaphore("a", 3):
            raw.flushall()
            raise KeyError
    with pytest.warns(RuntimeWarning, match="deploy"):
        async with here.semaphore("a", 3, on_lost="warn") as lease:
            await there.semaphore("a", 3).force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
    assert nothing_left(raw)


async def test_in_asyncio_the_block_is_cancelled_when_its_permits_are_lost(server, raw):
    reached = []
    async with AsyncHandfast(server.url) as mine, AsyncHandfast(server.url) as operator:
        with pytest.raises(LeaseLost, match="deploy"):
            async with mine.semaphore("a", 3).acquire(permits=2):
                taking = asyncio.create_task(operator.semaphore("a", 3).force_release(reason="deploy"))
                try:
                    await forever()
                except asyncio.CancelledError:
                    reached.append("cancelled")
                    raise
                reached.append("the end")
        assert await taking == 1
    assert reached == ["cancelled"]
    assert asyncio.current_task().cancelling() == 0


# --- resize


async def test_raising_the_limit_admits_waiters_at_once(here, there, raw):
    semaphore = here.semaphore("a", 2)
    held = await semaphore.acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        for who, permits in (("one", 1), ("two", 2), ("three", 1)):
            await holders.queue(who, semaphore, permits=permits)
        assert await there.semaphore("a", 2).resize(5) is None
        status = await semaphore.status()
        weights = sorted(holder.weight for holder in status.holders)
        assert (weights, status.waiting, status.free) == ([1, 2, 2], 1, 0)
        await holders.become("one", "two")
        await holders.release("one")
        await holders.become("two", "three")
        await holders.release("two")
        await holders.release("three")
        assert await held.release() is True
    assert (await semaphore.status()).free == 5


async def test_lowering_the_limit_keeps_holders_and_makes_new_requests_wait(here, there):
    semaphore = here.semaphore("a", 3)
    held = [await semaphore.acquire() for _ in range(3)]
    await there.semaphore("a", 3).resize(1)
    status = await semaphore.status()
    assert (status.limit, status.free, len(status.holders)) == (1, 0, 3)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        await holders.queue("next", semaphore)
        for lease in held:
            assert holders.current == []
            assert await semaphore.try_acquire() is None
            lease.check()
            await lease.extend(40)
            assert await lease.release() is True
        await holders.become("next")
        assert await semaphore.try_acquire() is None
        await holders.release("next")
    assert (await semaphore.status()).free == 1


async def test_a_new_request_above_the_resized_limit_raises_limit_exceeded(here, there, raw):
    semaphore = here.semaphore("a", 4)
    await there.semaphore("a", 4).resize(2)
    words = r"'a' has a limit of 2 \(set by resize\(\)\), less than the \d+ requested; request less or raise the limit"
    for ask in (semaphore.acquire, semaphore.try_acquire):
        with pytest.raises(LimitExceeded, match=words) as caught:
            await ask(permits=3)
        assert (caught.value.name, caught.value.limit) == ("a", 2)
    async with semaphore.acquire(permits=2):
        with pytest.raises(LimitExceeded):
            async with semaphore.acquire(permits=4):
                pytest.fail("the block was entered")
    assert nothing_left(raw)


async def test_waiters_above_the_resized_limit_raise_and_the_others_acquire(here, there, raw):
    semaphore = here.semaphore("a", 4)
    held = await semaphore.acquire(permits=3)

    async def too_much(permits):
        with pytest.raises(LimitExceeded, match="limit of 3 ") as caught:
            await there.semaphore("a", 4).acquire(permits=permits)
        return caught.value.limit

    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        first = tasks.create_task(too_much(4))
        await until_queued(semaphore)
        await holders.queue("fits", there.semaphore("a", 4), permits=3)
        second = tasks.create_task(too_much(4))
        await until_queued(semaphore, 3)
        await holders.queue("small", semaphore)
        await semaphore.resize(3)
        assert await first == 3, "the first waiter is notified at once"
        assert (await semaphore.status()).waiters[0].weight == 3
        assert await held.release() is True
        await holders.become("fits")
        await holders.release("fits")
        assert await second == 3
        await holders.become("small")
        await holders.release("small")
    assert nothing_left(raw)


async def test_a_first_waiter_above_the_resized_limit_is_notified(server, here, there, raw):
    semaphore = here.semaphore("a", 4)
    held = await semaphore.acquire()
    await there.semaphore("a", 4).status()  # connected: the first message below is not the one that it sends itself

    async def too_much():
        with pytest.raises(LimitExceeded):
            await there.semaphore("a", 4).acquire(permits=4)

    with redis.Redis.from_url(operators(server.url)) as binary, binary.pubsub() as subscriber:
        subscriber.psubscribe("hf:*")
        await eventually_async(lambda: subscriber.get_message() is not None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(too_much())
            await until_queued(semaphore)
            (token,) = engine_of(raw).queue()
            await semaphore.resize(3)
            message = await eventually_async(subscriber.get_message)
    told = read_message(message["data"]).split()
    assert told[:3] == ["granted", token, "0"], "a grant of no permits asks the waiter to retry"
    assert await held.release() is True


async def test_resize_none_restores_the_limits_of_the_clients(here, there):
    semaphore = here.semaphore("a", 2)
    await semaphore.resize(5)
    await semaphore.resize(1)
    held = await semaphore.acquire()
    assert await semaphore.try_acquire() is None
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        await holders.queue("one", there.semaphore("a", 2))
        await there.semaphore("a", 2).resize(None)
        await holders.become("one")
        status = await semaphore.status()
        assert (status.limit, status.free) == (2, 0)
        await holders.release("one")
    await there.semaphore("a", 2).resize(None)
    assert await held.release() is True
    async with await semaphore.try_acquire(permits=2):
        assert await semaphore.locked()


async def test_a_resize_overrides_the_limit_of_every_client(here, there):
    small, large = here.semaphore("a", 2), there.semaphore("a", 9)
    await small.resize(3)
    assert (small.limit, large.limit) == (2, 9)
    assert {(await semaphore.status()).limit for semaphore in (small, large)} == {3}
    async with large.acquire(permits=2), small:
        assert await small.try_acquire() is None
        assert await large.try_acquire() is None
    with pytest.raises(ValueError, match="permits must be from 1 to 2, not 3"):
        await small.acquire(permits=3)
    async with await large.try_acquire(permits=3):
        assert await small.locked()


async def test_at_maxmemory_a_resize_is_refused_and_permits_still_come_back(here, there, raw):
    semaphore = here.semaphore("a", 2)
    await semaphore.resize(2)
    held = await semaphore.acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, semaphore)
        await holders.queue("one", there.semaphore("a", 2))
        raw.config_set("maxmemory", 1)
        before = engine_of(raw).dump()
        with pytest.raises(ServerRefused, match="out of memory") as caught:
            await semaphore.resize(5)
        assert caught.value.changed_nothing
        assert engine_of(raw).dump() == before
        await semaphore.resize(None)
        assert await held.release() is True
        await holders.become("one")
        raw.config_set("maxmemory", 0)
        await holders.release("one")
    assert nothing_left(raw)


async def test_a_resize_survives_force_release(here):
    semaphore = here.semaphore("a", 2)
    await semaphore.resize(1)
    lease = await semaphore.acquire()
    assert await semaphore.force_release() == 1
    assert (await semaphore.status()).limit == 1
    assert await lease.release() is False


# --- clients with different limits


async def test_each_request_is_checked_against_its_own_limit(here, there, raw):
    two, five = here.semaphore("a", 2), there.semaphore("a", 5)
    first = await two.acquire(permits=2)
    second = await five.acquire(permits=3)
    assert await two.try_acquire() is None
    assert await five.try_acquire() is None
    assert ((await two.status()).free, (await five.status()).free) == (0, 0)
    await first.release()
    assert await two.try_acquire() is None, "three permits are held, and one more would exceed this client's limit"
    assert ((await two.status()).free, (await five.status()).free) == (0, 2)
    third = await five.try_acquire(permits=2)
    await second.release()
    assert await two.try_acquire() is None
    await third.release()
    async with await two.try_acquire(permits=2):
        assert (await five.status()).free == 3


async def test_a_waiter_with_a_small_limit_is_not_overtaken_by_one_with_a_large_limit(here, there):
    one, five = here.semaphore("a", 1), there.semaphore("a", 5)
    held = await five.acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, one)
        await holders.queue("one", one)
        assert await five.try_acquire() is None
        await held.release()
        await holders.become("one")
        async with five.acquire(permits=4):
            assert await five.try_acquire() is None
        await holders.release("one")


async def test_a_release_admits_every_waiter_that_fits_its_own_limit(here, there):
    two, five = here.semaphore("a", 2), there.semaphore("a", 5)
    held = await two.acquire(permits=2)
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, two)
        await holders.queue("two", two, permits=2)
        await holders.queue("five", five, permits=3)
        await held.release()
        weights = sorted(holder.weight for holder in (await two.status()).holders)
        await holders.become("two", "five")
        await holders.release("two")
        await holders.release("five")
    assert weights == [2, 3], "both hold their permits when the release returns"


def test_a_first_waiter_with_a_limit_of_one_stops_the_handoff_and_the_next_acquires_by_polling(raw):
    one, five = (Engine(raw, kind="semaphore", limit=limit) for limit in (1, 5))
    with raw.pubsub() as subscriber:
        subscriber.subscribe("inbox:one", "inbox:five")
        eventually(lambda: dict(raw.pubsub_numsub("inbox:one", "inbox:five")) == {"inbox:one": 1, "inbox:five": 1})
        one.acquire("held")
        one.acquire("one")
        five.acquire("five")
        one.release("held")
        assert five.holders() == ["one"]
        assert five.acquire("five")[0] == "granted"
        assert sorted(five.holders()) == ["five", "one"]


async def test_a_dead_first_waiter_with_a_small_limit_blocks_no_request(here, raw):
    semaphore = here.semaphore("a", 5)
    async with semaphore:
        Engine(raw, kind="semaphore", limit=1).acquire("dead")  # its inbox has no subscriber
        lease = await semaphore.try_acquire()
        assert lease is not None
        assert await lease.release() is True


async def test_exclusive_is_relative_to_the_resized_limit(here):
    semaphore = here.semaphore("a", 4)
    await semaphore.resize(2)
    async with semaphore.acquire(permits=2):
        fewer = (await semaphore.status()).holders[0].exclusive
    await semaphore.resize(8)
    async with semaphore.acquire(permits=4):
        more = (await semaphore.status()).holders[0].exclusive
    assert (fewer, more) == (True, False)


async def test_status_has_the_last_resize(api, server, raw):
    async with api.client(server.url, label="ops@bastion 1") as client:
        semaphore = client.semaphore("a", 3)
        await semaphore.resize(5)
        assert (await semaphore.status()).last.why == "5"
        await semaphore.resize(None)
        last = (await semaphore.status()).last
        assert (last.what, last.by, last.why) == ("resize", "ops@bastion 1", "0")


# --- invalid arguments


@pytest.mark.parametrize(
    ("limit", "error", "words"),
    [
        (0, ValueError, r"limit must be from 1 to 1,000,000,000, not 0"),
        (-1, ValueError, "limit must be from 1"),
        (1_000_000_001, ValueError, "limit must be from 1 to 1,000,000,000"),
        (True, TypeError, "limit must be an int, not True"),
        (2.0, TypeError, r"limit must be an int, not 2\.0"),
        ("4", TypeError, "limit must be an int, not '4'"),
        (None, TypeError, "limit must be an int, not None"),
    ],
)
async def test_bad_limits_are_refused_before_any_io(api, limit, error, words):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error, match=words):
            client.semaphore("a", limit)
        if limit is not None:
            with pytest.raises(error, match=words):
                await client.semaphore("a", 4).resize(limit)


@pytest.mark.parametrize(
    ("permits", "error", "words"),
    [
        (0, ValueError, "permits must be from 1 to 4, not 0"),
        (5, ValueError, "permits must be from 1 to 4, not 5"),
        (-1, ValueError, "permits must be from 1 to 4"),
        (True, TypeError, "permits must be an int, not True"),
        (1.0, TypeError, r"permits must be an int, not 1\.0"),
        ("2", TypeError, "permits must be an int, not '2'"),
        (None, TypeError, "permits must be an int, not None"),
    ],
)
async def test_invalid_permits_are_refused_before_any_io(api, permits, error, words):
    async with api.client(NOWHERE) as client:
        semaphore = client.semaphore("a", 4)
        for ask in (semaphore.acquire, semaphore.try_acquire):
            with pytest.raises(error, match=words):
                await ask(permits=permits)
        with pytest.raises(error, match=words):
            async with semaphore.acquire(permits=permits):
                pytest.fail("the block was entered")


async def test_permits_is_keyword_only_and_the_largest_limit_works(here):
    semaphore = here.semaphore("a", limit=1_000_000_000)
    with pytest.raises(TypeError):
        await semaphore.acquire(2)
    async with semaphore.acquire(permits=999_999_999):
        async with semaphore:
            assert (await semaphore.status()).free == 0
            assert await semaphore.try_acquire() is None
        assert (await semaphore.status()).free == 1


async def test_one_try_acquire_is_one_script_call(here, raw):
    semaphore = here.semaphore("a", 2)
    await (await semaphore.acquire(permits=2)).release()
    before = scripts_run(raw)
    lease = await semaphore.try_acquire(permits=2)
    assert await semaphore.try_acquire() is None
    assert scripts_run(raw) == before + 2
    await lease.release()
