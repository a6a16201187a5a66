"""Once under faults: lost replies, cut connections, restarts, forks, frozen processes, cancellations and interrupts at every point."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from handfast import AcquireTimeout, AsyncHandfast, LeaseLost, NotCompleted
from handfast._api import results
from handfast._api.sync import once as sync_once
from handfast._api.sync import run as sync_run
from handfast._drivers.sync import driver, performing, session
from handfast._protocol import acquire as acquire_steps
from handfast._protocol import lease as lease_steps
from handfast._protocol import once as once_steps
from handfast.testing import (
    FaultProxy,
    cancel_everywhere,
    containing,
    interrupt_at,
    script,
)
from tests._support.apis import ASYNCIO, CROWDED, SYNC, until_queued
from tests._support.cancelling import settled as quiet
from tests._support.engine import FINISHED
from tests._support.helpers import eventually, eventually_async, more
from tests._support.once import PATIENCE, is_free, run, unexpected

ACQUIRE, RECORD, CANCEL = script("once_acquire"), script("once_record"), script("once_cancel")


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, and the sync one with all connections in use."""
    return request.param


async def block(once, result=None):
    """Return the run of a block that gives this result."""
    async with once as current:
        await current.finish(result)
    return current


# --- what is lost on the way


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, proxy, here):
    """A client behind the proxy, connected once; the server knows all scripts."""
    async with api.client(proxy.url) as client:
        for known in (here, client):
            await block(known.once("warm", rerun=False))
            await known.once("warm").forget()
            await (await known.lock("warm").acquire()).release()
        yield client


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("which", [ACQUIRE, RECORD], ids=["acquire", "record"])
@pytest.mark.parametrize("verb", ["run", "try_acquire"])
async def test_what_is_sent_again_runs_and_is_recorded_once(far, here, proxy, api, *, what, which, verb):
    calls = []

    def work():
        calls.append(1)
        return len(calls)

    fault = getattr(proxy, what)(which)
    if verb == "run":
        assert await far.once("a").run(api.function(work)) == 1
    else:
        await (await far.once("a").try_acquire()).finish(work())
    assert fault.spent
    assert len(calls) == 1
    assert await here.once("a").run(unexpected(api)) == 1
    assert await is_free(here.once("a"))


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
async def test_a_result_is_found_although_its_reply_is_lost(far, here, proxy, *, what, verb):
    await block(here.once("a"), 1)
    fault = getattr(proxy, what)(ACQUIRE)
    assert (await getattr(far.once("a"), verb)()).result == 1
    assert fault.spent


async def test_an_acquire_that_was_sent_again_is_remembered_after_its_run(far, proxy, raw):
    """Its first copy may still arrive, and is not to run what was forgotten by then."""
    fault = proxy.lose_reply(ACQUIRE)
    for is_remembered in (True, False):
        current = await far.once("a").acquire()
        await current.finish(1)
        assert fault.spent
        assert ((raw.zscore("{hf:once:a}:tokens", current.token) or 0) >= FINISHED) is is_remembered
        await far.once("a").forget()


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_that_it_began_is_recorded_although_the_reply_is_lost(far, here, proxy, what):
    fault = getattr(proxy, what)(containing("begun"))
    current = await far.once("a", rerun=False).acquire()
    assert fault.spent
    assert (await here.once("a").status()).state == "running"
    await current.finish(1)
    assert (await here.once("a").acquire()).result == 1


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_failure_is_recorded_although_the_reply_is_lost(far, here, proxy, what):
    fault = getattr(proxy, what)(RECORD)
    with pytest.raises(LookupError):
        async with far.once("a", keep_failure=60):
            raise LookupError("no")
    assert fault.spent
    with pytest.raises(NotCompleted, match="no"):
        await here.once("a").acquire(timeout=PATIENCE)


async def test_a_waiter_whose_connection_is_cut_gets_the_result(far, here, proxy, api):
    async with here.once("a") as current:
        waiter = asyncio.create_task(run(far.once("a"), unexpected(api), timeout=PATIENCE))
        await until_queued(here.once("a"))
        seen = len(proxy.commands)
        proxy.cut()
        await eventually_async(lambda: any(map(ACQUIRE, proxy.commands[seen:])))
        await current.finish(1)
    assert await waiter == 1


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_cancel_leaves_no_waiter(far, here, proxy, what):
    async with here.once("a"):
        fault = getattr(proxy, what)(CANCEL)
        with pytest.raises(AcquireTimeout):
            await far.once("a").acquire(timeout=0.05)
        assert fault.spent
        assert (await here.once("a").status()).waiting == 0


# --- what happens to servers and processes


async def test_waiters_run_after_the_server_lost_everything_and_the_first_run_is_refused(here, there, raw, api):
    current = await here.once("a").acquire()
    waiter = asyncio.create_task(run(there.once("a"), api.function(lambda: "new"), timeout=PATIENCE))
    await until_queued(here.once("a"))
    raw.flushall()
    raw.client_kill_filter(_type="pubsub")  # so that it asks at once
    assert await waiter == "new"
    with pytest.raises(LeaseLost):
        await current.finish("late")
    assert (await here.once("a").acquire()).result == "new"


