"""Preempt and replace: what happens to the holder and to those who wait when a later request comes, in both APIs."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from handfast import AcquireTimeout, LeaseLost, Preempted, Superseded, WouldDeadlock
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, until_queued
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async, settled

OVERTAKE = script("permit_overtake")

SOON_S = 0.2
"""A grace in seconds that is to end."""


class Turn:
    """A block that works until it is asked to end, and then cleans up. In the sync API it asks `check` itself."""

    def __init__(self, lock):
        self._lock = lock
        self.cleaned = asyncio.Event()
        self.lease = None
        self.may_clean_up = asyncio.Event()
        self.may_clean_up.set()

    async def run(self):
        async with self._lock as self.lease:
            try:
                while True:
                    await asyncio.sleep(0)
                    self.lease.check()
            finally:
                await self.may_clean_up.wait()
                self.lease.check()  # it is raised once, and the lease is still held
                self.cleaned.set()


async def until_held(turn):
    await eventually_async(lambda: turn.lease is not None)


async def test_the_holder_cleans_up_under_its_lease_before_the_next_turn_begins(here, there, raw):
    turn = Turn(here.lock("a"))
    held = asyncio.create_task(turn.run())
    await until_held(turn)
    await until_listening(raw)
    async with there.lock("a").preempt(grace=20, reason="a new message") as lease:
        assert turn.cleaned.is_set()
        assert lease.fence > turn.lease.fence
        assert not lease.wanted
    with pytest.raises(Preempted, match=r"is to be given up within 20 s: .*asks for it: a new message") as caught:
        await held
    assert isinstance(caught.value, LeaseLost)
    assert (caught.value.name, caught.value.fence, caught.value.reason) == ("a", turn.lease.fence, "a new message")
    assert caught.value.by == there._driver.label
    assert 0 < caught.value.grace <= 20
    assert not turn.lease.lost, "it was released"
    assert turn.lease.wanted == "a new message"
    assert not await here.lock("a").locked()


async def test_a_holder_that_does_not_end_loses_its_lease_after_the_grace(here, there, raw):
    lease = await here.lock("a", yields=False).acquire()
    await until_listening(raw)
    async with there.lock("a").preempt(grace=SOON_S, reason="a new message") as later:
        assert later.fence > lease.fence
        await eventually_async(lambda: lease.lost)
        with pytest.raises(LeaseLost, match="its holder was asked to end and did not in time: a new message") as caught:
            lease.check()
        assert not isinstance(caught.value, Preempted)
    last = (await here.lock("a").status()).last
    assert (last.what, last.by, last.why) == ("preempt", there._driver.label, "a new message")


async def test_a_holder_is_only_told_if_it_does_not_yield(here, there, raw):
    lock = here.lock("a", yields=False)
    async with asyncio.TaskGroup() as tasks:
        async with lock as lease:
            event = lease.wanted_event
            assert not event.is_set()
            await until_listening(raw)
            later = tasks.create_task(settled_turn(there.lock("a").preempt(grace=20)))
            await eventually_async(event.is_set)
            assert lease.wanted == "a later request"
            lease.check()
            holder = (await there.lock("a").status()).holders[0]
            assert 0 < holder.wanted <= 20
            assert 0 < lease.remaining() <= 20, "it does not count on more than the grace"
        await later


async def test_the_event_that_asks_for_the_end_is_set_by_a_loss_too(here, there, raw):
    """A thread that waits for this event alone must not wait for the end of a lease that is over."""
    lease = await here.lock("a").acquire()
    early = lease.wanted_event
    assert await there.lock("a").force_release(reason="hangs") == 1
    await eventually_async(early.is_set)
    assert (lease.lost, lease.wanted) == (True, None)
    assert lease.wanted_event.is_set()


async def settled_turn(steps):
    async with steps as lease:
        return lease.fence


async def test_with_on_lost_warn_the_block_runs_to_its_end(here, there, raw):
    async with asyncio.TaskGroup() as tasks:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with here.lock("a", on_lost="warn") as lease:
                await until_listening(raw)
                later = tasks.create_task(settled_turn(there.lock("a").preempt(grace=20)))
                await eventually_async(lambda: lease.wanted)
                lease.check()
        await later


async def test_of_several_requests_the_newest_is_next_and_those_who_wait_keep_their_places(here, there):
    lock, order = here.lock("a"), []

    async def turn(who, steps):
        async with steps:
            order.append(who)

    async with asyncio.TaskGroup() as tasks:
        async with here.lock("a", yields=False):
            first = tasks.create_task(turn("first", there.lock("a").acquire(timeout=20)))
            await until_queued(lock)
            older = tasks.create_task(raises(Superseded, there.lock("a").preempt(grace=20)))
            await until_queued(lock, 2)
            second = tasks.create_task(turn("second", there.lock("a").acquire(timeout=20)))
            await until_queued(lock, 3)
            newest = tasks.create_task(turn("newest", here.lock("a").preempt(grace=20)))
            await older
            waiters = (await lock.status()).waiters
            assert [one.head_start > 0 for one in waiters] == [True, False, False]
        for task in (first, second, newest):
            await task
    assert order == ["newest", "first", "second"]


async def raises(error, steps):
    with pytest.raises(error):
        async with steps:
            pytest.fail("the block was entered")


async def test_the_first_request_sets_the_end(here, there, raw):
    lease = await here.lock("a", yields=False).acquire()
    await until_listening(raw)
    async with asyncio.TaskGroup() as tasks:
        older = tasks.create_task(raises(Superseded, there.lock("a").preempt(grace=SOON_S)))
        await eventually_async(lambda: lease.wanted)
        async with there.lock("a").preempt(grace=1000):
            assert lease.lost
        await older


async def test_without_a_grace_the_lease_is_taken_at_once(here, there):
    lease = await here.lock("a").acquire()
    async with there.lock("a").preempt(grace=0):
        await eventually_async(lambda: lease.lost)


async def test_a_free_lock_is_acquired(here):
    async with here.lock("a").preempt() as lease:
        assert lease.waited < 5
    async with here.lock("a").replace():
        pass
    assert (await here.lock("a").status()).waited < 5


async def test_a_replacement_is_next_and_older_requests_are_superseded(here, there):
    lock = here.lock("a")
    async with asyncio.TaskGroup() as tasks:
        async with lock as holding:
            older = [tasks.create_task(raises(Superseded, there.lock("a").acquire(timeout=20)))]
            await until_queued(lock)
            older.append(tasks.create_task(raises(Superseded, there.lock("a").acquire(timeout=20, head_start=60))))
            await until_queued(lock, 2)
            newest = tasks.create_task(settled_turn(there.lock("a", max_waiters=2).replace()))
            for task in older:
                await task
            await until_queued(lock)
            assert not holding.wanted
        await newest


async def test_of_a_burst_of_replacements_two_run(here, there):
    ran = []

    async def call(number):
        client = here if number % 2 else there
        try:
            async with client.lock("a").replace():
                ran.append(number)
                await until_newest.wait()
        except Superseded:
            superseded.append(number)

    superseded, until_newest = [], asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(call(0))
        await eventually_async(lambda: ran)
        for number in range(1, 8):
            tasks.create_task(call(number))
        await eventually_async(lambda: len(superseded) == 6)
        until_newest.set()
    assert ran[0] == 0
    assert len(ran) == 2


async def test_several_locks_that_wait_are_superseded_as_well(here, there, raw):
    async with asyncio.TaskGroup() as tasks:
        async with here.lock("a"):
            both = tasks.create_task(raises(Superseded, there.lock_all(["a", "b"]).acquire(timeout=20)))
            await until_queued(here.lock("a"))
            newest = tasks.create_task(settled_turn(there.lock("a").replace()))
            await both
        await newest
    assert not await there.lock("b").locked()


async def test_a_lease_ends_with_the_grace_although_the_request_that_asked_has_gone(here, there, raw):
    lease = await here.lock("a", ttl=3600, yields=False).acquire()
    await until_listening(raw)
    with pytest.raises(AcquireTimeout):
        await there.lock("a").preempt(grace=SOON_S, timeout=SOON_S / 2)
    async with there.lock("a").acquire(timeout=20) as later:
        assert later.fence > lease.fence
        assert lease.lost


async def test_of_several_holders_as_many_end_as_are_in_the_way(here, there, raw):
    await here.semaphore("a", 1).resize(3)
    leases = [await here.semaphore("a", 1, yields=False).acquire() for _ in range(3)]
    await until_listening(raw)
    async with there.semaphore("a", 1).preempt(grace=0):
        await eventually_async(lambda: sum(lease.lost for lease in leases) == 1)
        assert (await there.semaphore("a", 1).status()).holding == 3
    for lease in leases:
        await lease.release()


async def test_a_semaphore_of_one_permit_can_be_preempted(here, there, raw):
    turn = Turn(here.semaphore("a", 1))
    held = asyncio.create_task(turn.run())
    await until_held(turn)
    await until_listening(raw)
    async with there.semaphore("a", 1).preempt(grace=20):
        assert turn.cleaned.is_set()
    with pytest.raises(Preempted):
        await held


async def test_the_holder_of_a_reentrant_lock_ends_its_outer_block(here, there, raw):
    lock = here.rlock("a")
    entered = asyncio.Event()

    async def work():
        async with lock, lock as lease:
            entered.set()
            while True:
                await asyncio.sleep(0)
                lease.check()

    held = asyncio.create_task(work())
    await entered.wait()
    await until_listening(raw)
    async with there.lock("a").preempt(grace=20):
        pass
    with pytest.raises(Preempted):
        await held


async def test_a_task_that_holds_it_itself_asks_no_one(server):
    async with ASYNCIO.client(server.url) as client, client.lock("a") as lease:
        for steps in (client.lock("a").preempt(grace=20), client.lock("a").replace()):
            with pytest.raises(WouldDeadlock):
                await steps
        assert not lease.wanted
        assert (await client.lock("a").status()).waiting == 0


def test_a_thread_that_holds_it_itself_asks_no_one(hf):
    with hf.lock("a") as lease:
        for steps in (hf.lock("a").preempt, hf.lock("a").replace):
            with pytest.raises(WouldDeadlock):
                steps()
        assert not lease.wanted
        assert hf.lock("a").status().waiting == 0


async def test_a_lock_that_rests_is_waited_for(here, there):
    lease = await here.lock("a", at_least=SOON_S).acquire()
    await lease.release()
    async with there.lock("a").preempt(grace=0) as later:
        assert later.fence > lease.fence
    assert (await here.lock("a").status()).last is None, "nothing was taken"


async def test_a_timeout_ends_the_wait_and_0_asks_no_one(here, there, raw):
    async with here.lock("a", yields=False) as lease:
        for steps in (there.lock("a").preempt(grace=20, timeout=0), there.lock("a").replace(timeout=0)):
            with pytest.raises(AcquireTimeout):
                await settled(steps)
        assert not lease.wanted
        await until_listening(raw)
        with pytest.raises(AcquireTimeout):
            await there.lock("a", timeout=SOON_S).preempt(grace=20)
        assert lease.wanted
        assert (await here.lock("a").status()).waiting == 0


# --- decorators


async def called(function, *args):
    """Call a decorated function, of the sync API in a thread of its own."""
    return await (function(*args) if asyncio.iscoroutinefunction(function) else asyncio.to_thread(function, *args))


async def test_a_decorated_call_preempts_or_replaces(api, plain, there, raw):
    ran = []

    def turn(who):
        ran.append(who)

    def index(number):
        return number

    turn = plain.lock("turn:{who}")(on_busy="preempt", grace=20)(api.function(turn))
    index = plain.lock("a")(on_busy="replace")(api.function(index))

    other = Turn(there.lock("turn:7"))
    held = asyncio.create_task(other.run())
    await until_held(other)
    await until_listening(raw)
    await called(turn, 7)
    assert ran == [7]
    with pytest.raises(Preempted):
        await held
    async with asyncio.TaskGroup() as tasks:
        async with there.lock("a"):
            older = tasks.create_task(called(index, 1))
            await until_queued(there.lock("a"))
            newest = tasks.create_task(called(index, 2))
            assert await older is None
        assert await newest == 2


async def test_what_is_superseded_within_a_decorated_function_is_its_own(api, plain):
    def call():
        raise Superseded("b")

    call = plain.lock("a")(on_busy="replace")(api.function(call))
    with pytest.raises(Superseded):
        await settled(call())


# --- bad input


async def test_bad_input_is_refused_before_any_io(api, plain):
    async with api.client(NOWHERE) as client:
        lock = client.lock("a")
        for grace in (-1, float("nan"), float("inf"), "1", True, 400 * 86_400):
            with pytest.raises((TypeError, ValueError), match="grace must"):
                await lock.preempt(grace=grace)
        for reason in ("", 7, "x" * 1001):
            with pytest.raises((TypeError, ValueError), match="reason must"):
                await lock.preempt(reason=reason)
        for method in (lock.preempt, lock.replace):
            with pytest.raises((TypeError, ValueError), match="timeout must"):
                await method(timeout=float("nan"))
            with pytest.raises(TypeError, match="renew"):
                await method(renew=False)
        for method in (client.semaphore("a", 2).preempt, client.semaphore("a", 2).replace):
            with pytest.raises(TypeError, match="may have 2 holders"):
                await method()
    for other in (plain.rlock("a"), plain.rwlock("a").write(), plain.lock_all(["a"]), plain.semaphore("a", 2)):
        for on_busy in ("preempt", "replace"):
            with pytest.raises(TypeError, match="use a lock"):
                other(on_busy=on_busy)
    with pytest.raises(ValueError, match="grace has no use"):
        plain.lock("a")(on_busy="replace", grace=5)
    with pytest.raises((TypeError, ValueError), match="grace must"):
        plain.lock("a")(on_busy="preempt", grace=-1)


# --- faults


@pytest.mark.parametrize("lost", ["reply", "call"])
async def test_a_call_or_reply_that_is_lost_delays_it_only(api, server, here, raw, lost):
    turn = Turn(here.lock("a"))
    held = asyncio.create_task(turn.run())
    await until_held(turn)
    await until_listening(raw)
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            fault = proxy.lose_reply(OVERTAKE) if lost == "reply" else proxy.lose_request(OVERTAKE)
            async with far.lock("a").preempt(grace=20):
                assert turn.cleaned.is_set()
            assert fault.happened == 1
    with pytest.raises(Preempted):
        await held


async def test_a_request_that_dies_leaves_the_queue_going(api, server, here, there, raw):
    turn = Turn(here.lock("a"))
    held = asyncio.create_task(turn.run())
    await until_held(turn)
    await until_listening(raw)
    waiter = asyncio.create_task(settled_turn(there.lock("a").acquire(timeout=20)))
    await until_queued(here.lock("a"))
    turn.may_clean_up.clear()
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, release_at_exit=False) as mortal:
            dying = asyncio.create_task(settled_turn(mortal.lock("a").preempt(grace=20, timeout=20)))
            await eventually_async(lambda: turn.lease.wanted)
            proxy.cut()
            turn.may_clean_up.set()
            with pytest.raises(Preempted):
                await held
            assert await waiter > turn.lease.fence
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)


async def test_a_holder_that_hears_nothing_is_revoked_after_the_grace(api, server, there):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as deaf:
            lease = await deaf.lock("a").acquire()
            proxy.lose_pushes()
            async with there.lock("a").preempt(grace=SOON_S) as later:
                assert later.fence > lease.fence
