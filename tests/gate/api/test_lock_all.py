"""`lock_all` through both APIs: it acquires all names or none, and holds no name while it waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AcquireTimeout, Handfast, HandfastError, LeaseLost, NotHeld, QueueFull
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, until_queued
from tests._support.cancelling import Scene
from tests._support.engine import Engine
from tests._support.family import NOWHERE, until_listening
from tests._support.helpers import eventually_async, forever, more

ODD = ["}", "{", "{a}", "a:q", "a}:holders", " ", "a b", "\0", "a\nb", "é", "🔒", "%7B", ":", "*", "a, b", "x" * 10_000]

CALLS = {
    verb: script("multi_acquire" if verb == "acquire" else f"permit_{verb}")
    for verb in ("acquire", "release", "renew", "cancel")
}


def holders(raw, names="ab"):
    return [Engine(raw, name).holders() for name in names]


def queues(raw, names="ab"):
    return [Engine(raw, name).queue() for name in names]


def nothing_left(raw, names="ab"):
    return not any(holders(raw, names) + queues(raw, names))


async def take_and_give(lock):
    """Wait for the lock, release it, and return its fence."""
    async with lock.acquire(timeout=20) as lease:
        return lease.fence


# --- holding


async def test_all_names_are_acquired_at_once_with_one_fence_and_exclude_others(here, there, raw):
    async with here.lock("b") as before:
        pass
    lease = await here.lock_all(["a", "b"]).acquire()
    assert holders(raw) == [[lease.token], [lease.token]]
    assert lease.fence > before.fence
    assert lease.fences == {"a": lease.fence, "b": lease.fence}
    for other in (
        there.lock("a"),
        there.lock("b"),
        there.rlock("b"),
        there.lock_all(["a"]),
        there.lock_all(["b", "c"]),
    ):
        assert await other.try_acquire() is None
        with pytest.raises(AcquireTimeout):
            await other.acquire(timeout=0.01)
    assert await lease.release() is True
    assert nothing_left(raw, "abc")
    async with there.lock("a") as first, there.lock("b") as second:
        assert min(first.fence, second.fence) > lease.fence


@pytest.mark.parametrize("kind", ["lock", "rlock"])
async def test_a_holder_of_one_name_blocks_the_whole_request(here, there, raw, kind):
    async with asyncio.TaskGroup() as tasks:
        async with getattr(here, kind)("b") as lease:
            assert await there.lock_all(["a", "b"]).try_acquire() is None
            waiter = tasks.create_task(take_and_give(there.lock_all(["a", "b"])))
            await until_queued(here.lock("a"))
            assert holders(raw) == [[], [lease.token]], "it holds no name while it waits"
            assert not await here.lock("a").locked()
            assert not waiter.done()
    assert waiter.result() > lease.fence
    assert nothing_left(raw)


async def test_later_requests_for_one_name_queue_behind_it(here, there):
    async with asyncio.TaskGroup() as tasks:
        lease = await here.lock("b").acquire()
        bundle = tasks.create_task(take_and_give(there.lock_all(["a", "b"])))
        await until_queued(here.lock("a"))
        assert await there.lock("a").try_acquire() is None, "it is free, but another request is first in the queue"
        single = tasks.create_task(take_and_give(here.lock("a")))
        await until_queued(here.lock("a"), 2)
        other = tasks.create_task(take_and_give(here.lock_all(["c", "a"])))
        await until_queued(here.lock("a"), 3)
        await lease.release()
    assert lease.fence < bundle.result() < single.result() < other.result()


async def test_a_request_for_several_names_queues_behind_earlier_waiters(here, there):
    async with asyncio.TaskGroup() as tasks:
        lease = await here.lock("a").acquire()
        first = tasks.create_task(take_and_give(there.lock("a")))
        await until_queued(here.lock("a"))
        bundle = tasks.create_task(take_and_give(here.lock_all(["b", "a"])))
        await until_queued(here.lock("b"))
        last = tasks.create_task(take_and_give(there.lock("b")))
        await until_queued(here.lock("b"), 2)
        assert not first.done()
        await lease.release()
    assert lease.fence < first.result() < bundle.result() < last.result()


async def test_requests_for_overlapping_names_in_any_order_never_deadlock(here, there, raw):
    inside, most, fences = dict.fromkeys("abc", 0), [], {name: [] for name in "abc"}

    async def work(client, names):
        lock = client.lock_all(names) if len(names) > 1 else client.lock(names)
        for _ in range(12):
            async with lock.acquire(timeout=20) as lease:
                for name in names:
                    inside[name] += 1
                    most.append(inside[name])
                    fences[name].append(lease.fence)
                await asyncio.sleep(0)
                for name in names:
                    inside[name] -= 1

    async with asyncio.TaskGroup() as tasks:
        for names in (["a", "b"], ["b", "c"], ["c", "a"], ["c", "b", "a"], "b", "c"):
            for client in (here, there):
                tasks.create_task(work(client, names))
    assert set(most) == {1}
    assert all(found == sorted(set(found)) for found in fences.values())
    assert nothing_left(raw, "abc")


async def test_a_repeated_name_counts_once_and_the_order_is_kept(here, raw):
    lock = here.lock_all(name for name in ["b", "a", "b", "c", "a"])
    assert lock.names == ("b", "a", "c")
    async with lock as lease:
        assert lease.name == "b, a, c"
        assert list(lease.fences) == ["b", "a", "c"]
        assert holders(raw, "abc") == [[lease.token]] * 3
    assert nothing_left(raw, "abc")
    async with here.lock_all(["a"]) as lease:
        assert lease.fences == {"a": lease.fence}


async def test_odd_names_can_be_locked(here, there):
    async with here.lock_all(ODD) as lease:
        assert set(lease.fences) == set(ODD)
        assert await there.lock_all(ODD[::-1]).try_acquire() is None
        for name in ODD:
            (holder,) = (await there.lock(name).status()).holders
            assert holder.fence == lease.fence
    for name in ODD:
        async with there.lock(name).acquire(timeout=5):
            pass


async def test_a_hundred_names_is_the_maximum(here, there):
    names = [f"n{number}" for number in range(100)]
    async with here.lock_all(names + names) as lease:
        assert len(lease.fences) == 100
        assert await there.lock("n99").try_acquire() is None
    assert not await here.lock_all(names).locked()


async def test_every_form_of_context_manager_works(here, raw):
    lock = here.lock_all(["a", "b"])
    for block in (lock, lock.acquire(timeout=5)):
        async with block as lease:
            assert holders(raw) == [[lease.token]] * 2
        assert nothing_left(raw)
    with pytest.raises(KeyError, match="mine"):
        async with lock:
            raise KeyError("mine")
    assert nothing_left(raw)
    lease = await lock.try_acquire()
    async with lease as same:
        assert same.token == lease.token
    assert nothing_left(raw)


async def test_a_decorated_function_runs_under_all_locks(api, here, raw):
    found = []
    job = here.lock_all(["a", "b"])(api.function(lambda: found.append(holders(raw))))
    await job()
    await job()
    assert [len(held) for one in found for held in one] == [1] * 4
    assert nothing_left(raw)


async def test_a_released_lease_reports_it(here):
    lease = await here.lock_all(["a", "b"]).acquire()
    lease.check()
    assert await lease.release() is True
    assert await lease.release() is False
    assert not lease.lost
    with pytest.raises(NotHeld, match="'a, b'"):
        lease.check()
    assert "released" in repr(lease)


# --- waits that fail


async def test_a_refused_try_and_a_timeout_leave_no_state(here, there, raw):
    async with here.lock("b"):
        before = [Engine(raw, name).dump() for name in "ab"]
        assert await there.lock_all(["a", "b"]).try_acquire() is None
        assert [Engine(raw, name).dump() for name in "ab"] == before
        with pytest.raises(AcquireTimeout, match=r"'a, b' could not be acquired within 0\.05 s: .* has held 'b' for"):
            await there.lock_all(["a", "b"]).acquire(timeout=0.05)
        with pytest.raises(AcquireTimeout):
            async with there.lock_all(["a", "b"]).acquire(timeout=0.01):
                pytest.fail("the block was entered")
        assert queues(raw) == [[], []]
        async with there.lock("a").acquire(timeout=5):
            pass


async def test_a_full_queue_for_one_name_refuses_the_whole_request(here, there, raw):
    async with asyncio.TaskGroup() as tasks, here.lock("a"):
        tasks.create_task(take_and_give(there.lock("a")))
        await until_queued(here.lock("a"))
        with pytest.raises(QueueFull, match="1 are already waiting for 'b, a'"):
            await here.lock_all(["b", "a"], max_waiters=1).acquire()
        assert await here.lock_all(["b", "a"], max_waiters=1).try_acquire() is None
        assert [len(line) for line in queues(raw)] == [1, 0]


async def test_a_waiter_that_times_out_lets_the_next_one_in(here, there, raw):
    async def give_up():
        with pytest.raises(AcquireTimeout):
            await here.lock_all(["a", "b"]).acquire(timeout=0.3)

    async with there.lock("b"), asyncio.TaskGroup() as tasks:
        impatient = tasks.create_task(give_up())
        await eventually_async(lambda: queues(raw)[0] or impatient.done())
        await take_and_give(there.lock("a"))


# --- lost leases


@pytest.mark.usefixtures("short_ticks")
@pytest.mark.parametrize("lost", ["a", *more("b", "c")])
async def test_losing_one_name_loses_the_lease_and_leaving_the_block_releases_the_rest(api, here, there, raw, lost):
    async def intrude():
        assert await there.lock(lost).force_release(reason="maintenance") == 1
        return await there.lock(lost).acquire(timeout=5)

    with pytest.raises(LeaseLost, match=r"'a, b, c'.*maintenance"):
        async with here.lock_all(["a", "b", "c"], ttl=60) as lease:
            await until_listening(raw)
            intruder = asyncio.create_task(intrude())
            await eventually_async(lambda: lease.lost)
            if api is ASYNCIO:
                await forever()  # the block is cancelled
    stranger = await intruder
    await eventually_async(lambda: holders(raw, "abc") == [[stranger.token] if name == lost else [] for name in "abc"])
    assert await lease.release() is False
    assert await stranger.release() is True


@pytest.mark.usefixtures("short_ticks")
async def test_releasing_a_lost_lease_hands_its_remaining_names_to_waiters(here, there, raw):
    async with asyncio.TaskGroup() as tasks:
        lease = await here.lock_all(["a", "b"], ttl=60).acquire()
        await until_listening(raw)
        single = tasks.create_task(take_and_give(there.lock("b")))
        await until_queued(here.lock("b"))
        await there.lock("a").force_release(reason="maintenance")
        await eventually_async(lambda: lease.lost)
        assert holders(raw) == [[], [lease.token]]
        with pytest.raises(LeaseLost, match="maintenance"):
            lease.check()
        assert not single.done()
        assert await lease.release() is False
    assert single.result() > lease.fence
    assert nothing_left(raw)


@pytest.mark.usefixtures("short_ticks")
@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_release_past_a_hundred_waiters_that_are_gone_takes_two_calls_and_is_no_loss(here, there, raw, first):
    names = ["a", "b"] if first == "a" else ["b", "a"]
    lease = await here.lock_all(names).acquire()
    async with asyncio.TaskGroup() as tasks:
        waiters = [tasks.create_task(take_and_give(there.lock("a")))]
        await until_queued(there.lock("a"))
        for number in range(100):
            Engine(raw, "b").acquire(f"gone{number}")
        waiters.append(tasks.create_task(take_and_give(there.lock("b"))))
        await until_queued(there.lock("b"), 101)
        assert await lease.release() is True
    assert all(waiter.result() > lease.fence for waiter in waiters)


async def test_on_lost_warn_lets_the_block_continue(here, there, raw):
    with pytest.warns(RuntimeWarning, match=r"'a, b'.*maintenance"):
        async with here.lock_all(["a", "b"], ttl=60, on_lost="warn") as lease:
            await until_listening(raw)
            await there.lock("a").force_release(reason="maintenance")
            await eventually_async(lambda: lease.lost)
    await eventually_async(lambda: nothing_left(raw))


async def test_release_detects_a_loss_that_was_not_announced(here, raw):
    lease = await here.lock_all(["a", "b"], ttl=60).acquire()
    raw.delete(Engine(raw, "b").key("state"))
    assert await lease.release() is False
    assert lease.lost
    assert nothing_left(raw)
    with pytest.raises(LeaseLost):
        async with here.lock_all(["a", "b"], ttl=60):
            raw.delete(Engine(raw, "a").key("state"))
    assert nothing_left(raw)


# --- status


async def test_status_lists_each_name(here, there):
    lock = here.lock_all(["a", "b"])
    async with asyncio.TaskGroup() as tasks, there.lock("b") as lease:
        assert await lock.locked()
        tasks.create_task(take_and_give(lock))
        await until_queued(here.lock("a"))
        status = await lock.status()
        assert list(status) == ["a", "b"]
        assert [len(one.holders) for one in status.values()] == [0, 1]
        assert [len(one.waiters) for one in status.values()] == [1, 1]
        assert status["b"].holders[0].fence == lease.fence
        assert status["a"].waiters[0].exclusive
    assert not await lock.locked()


@pytest.mark.usefixtures("short_ticks")
async def test_force_release_revokes_every_name(here, there, raw):
    lock = there.lock_all(["a", "b", "c"])
    lease = await here.lock_all(["a", "b"]).acquire()
    other = await here.lock("c").acquire()
    await until_listening(raw)
    assert await lock.force_release(reason="maintenance") == 3
    await eventually_async(lambda: lease.lost and other.lost)
    assert await lock.force_release() == 0
    assert nothing_left(raw, "abc")


# --- invalid arguments


BAD_NAMES = {
    "none": ([], ValueError),
    "none to come": (iter(()), ValueError),
    "an empty one": (["a", ""], ValueError),
    "101": ([f"n{number}" for number in range(101)], ValueError),
    "no Unicode": (["a", "\ud800"], ValueError),
    "a long one": (["a", "x" * 16_385], ValueError),
    "a str": ("ab", TypeError),
    "bytes": (b"ab", TypeError),
    "None": (None, TypeError),
    "a number": (1, TypeError),
    "numbers": ([1], TypeError),
    "None among them": (["a", None], TypeError),
    "bytes among them": ([b"a"], TypeError),
    "a list among them": ([["a"]], TypeError),
}


@pytest.mark.parametrize(("names", "error"), BAD_NAMES.values(), ids=BAD_NAMES)
async def test_invalid_name_lists_are_refused_before_any_io(api, names, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            client.lock_all(names)


# --- lost requests and replies


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, here, proxy):
    """Yield a connected client behind the proxy, with all scripts loaded on the server."""
    lock = here.lock_all(["warm", "warmer"])
    lease = await lock.acquire()
    await lease.extend(1)
    with pytest.raises(AcquireTimeout):
        await lock.acquire(timeout=0.001)
    await lease.release()
    async with api.client(proxy.url) as client:
        async with client.lock_all(["warm", "warmer"]):
            pass
        yield client


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("verb", ["acquire", "release"])
async def test_a_lost_acquire_or_release_is_retried_and_takes_effect_once(far, proxy, raw, verb, what):
    fences = []
    for _ in range(8):
        fault = getattr(proxy, what)(CALLS[verb])
        lease = await far.lock_all(["a", "b"]).acquire(timeout=5)
        assert holders(raw) == [[lease.token]] * 2
        assert await lease.release() is True
        assert fault.spent
        assert nothing_left(raw)
        fences.append(lease.fence)
    assert fences == sorted(set(fences))


async def test_a_lost_cancel_leaves_no_entry_in_any_queue(far, proxy, raw, here):
    async with here.lock("b"):
        for what in ("lose_reply", "lose_request") * 3:
            fault = getattr(proxy, what)(CALLS["cancel"])
            with pytest.raises(AcquireTimeout):
                await far.lock_all(["a", "b"]).acquire(timeout=0.01)
            assert fault.spent
            await eventually_async(lambda: queues(raw) == [[], []])


async def test_a_waiter_whose_connection_breaks_keeps_its_queue_positions(far, proxy, raw, here):
    async with asyncio.TaskGroup() as tasks:
        async with here.lock("b"):
            waiter = tasks.create_task(take_and_give(far.lock_all(["a", "b"])))
            await until_queued(here.lock("a"))
            places = queues(raw)
            for _ in range(3):
                seen = len(proxy.commands)
                proxy.cut()
                await eventually_async(lambda seen=seen: any(map(CALLS["acquire"], proxy.commands[seen:])))
            assert queues(raw) == places
        await waiter


async def test_a_waiter_that_loses_a_name_before_its_grant_arrives_starts_over(far, proxy, raw):
    asked, stranger = [], Engine(raw, "a")

    def meddle(request):
        """Let the lease of one of the locks end before the second request arrives."""
        asked.append(request)
        if len(asked) == 2:
            stranger.end_lease(*stranger.holders())
            stranger.acquire("stranger")

    proxy.before(CALLS["acquire"], meddle)
    proxy.lose_reply(CALLS["acquire"])
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(take_and_give(far.lock_all(["a", "b"])))
        await eventually_async(lambda: queues(raw)[1])
        assert holders(raw) == [["stranger"], []], "it released the remaining name"
        assert not waiter.done()
        fence = stranger.inspect()[2]
        stranger.release("stranger")
    assert waiter.result() > fence
    assert nothing_left(raw)


async def test_a_waiter_whose_grant_is_revoked_before_it_heard_of_it_raises(far, proxy, raw):
    asked, names = [], Engine(raw, "a")

    def meddle(request):
        """Revoke one of the locks before the second request arrives."""
        asked.append(request)
        if len(asked) == 2:
            names.revoke(2**53)

    proxy.before(CALLS["acquire"], meddle)
    proxy.lose_reply(CALLS["acquire"])
    with pytest.raises(HandfastError, match="was cancelled while it waited"):
        await far.lock_all(["a", "b"]).acquire(timeout=20)
    assert nothing_left(raw)


# --- kills, freezes, cancellations and interrupts


def test_fewer_sessions_than_threads_cause_no_deadlock_and_leave_no_state(server, raw):
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(6) as threads:

        def work(names):
            for _ in range(6):
                with hf.lock_all(list(names)).acquire(timeout=40):
                    pass
            return True

        assert all(done.result(50) for done in [threads.submit(work, names) for names in ("ab", "bc", "ca") * 2])
    assert nothing_left(raw, "abc")


class SceneOfAll(Scene):
    """The cancelled operations use two locks; another client may hold "a"."""

    def __init__(self, url, raw):
        super().__init__(url, raw)
        self.lock = self.mine.lock_all(["b", "a"])

    async def other_queues_and_releases(self):
        """Hand over once: a notified waiter sends a second request, which adds a suspension."""
        if self.waiter is None:
            await super().other_queues_and_releases()

    async def complaints(self):
        """Return the faults of both locks."""
        found = await super().complaints()
        second = Engine(self.raw, "b")
        if second.holders() or second.queue():
            found.append(f"of the second one is left: {second.dump()}")
            self.raw.flushall()
        return found


async def test_a_timeout_of_the_caller_leaves_no_state(server, raw):
    async with ASYNCIO.client(server.url) as hf, ASYNCIO.client(server.url) as other, other.lock("b"):
        for seconds in (0.001, 0.005, 0.02):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await hf.lock_all(["a", "b"]).acquire()
            assert queues(raw) == [[], []]
    assert nothing_left(raw)