# --- cancelled at every await


@pytest.fixture
async def mine(server, raw):
    async with AsyncHandfast(server.url) as client:
        await block(client.once("warm", rerun=False))
        yield client


async def work():
    await asyncio.sleep(0)
    return "mine"


async def acquired_and_finished(once):
    current = await once.acquire()
    async with current:
        if not current.done:
            await current.finish("mine")
    return current


async def block_of(once):
    async with once as current:
        if not current.done:
            await current.finish("mine")
    return current


VERBS = {
    "run": lambda once: once.run(work),
    "acquire": lambda once: once.acquire(),
    "acquire in time": lambda once: once.acquire(timeout=PATIENCE),
    "try_acquire": lambda once: once.try_acquire(),
    "block": block_of,
    "acquire and finish": acquired_and_finished,
}


def ends(current):
    """Let a run of another client end soon. Return what to wait for."""
    timer = threading.Timer(0.02, current.finish, ("other",))
    timer.start()
    return timer


@pytest.mark.parametrize("rerun", [True, False], ids=["rerun", "no rerun"])
@pytest.mark.parametrize("waits", [False, *more(True)], ids={False: "free", True: "running"}.get)
@pytest.mark.parametrize("verb", VERBS)
async def test_a_cancellation_at_any_await_leaves_nothing_behind(mine, hf, raw, *, verb, waits, rerun):
    once, others = mine.once("a", rerun=rerun, keep_failure=60), hf.once("a")
    cancelled, timers = 0, []

    def act():
        if waits:
            timers.append(ends(others.acquire()))
        return VERBS[verb](once)

    async for outcome in cancel_everywhere(act, twice=True):
        await quiet(mine)
        cancelled += outcome.how == "stopped"
        assert outcome.how != "failed", outcome
        while timers:
            timers.pop().join()
        if outcome.how == "finished" and hasattr(outcome.result, "release"):
            await outcome.result.release()
        status = await once.status()
        assert (status.held_by, status.waiting) == (None, 0), outcome
        if waits:
            assert status.state == "done", outcome
        else:
            may_have_begun = not rerun and (verb == "run" or outcome.how == "finished")
            assert status.state in {"idle", "done"} | ({"begun"} if may_have_begun else set()), outcome
        if status.state == "done":
            assert (await others_result(mine)) == ("other" if waits else "mine"), outcome
        await once.forget()
    assert cancelled >= 2


async def others_result(client):
    return (await client.once("a").acquire()).result


# --- interrupted at every point


WITHIN = [sync_once, sync_run, results, driver, performing, session, acquire_steps, lease_steps, once_steps]


def run_it(once):
    return once.run(lambda: "mine")


def enter_it(once):
    with once as current:
        if not current.done:
            current.finish("mine")


def leave_it_without_a_result(once):
    with once:
        pass


INTERRUPTED = {
    "run": run_it,
    "acquire": lambda once: once.acquire(),
    "try_acquire": lambda once: once.try_acquire(),
    "block": enter_it,
    "block without finish": leave_it_without_a_result,
}


def interrupted_everywhere(prepare, act):
    """Do what `interrupt_everywhere` does, and prepare each run where no interrupt comes."""
    for step in itertools.count(1):
        prepare()
        outcome = interrupt_at(act, step, within=WITHIN)
        yield outcome
        if not outcome.struck:
            return


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # one that comes in a __del__ is only shown
@pytest.mark.parametrize("waits", [False, *more(True)], ids={False: "free", True: "running"}.get)
@pytest.mark.parametrize("verb", INTERRUPTED)
def test_an_interrupt_at_any_point_leaves_nothing_behind(hf, other, raw, verb, waits):
    once, others = hf.once("a", keep_failure=60), other.once("a")
    INTERRUPTED["block"](hf.once("warm"))  # what is made only once is made now
    timers, struck = [], 0
    expected = "other" if waits else None if verb == "block without finish" else "mine"

    def prepare():
        if waits:
            timers.append(ends(others.acquire()))

    for outcome in interrupted_everywhere(prepare, lambda: INTERRUPTED[verb](once)):
        struck += outcome.how == "stopped"
        assert outcome.how != "failed", outcome
        while timers:
            timers.pop().join()
        if outcome.how == "finished" and hasattr(outcome.result, "release"):
            outcome.result.release()
        try:
            eventually(lambda: (others.status().held_by, others.status().waiting) == (None, 0))
        except AssertionError:
            pytest.fail(f"left behind: {outcome}")
        state = others.status().state
        assert state in ({"done"} if waits else {"idle", "done"}), outcome
        assert state == "idle" or others.acquire().result == expected, outcome
        others.forget()
    assert struck > 20
