"""Once through both APIs, and over the connection that threads share: who runs, who gets the result, and what is left of a run."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from struct import pack, unpack_from

import pytest

from handfast import (
    AcquireTimeout,
    AlreadyRunning,
    AsyncHandfast,
    ClientClosed,
    Handfast,
    KeyReused,
    LeaseLost,
    NotCompleted,
    NotHeld,
    QueueFull,
    ServerRefused,
    WouldDeadlock,
)
from handfast._api.results import MAX_RESULT_BYTES
from tests._support.apis import ASYNCIO, CROWDED, SYNC, Awaitable, until_queued
from tests._support.family import NOWHERE, scripts_run, until_listening
from tests._support.helpers import eventually_async
from tests._support.once import PATIENCE, RESULT, is_free, run, unexpected


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, and the sync one with all connections in use."""
    return request.param


class Stopped(BaseException):
    """What ends a block from outside, as a cancellation or Ctrl-C does."""


async def block(once):
    """Return the run of a block that does nothing."""
    async with once as run:
        pass
    return run


def aged(raw, seconds):
    """Let a result be older by that many seconds."""
    stored = raw.execute_command("GET", RESULT, NEVER_DECODE=True)
    at_us = unpack_from("<d", stored)[0] - seconds * 1e6
    raw.set(RESULT, pack("<d", at_us) + stored[8:], keepttl=True)


# --- one runs, and all get its result


async def test_of_many_callers_at_once_one_runs_and_all_get_its_result(api, here, there):
    calls = []

    def work():
        calls.append(1)
        return {"calls": len(calls)}

    onces = [client.once("a") for client in (here, there)]
    results = await asyncio.gather(*(run(onces[number % 2], api.function(work)) for number in range(24)))
    assert results == [{"calls": 1}] * 24
    assert len(calls) == 1
    assert await is_free(onces[0])


async def test_all_who_wait_get_the_result_with_few_calls(api, here, there, raw):
    async with here.once("a") as current:
        assert not current.done
        before = scripts_run(raw)
        callers = [asyncio.create_task(run(there.once("a"), unexpected(api), timeout=PATIENCE)) for _ in range(12)]
        await until_queued(here.once("a"), 1 if api is ASYNCIO else 12)  # tasks take turns
        await current.finish([1, 2])
    assert await asyncio.gather(*callers) == [[1, 2]] * 12
    assert scripts_run(raw) - before <= 4 * 12 + 100, "looks at the queue included"
    assert await is_free(here.once("a"))


async def test_more_wait_than_one_call_wakes(server, raw):
    async with AsyncHandfast(server.url) as client, client.once("a") as current:
        callers = [
            asyncio.create_task(run(client.once("a", refresh=900 + each), unexpected(ASYNCIO), timeout=PATIENCE))
            for each in range(230)  # no two of which ask the same, or they would take turns
        ]
        await until_queued(client.once("a"), 230)
        await current.finish(1)
        assert (await client.once("a").status()).waiting == 0
        assert await asyncio.gather(*callers) == [1] * 230


async def test_the_blocks_of_one_object_have_runs_of_their_own(here):
    once, fences = here.once("a", timeout=PATIENCE), []

    async def work():
        with contextlib.suppress(LookupError):
            async with once as current:
                fences.append(current.fence)
                raise LookupError

    await asyncio.gather(*(work() for _ in range(8)))
    assert fences == sorted(set(fences))
    assert await is_free(once)


async def test_a_block_ends_with_the_result_that_it_gave(here, there):
    async with here.once("a") as current:
        assert (current.done, current.lost, current.age) == (False, False, 0.0)
        assert current.remaining() > 0
        current.check()
        with pytest.raises(RuntimeError, match=r"the run of 'a' has no result: it is not done; call finish\(\)"):
            current.result  # noqa: B018 -- it raises
        await current.finish({"n": 1})
        assert (current.done, current.result) == (True, {"n": 1})
        with pytest.raises(NotHeld):
            current.check()
        with pytest.raises(NotHeld):
            await current.finish({"n": 2})
    async with there.once("a") as found:
        assert (found.done, found.result, found.fence) == (True, {"n": 1}, current.fence)


async def test_a_block_without_finish_is_done_without_a_result(here):
    async with here.once("a") as current:
        pass
    assert (current.done, current.result) == (True, None)
    async with here.once("a") as found:
        assert (found.done, found.result) == (True, None)


async def test_an_exception_lets_the_next_one_run_and_records_nothing(here, there, raw):
    once = here.once("a")
    with pytest.raises(LookupError):
        async with once as first:
            waiter = asyncio.create_task(run(there.once("a"), lambda: done_by(there), timeout=PATIENCE))
            await until_queued(once)
            raise LookupError
    assert not first.done
    assert await waiter == "done by the next"
    assert (await once.status()).state == "done"


def done_by(client):
    """Return a result, or the coroutine of one."""
    result = "done by the next"
    return result if isinstance(client, Awaitable) else coroutine_of(result)


async def coroutine_of(result):
    return result


async def test_an_exception_after_the_result_was_given_leaves_the_result(here):
    with pytest.raises(LookupError):
        async with here.once("a", keep_failure=60) as current:
            await current.finish(1)
            raise LookupError
    assert (await here.once("a").acquire()).result == 1


async def test_a_function_that_fails_lets_the_next_call_run(api, here):
    def work():
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await here.once("a").run(api.function(work))
    assert await here.once("a").run(api.function(lambda: 1)) == 1


async def test_a_run_that_is_released_is_not_done(here):
    async with here.once("a") as current:
        assert await current.release()
    assert not current.done
    assert (await here.once("a").status()).state == "idle"


async def test_fences_grow_from_run_to_run(here, there):
    fences = []
    for client in (here, there) * 3:
        async with client.once("a") as current:
            fences.append(current.fence)
        await client.once("a").forget()
    assert fences == sorted(set(fences))


async def test_a_lock_of_the_same_name_is_another_thing(here, api):
    async with here.lock("a"):
        assert await here.once("a").run(api.function(lambda: 1), timeout=0) == 1
    async with here.once("b"):
        await (await here.lock("b").try_acquire()).release()


# --- what is found


async def test_what_is_found_is_no_lease(here, there, raw):
    await block(here.once("a"))
    aged(raw, 100)
    found = await there.once("a").acquire()
    assert (found.done, found.result, found.name) == (True, None, "a")
    assert 100 <= found.age < 160
    assert (found.lost, found.remaining()) == (False, 0.0)
    assert repr(found) in ("<Run of 'a', done>", "<AsyncRun of 'a', done>")
    with pytest.raises(NotHeld):
        found.check()
    for call in (found.finish(1), found.extend(10)):
        with pytest.raises(NotHeld):
            await call
    assert await found.release() is False


async def test_acquire_gives_a_block_whether_it_is_done_or_not(here, there):
    async with here.once("a").acquire(timeout=5) as current:
        await current.finish(1)
    async with there.once("a").acquire(timeout=5) as found:
        assert (found.done, found.result) == (True, 1)


async def test_a_run_that_was_acquired_may_end_without_a_block(here):
    current = await here.once("a").acquire()
    await current.finish(1)
    assert current.done
    assert (await here.once("a").acquire()).result == 1


async def test_a_try_takes_one_call_and_does_not_wait(here, there, raw):
    once = here.once("a")
    current = await once.try_acquire()
    assert not current.done
    before = scripts_run(raw)
    assert await there.once("a").try_acquire() is None
    assert scripts_run(raw) == before + 1
    await current.finish(1)
    before = scripts_run(raw)
    assert (await there.once("a").try_acquire()).result == 1
    assert scripts_run(raw) == before + 1


async def test_a_result_that_is_there_takes_one_call(here, raw, api):
    await block(here.once("a"))
    before, connections = scripts_run(raw), raw.info("stats")["total_connections_received"]
    await here.once("a").run(unexpected(api))
    await block(here.once("a"))
    assert scripts_run(raw) == before + 2
    assert raw.info("stats")["total_connections_received"] == connections


@pytest.mark.parametrize("keep", [0.05, timedelta(milliseconds=50)])
async def test_a_result_counts_until_its_time_is_over(here, raw, keep):
    once = here.once("a", keep=keep)
    async with once as current:
        await current.finish(1)
    await eventually_async(lambda: not raw.exists(RESULT))
    assert (await once.status()).state == "idle"
    async with once as current:
        assert not current.done


async def test_a_result_is_forgotten_and_made_again(here, there):
    once = here.once("a")
    assert await once.forget() is False
    await block(once)
    assert await there.once("a").forget() is True
    async with there.once("a") as current:
        assert not current.done
        assert await once.forget() is False
    assert (await once.acquire()).done, "the run went on"


# --- functions and results of the wrong kind


async def coroutine():
    """Do the work only if it is awaited."""
    return "made"


def generator():
    """Do the work only if it is read."""
    yield "made"


async def pages():
    """Do the work only if it is read, in asyncio."""
    yield "made"


@pytest.mark.parametrize("function", [generator, pages, functools.partial(generator), None])
async def test_what_gives_no_result_is_refused_before_anything_runs(here, raw, function):
    with pytest.raises(TypeError, match=r"is a generator function|must be a function"):
        await here.once("a").run(function)
    assert not raw.keys("*")


def test_a_coroutine_function_is_refused_by_the_sync_api(hf, raw):
    for function in (coroutine, functools.partial(coroutine)):
        with pytest.raises(TypeError, match="is a coroutine function, and nothing would await it here"):
            hf.once("a").run(function)
    assert not raw.keys("*")


async def test_what_runs_only_later_is_a_failure_and_no_result(here, there, api):
    returning = {"sync": coroutine, "crowded": coroutine, "asyncio": generator}[api.name]
    with pytest.raises(TypeError, match=r"the result of 'a' is a (coroutine|generator), whose body has not run"):
        await here.once("a").run(lambda: returning())  # noqa: PLW0108 -- so that it is no coroutine function
    assert await there.once("a").run(api.function(lambda: "made")) == "made", "nothing was recorded"


async def test_a_run_goes_on_after_a_result_that_is_none(here, there, api):
    async with here.once("a") as current:
        for unfinished in (coroutine(), generator(), pages()):
            with pytest.raises(TypeError, match="whose body has not run: nothing is recorded"):
                await current.finish(unfinished)
        await current.finish("made")
    assert await there.once("a").run(unexpected(api)) == "made"


async def test_a_plain_function_serves_in_asyncio_and_runs_once(server, raw):
    calls = []
    async with ASYNCIO.handfast(server.url) as client:
        once = client.once("a")
        assert [await once.run(lambda: calls.append(1) or "made") for _ in range(2)] == ["made"] * 2
        assert await client.once("b").run(lambda: coroutine()) == "made"  # noqa: PLW0108 -- as above
    assert len(calls) == 1


async def test_a_result_that_cannot_be_stored_says_what_is_recorded_and_what_to_do(here, api):
    with pytest.raises(TypeError) as caught:
        await here.once("a").run(api.function(lambda: {1, 2}))
    (note,) = caught.value.__notes__
    assert "The work of 'a' is done, and recorded without a result" in note
    assert "dumps=" in note
    assert "forget()" in note


# --- made anew


async def test_one_makes_it_anew_while_the_others_get_the_old_result(here, there, raw, api):
    once = here.once("a", keep=3600, refresh=60)
    assert await once.run(api.function(lambda: "old")) == "old"
    assert await once.run(unexpected(api)) == "old"
    aged(raw, 61)
    async with once as current:
        assert not current.done
        others = [run(there.once("a", keep=3600, refresh=60), unexpected(api), timeout=0) for _ in range(8)]
        assert await asyncio.gather(*others) == ["old"] * 8
        status = await once.status()
        assert (status.state, status.waiting, status.held_by.fence) == ("done", 0, current.fence)
        await current.finish("new")
    assert await there.once("a", keep=3600, refresh=60).run(unexpected(api)) == "new"


async def test_of_many_callers_at_once_exactly_one_makes_it_anew(here, there, raw, api):
    onces = [client.once("a", keep=3600, refresh=60) for client in (here, there)]
    await block(onces[0])
    aged(raw, 61)
    calls = []

    def work():
        calls.append(1)
        return "new"

    results = await asyncio.gather(*(run(onces[number % 2], api.function(work)) for number in range(24)))
    assert len(calls) == 1
    assert set(results) <= {None, "new"}


@pytest.mark.parametrize("keep_failure", [None, 60])
async def test_a_failure_in_a_block_that_makes_it_anew_leaves_the_old_result(here, there, raw, api, keep_failure):
    once = here.once("a", keep=3600, refresh=60, keep_failure=keep_failure)
    await once.run(api.function(lambda: "old"))
    aged(raw, 61)
    with pytest.raises(LookupError):
        async with once:
            raise LookupError
    for client in (here, there):
        other = client.once("a", keep=3600, refresh=60, keep_failure=keep_failure)
        assert await other.run(unexpected(api)) == "old", "and no one tries, for a while"
    over(raw)
    async with once as current:
        assert not current.done, "the next one tries"


def over(raw):
    """Let the pause after a run that has failed to make a result anew be over."""
    assert raw.hdel("{hf:once:a}:state", "pause")


def fails(api):
    def work():
        raise LookupError("the provider is down")

    return api.function(work)


@pytest.mark.parametrize("keep_failure", [None, 60])
@pytest.mark.parametrize("how", ["raises", "unstorable", "too large"])
async def test_where_making_it_anew_fails_every_caller_gets_the_old_result(  # noqa: PLR0917 -- fixtures
    here, there, raw, api, caplog, how, keep_failure
):
    onces = [client.once("a", keep=3600, refresh=60, keep_failure=keep_failure) for client in (here, there)]
    await onces[0].run(api.function(lambda: "old"))
    aged(raw, 61)
    made = {
        "raises": fails(api),
        "unstorable": api.function(object),
        "too large": api.function(lambda: "x" * 1_100_000),
    }
    assert await onces[0].run(made[how]) == "old"
    (record,) = (record for record in caplog.records if record.name == "handfast.once")
    assert record.getMessage().startswith(
        f"'a' could not be made anew, and its old result goes on to count; the next try is not before {keep_failure or 5} s: "
    )
    for once in (*onces, *onces):
        assert await once.run(unexpected(api)) == "old"
    over(raw)
    assert await onces[1].run(api.function(lambda: "new")) == "new"


async def test_a_result_that_is_gone_by_then_is_not_the_answer_to_a_failure(here, raw, api):
    once = here.once("a", keep=3600, refresh=60)
    await once.run(api.function(lambda: "old"))
    aged(raw, 61)

    def work():
        raw.delete("{hf:once:a}:result")
        raise LookupError("the provider is down")

    with pytest.raises(LookupError):
        await once.run(api.function(work))


async def test_the_first_run_of_one_that_is_made_anew_raises_its_error(here, there, raw, api):
    once = here.once("a", keep=3600, refresh=60)
    with pytest.raises(LookupError):
        await once.run(fails(api))
    assert await there.once("a", keep=3600, refresh=60).run(api.function(lambda: "made")) == "made"


async def test_where_its_lease_is_lost_the_one_that_makes_it_anew_gets_what_counts(here, there, raw, api):
    once = here.once("a", keep=3600, refresh=60)
    await once.run(api.function(lambda: "old"))
    aged(raw, 61)

    def work():
        raw.delete("{hf:once:a}:state", "{hf:once:a}:tokens")
        return "new"

    assert await once.run(api.function(work)) == "old"


async def test_where_the_server_refuses_to_record_it_the_old_result_counts(api, raw, server, monkeypatch):
    monkeypatch.setattr("handfast._drivers.aio.cleanup.UNDO_WAIT", 0.05)  # the server refuses the undo as well
    async with api.client(server.url, retry_for=0) as client:
        once = client.once("a", keep=3600, refresh=60)
        await once.run(api.function(lambda: "old"))
        aged(raw, 61)

        def work():
            raw.config_set("min-replicas-to-write", 1)
            return "new"

        assert await once.run(api.function(work)) == "old"
        raw.config_set("min-replicas-to-write", 0)


async def test_a_cancelled_run_that_makes_it_anew_leaves_the_old_result_for_a_while(raw, server):
    async def old():
        return "old"

    async def hangs():
        task.cancel()
        await asyncio.Event().wait()

    async with ASYNCIO.handfast(server.url) as client:
        once = client.once("a", keep=3600, refresh=60)
        await once.run(old)
        aged(raw, 61)
        task = asyncio.create_task(once.run(hangs))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await once.run(unexpected(ASYNCIO)) == "old"


async def test_a_caller_without_refresh_gets_the_old_result_of_any_age(here, raw, api):
    await here.once("a", refresh=60).run(api.function(lambda: "old"))
    aged(raw, 1000)
    assert await here.once("a").run(unexpected(api)) == "old"


# --- what did not complete


async def test_a_failure_that_is_kept_counts_for_all(here, there, raw, api):
    once = here.once("a", keep_failure=60)
    with pytest.raises(LookupError):
        async with once:
            waiter = asyncio.create_task(run(there.once("a"), unexpected(api), timeout=PATIENCE))
            await until_queued(once)
            raise LookupError("no such order")
    for call in (waiter, once.run(unexpected(api)), once.acquire(), once.try_acquire()):
        with pytest.raises(NotCompleted, match=r"failed \(LookupError: no such order\)") as failed:
            await call
        assert (failed.value.state, failed.value.reason) == ("failed", "LookupError: no such order")
        assert (failed.value.name, failed.value.__context__) == ("a", None)
    with pytest.raises(NotCompleted):
        await block(once)
    assert (await once.status()).state == "failed"
    assert await is_free(once)


async def test_a_failure_counts_until_its_time_is_over(here, raw, api):
    once = here.once("a", keep=3600, keep_failure=0.05)
    with pytest.raises(LookupError):
        async with once:
            raise LookupError
    await eventually_async(lambda: not raw.exists(RESULT))
    assert await once.run(api.function(lambda: 1)) == 1


async def test_what_ends_a_run_from_outside_is_no_failure(here, api):
    once = here.once("a", keep_failure=60)
    with pytest.raises(Stopped):
        async with once:
            raise Stopped
    assert await once.run(api.function(lambda: 1)) == 1


async def test_what_must_not_run_twice_is_done_like_anything_else(here, there, api):
    once = here.once("a", rerun=False)
    async with once as current:
        status = await once.status()
        assert (status.state, status.held_by.fence) == ("running", current.fence)
        waiter = asyncio.create_task(run(there.once("a", rerun=False), unexpected(api), timeout=PATIENCE))
        await until_queued(once)
        assert await there.once("a", rerun=False).try_acquire() is None
        await current.finish(1)
    assert await waiter == 1


@pytest.mark.parametrize(
    ("how", "state"), [(LookupError("no"), "failed"), (Stopped(), "begun"), ("released", "begun")], ids=repr
)
async def test_what_must_not_run_twice_is_not_run_after_a_run_that_did_not_complete(here, there, api, how, state):
    once = here.once("a", rerun=False)
    try:
        async with once as current:
            waiter = asyncio.create_task(run(there.once("a"), unexpected(api), timeout=PATIENCE))
            await until_queued(once)
            if how == "released":
                await current.release()
            else:
                raise how
    except (LookupError, Stopped):
        pass
    for call in (waiter, there.once("a").acquire(), once.run(unexpected(api))):
        with pytest.raises(NotCompleted) as failed:
            await call
        assert failed.value.state == state
    assert (await once.status()).state == state
    assert await once.forget()
    assert await once.run(api.function(lambda: 1)) == 1


# --- those who do not wait, or not for long


async def test_one_that_does_not_wait_raises_and_names_the_one_that_runs(api, server, there, raw):
    async with api.client(server.url, label="web-1") as client:
        once = there.once("a", on_running="raise")
        async with client.once("a") as current:
            for call in (once.run(unexpected(api)), once.acquire()):
                with pytest.raises(AlreadyRunning, match=r"'a' is running: web-1 has run it for \d") as running:
                    await call
                assert (running.value.name, running.value.holder.label) == ("a", "web-1")
                assert running.value.holder.fence == current.fence
            with pytest.raises(AlreadyRunning):
                await block(once)
            await current.finish(1)
        assert await once.run(unexpected(api)) == 1
    assert await is_free(once)


@pytest.mark.parametrize("timeout", [0.05, 0, -1])
async def test_a_timeout_ends_the_wait_and_leaves_nothing(here, there, api, timeout):
    once, timed = here.once("a"), there.once("a", timeout=timeout)
    async with once:
        for call in (there.once("a").run(unexpected(api), timeout=timeout), timed.acquire(), block(timed)):
            with pytest.raises(AcquireTimeout, match="'a'") as waited:
                await call
            assert waited.value.timeout == max(0, timeout)
        assert (await once.status()).waiting == 0


async def test_the_timeout_of_a_call_counts_before_that_of_the_object(here, there, api):
    async with here.once("a") as current:
        waiter = asyncio.create_task(
            run(there.once("a", timeout=0), unexpected(api), timeout=timedelta(seconds=PATIENCE))
        )
        await until_queued(here.once("a"))
        await current.finish(1)
    assert await waiter == 1


async def test_a_full_queue_takes_no_one_else(here, there, api):
    once = there.once("a", max_waiters=1)
    async with here.once("a") as current:
        waiter = asyncio.create_task(run(once, unexpected(api), timeout=PATIENCE))
        await until_queued(once)
        with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
            await asyncio.create_task(run(here.once("a", max_waiters=1), unexpected(api)))
        assert await once.try_acquire() is None
        await current.finish(1)
    assert await waiter == 1


@pytest.mark.parametrize("name", ["run", "acquire", "block"])
def test_a_thread_that_runs_it_does_not_wait_for_itself(hf, name):
    once = hf.once("a")
    calls = {"run": lambda: once.run(int), "acquire": once.acquire, "block": once.__enter__}
    with once as current:
        with pytest.raises(WouldDeadlock, match=r"acquiring 'a' here would deadlock: .* its own result"):
            calls[name]()
        current.check()
        assert once.status().waiting == 0
        assert once.keyed("x").run(lambda: 1) == 1
    with pytest.raises(WouldDeadlock):
        hf.once("b").run(lambda: hf.once("b").run(int))


@pytest.mark.parametrize("name", ["run", "acquire", "block"])
async def test_a_task_that_runs_it_does_not_wait_for_itself(server, raw, name):
    async with AsyncHandfast(server.url) as client:
        once = client.once("a")

        async def work():
            return 1

        async def again():
            return await client.once("b").run(work)

        calls = {"run": lambda: once.run(work), "acquire": once.acquire, "block": lambda: block(once)}
        async with once as current:
            with pytest.raises(WouldDeadlock, match=r"acquiring 'a' here would deadlock: .* its own result"):
                await calls[name]()
            current.check()
            assert (await once.status()).waiting == 0
            assert await once.keyed("x").run(work) == 1
        with pytest.raises(WouldDeadlock):
            await client.once("b").run(again)


# --- runs that are lost


async def test_a_run_that_is_taken_away_is_refused_and_the_next_one_runs(here, there, raw, api):
    once = here.once("a")
    with pytest.raises(LeaseLost, match="by the operator"):
        async with once as current:
            waiter = asyncio.create_task(run(there.once("a"), api.function(lambda: "new"), timeout=PATIENCE))
            await until_queued(once)
            await until_listening(raw)
            assert await there.once("a").force_release(reason="by the operator") == 1
            await eventually_async(lambda: current.lost)
            await current.finish("late")
    assert not current.done
    assert await waiter == "new"
    assert await once.run(unexpected(api)) == "new"


async def test_a_run_that_is_taken_away_and_must_not_run_twice_is_not_run_again(here, there, api):
    once = here.once("a", rerun=False)
    with pytest.raises(LeaseLost):
        async with once as current:
            assert await there.once("a").force_release() == 1
            await current.finish("late")
    with pytest.raises(NotCompleted) as failed:
        await there.once("a").run(unexpected(api))
    assert failed.value.state == "begun"


async def test_only_runs_up_to_a_fence_are_taken_away(here, there):
    async with here.once("a") as current:
        assert await there.once("a").force_release(up_to_fence=current.fence - 1 or 1) == (current.fence == 1)


async def test_a_late_result_is_refused_also_where_another_one_runs(here, there, raw):
    current = await here.once("a").acquire()
    raw.flushall()
    other = await there.once("a").acquire()
    with pytest.raises(LeaseLost, match="the server no longer had it"):
        await current.finish("late")
    with pytest.raises(LeaseLost):
        await current.finish("late")
    assert (current.done, current.lost) == (False, True)
    await other.finish("in time")
    assert (await here.once("a").acquire()).result == "in time"


async def test_a_block_that_lost_its_run_raises_and_records_nothing(here, raw):
    with pytest.raises(LeaseLost):
        async with here.once("a") as current:
            raw.flushall()
    assert not current.done
    assert (await here.once("a").status()).state == "idle"


@pytest.mark.parametrize("error", [None, LookupError], ids=repr)
async def test_a_run_that_is_late_by_its_own_clock_records_nothing_either(suspend, here, there, raw, error):
    """The server may have the lease a little longer, and would take what it does not refuse."""
    once = here.once("a", ttl=60, keep_failure=60)
    with pytest.raises(error or LeaseLost):
        async with once as current:
            suspend(61)
            if error:
                raise error
    assert not current.done
    await eventually_async(lambda: is_free(there.once("a")))
    assert (await there.once("a").status()).state == "idle"


# --- fingerprints


async def test_a_key_with_another_fingerprint_is_refused(here, there, api):
    once = here.once("a")
    assert await once.run(api.function(lambda: 1), fingerprint="one") == 1
    for fingerprint in ("one", b"one", None):
        assert await there.once("a").run(unexpected(api), fingerprint=fingerprint) == 1
    for call in (
        once.run(unexpected(api), fingerprint=b"two"),
        once.acquire(fingerprint="two"),
        once.try_acquire(fingerprint="two"),
    ):
        with pytest.raises(KeyReused, match="'a' was used for something with another fingerprint") as reused:
            await call
        assert reused.value.name == "a"
    await once.forget()
    assert await once.run(api.function(lambda: 2), fingerprint="two") == 2


async def test_a_result_without_a_fingerprint_fits_any(here, api):
    await block(here.once("a"))
    assert await here.once("a").run(unexpected(api), fingerprint="x" * 100_000) is None


async def test_a_waiter_with_another_fingerprint_is_refused_when_the_run_ends(here, there, api):
    async with here.once("a").acquire(fingerprint="one") as current:
        waiter = asyncio.create_task(run(there.once("a"), unexpected(api), fingerprint="two", timeout=PATIENCE))
        await until_queued(here.once("a"))
        await current.finish(1)
    with pytest.raises(KeyReused):
        await waiter


@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "run"])
async def test_what_began_has_the_fingerprint_of_its_call(here, there, api, verb):
    once = here.once("a", rerun=False)

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        if verb == "run":
            await once.run(api.function(stop), fingerprint="one")
        async with await getattr(once, verb)(fingerprint="one"):
            raise Stopped
    with pytest.raises(KeyReused):
        await there.once("a").acquire(fingerprint="two")
    with pytest.raises(NotCompleted):
        await there.once("a").acquire(fingerprint="one")


# --- keys and decorators


async def test_each_key_is_done_once(here, there, api):
    once = here.once("a")
    for number, keyed in enumerate((once, once.keyed("x"), once.keyed("x", "y"), once.keyed("x|y"), once.keyed(7))):
        assert await keyed.run(api.function(lambda number=number: number)) == number
    assert await there.once("a").keyed("7").run(unexpected(api)) == 4
    assert await there.once("a").keyed("x").keyed("y").run(unexpected(api)) == 2
    assert once.keyed("x", 7).name == "a|x|7"


async def test_a_decorated_function_is_run_once(api, server, raw):
    client, calls = api.client(server.url), []

    @client.once("a", by=())
    @api.function
    def work(value, *, more=0):
        """Do it."""
        calls.append(value + more)
        return value

    assert (work.__name__, work.__doc__) == ("work", "Do it.")
    assert [await work(1, more=5), await work(2)] == [1, 1]
    assert calls == [6]
    await client.close()


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (lambda user: user, "user"),
        (lambda day=1: day, "day"),
        (lambda *days, **more: (days, more), "days, more"),
    ],
)
async def test_a_function_with_parameters_needs_a_key(plain, api, function, parameters):
    for once in (plain.once("a"), plain.once("a", by=None), plain.once("a").keyed("x")):
        with pytest.raises(ValueError, match=rf"has parameters \({parameters}\), and without by= .* pass by=\(\)"):
            once(api.function(function))
    for allowed in (api.function(function), api.function(getattr)):  # the second one has no signature
        assert plain.once("a", by=())(allowed).__name__ == allowed.__name__
    assert plain.once("a")(api.function(getattr)).__name__ == "getattr"


async def test_a_decorated_function_is_run_once_for_its_arguments(api, server, raw):
    client = api.client(server.url)

    @client.once("a", by=("user", "day"))
    @api.function
    def work(user, text, day=1):
        return text

    assert [await work("ann", "x"), await work("ann", "y", 2), await work(user="bob", text="z")] == ["x", "y", "z"]
    assert [await work("ann", "-", day=1), await work("ann", "-", "2"), await work("bob", "-")] == ["x", "y", "z"]
    with pytest.raises(TypeError, match=r"a part of a key must be a str, .* not None"):
        await work(None, "x")
    with pytest.raises(TypeError, match="missing a required argument"):
        await work("ann")
    await client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "id"}, r"by has 'id', which is no parameter of [^ ]*\(\); these are: user"),
        ({"by": ["user", "id"]}, "by has 'id'"),
        ({"name": "invoice:{user}"}, "is no template here; use by="),
    ],
)
def test_what_a_decorator_cannot_do_is_refused_when_it_decorates(api, options, words):
    made = api.handfast(NOWHERE).once(**{"name": "a"} | options)
    with pytest.raises(ValueError, match=words):
        made(api.function(lambda user: user))


def test_functions_of_another_kind_are_refused():
    async def coroutine():
        pass

    def generator():
        yield

    once, other = (client(NOWHERE).once("a") for client in (Handfast, AsyncHandfast))
    for made, function in ((once, coroutine), (other, print), (once, generator), (other, generator)):
        with pytest.raises(TypeError, match="function"):
            made(function)


# --- results


KEPT = [
    (None, None),
    (0, 0),
    ("é\0\ud7ff", "é\0\ud7ff"),
    ((1, (2,)), [1, [2]]),
    ({1: "a", "b": None}, {"1": "a", "b": None}),
]


@pytest.mark.parametrize(("made", "read"), KEPT, ids=repr)
async def test_a_result_is_read_back_as_all_others_get_it(here, there, api, made, read):
    assert await here.once("a").run(api.function(lambda: made)) == read
    assert await there.once("a").run(unexpected(api)) == read
    async with here.once("b") as current:
        await current.finish(made)
        assert current.result == read


async def test_bytes_are_stored_as_they_are(here, there, api):
    once, every = here.once("a", dumps=bytes), bytes(range(256))
    for made in (every, bytearray(every), memoryview(every), b""):
        found = await once.run(api.function(lambda made=made: made))
        assert (type(found), found) == (bytes, bytes(made))
        assert await there.once("a", dumps=bytes).run(unexpected(api)) == bytes(made)
        await once.forget()


async def test_a_result_is_stored_by_the_functions_of_the_caller(here, there, api):
    options = {"dumps": lambda value: value.hex().encode(), "loads": lambda data: float.fromhex(data.decode())}
    assert await here.once("a", **options).run(api.function(lambda: 0.1)) == 0.1
    assert await there.once("a", **options).run(unexpected(api)) == 0.1


async def test_the_largest_result_reaches_all(here, there, api):
    largest = bytes(MAX_RESULT_BYTES)
    async with here.once("a", dumps=bytes) as current:
        waiter = asyncio.create_task(run(there.once("a", dumps=bytes), unexpected(api), timeout=PATIENCE))
        await until_queued(here.once("a"))
        await current.finish(largest)
    assert await waiter == largest


class Odd(Exception):
    """An error of a caller's function."""


def raises(_):
    raise Odd("odd")


UNSTORABLE = {
    "no JSON": ({}, object(), TypeError, "not JSON serializable"),
    "a surrogate": ({}, "\ud800", ValueError, "surrogates not allowed"),
    "too large": ({}, "x" * MAX_RESULT_BYTES, ValueError, "at most 1,048,576 bytes as it is stored, not 1,048,578"),
    "no bytes": ({"dumps": bytes}, "text", TypeError, "must be bytes with dumps=bytes, not str"),
    "a number of bytes": ({"dumps": bytes}, 10**12, TypeError, "must be bytes with dumps=bytes, not int"),
    "dumps returns text": ({"dumps": str, "loads": str}, 1, TypeError, "dumps must return bytes, not str"),
    "dumps raises": ({"dumps": raises, "loads": bytes}, 1, Odd, "odd"),
    "loads raises": ({"dumps": lambda _: b"", "loads": raises}, 1, Odd, "odd"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
@pytest.mark.parametrize("how", ["run", "finish", "acquire"])
async def test_a_result_that_cannot_be_stored_is_an_error_and_no_reason_to_run_again(here, there, api, case, how):
    options, made, error, words = UNSTORABLE[case]
    once = here.once("a", **options)
    with pytest.raises(error, match=words):
        if how == "run":
            await once.run(api.function(lambda: made))
        elif how == "acquire":
            await (await once.acquire()).finish(made)
        async with once as current:
            await current.finish(made)
    for call in (once.run(unexpected(api)), there.once("a").acquire()):
        with pytest.raises(NotCompleted, match="was done, but its result could not be stored") as undone:
            await call
        assert undone.value.state == "unstored"
        assert undone.value.reason.startswith(f"{error.__name__}: " if error is not ValueError else "")
    assert (await once.status()).state == "unstored"
    assert await is_free(once)


async def test_a_block_whose_missing_result_cannot_be_stored_says_so(here):
    once = here.once("a", dumps=bytes)
    with pytest.raises(TypeError, match="must be bytes with dumps=bytes, not NoneType"):
        await block(once)
    with pytest.raises(NotCompleted):
        await once.acquire()


async def test_the_reason_is_bounded(here, there):
    once = here.once("a", keep_failure=60)
    with pytest.raises(LookupError):
        async with once:
            raise LookupError("é\ud800" * 5000)
    with pytest.raises(NotCompleted) as failed:
        await there.once("a").acquire()
    assert len(failed.value.reason) == 500


class Unspeakable(Exception):
    """An error without a text."""

    def __str__(self):
        raise RuntimeError("no text")


async def test_an_error_that_has_no_text_ends_its_run_all_the_same(here):
    once = here.once("a", keep_failure=60)
    with pytest.raises(Unspeakable):
        async with once:
            raise Unspeakable
    with pytest.raises(NotCompleted) as failed:
        await once.acquire(timeout=0)
    assert failed.value.reason == "Unspeakable"


async def test_a_result_that_another_version_cannot_read_is_the_error_of_loads(here, there, api):
    await here.once("a", dumps=bytes).run(api.function(lambda: b"{"))
    for call in (there.once("a").run(unexpected(api)), there.once("a").acquire(), there.once("a").try_acquire()):
        with pytest.raises(ValueError, match="Expecting"):
            await call


# --- status, operators, the client


async def test_a_status_tells_how_far_it_has_come(here, there, raw):
    once = here.once("a")
    status = await once.status()
    assert (status.state, status.age, status.held_by, status.waiting) == ("idle", None, None, 0)
    async with once as current:
        waiter = asyncio.create_task(block(there.once("a")))
        await until_queued(once)
        status = await once.status()
        assert (status.state, status.age, status.waiting) == ("running", None, 1)
        assert status.held_by.fence == current.fence
    assert (await waiter).done
    aged(raw, 100)
    status = await there.once("a").status()
    assert (status.state, status.held_by, status.waiting) == ("done", None, 0)
    assert 100 <= status.age < 160


async def test_those_who_wait_when_the_client_is_closed_say_so_and_leave_the_queue(api, server, there, raw):
    client = api.client(server.url)
    async with there.once("a") as current:
        once = client.once("a")
        waiter = asyncio.create_task(run(once, unexpected(api)))
        await until_queued(there.once("a"))
        await client.close()
        with pytest.raises(ClientClosed) as closed:
            await waiter
        assert closed.value.name == "a"
        for call in (once.run(unexpected(api)), once.acquire(), once.try_acquire(), block(once), once.forget()):
            with pytest.raises(ClientClosed):
                await call
        await current.finish(1)
    assert await is_free(there.once("a"))


async def test_a_client_that_is_closed_lets_the_next_one_run(api, server, there, raw):
    client = api.client(server.url)
    current = await client.once("a").acquire()
    await client.close(release=True)
    with pytest.raises(LeaseLost, match="its client was closed"):
        await current.finish(1)
    async with there.once("a", timeout=PATIENCE) as other:
        assert not other.done


async def test_a_server_without_memory_refuses_runs_and_takes_results(here, there, raw, api):
    current = await here.once("a").acquire()
    raw.config_set("maxmemory", 1)
    with pytest.raises(ServerRefused, match="out of memory"):
        await here.once("b").acquire()
    await current.finish(1)
    assert await there.once("a").run(unexpected(api)) == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"keep": 0}, ValueError, "keep must be"),
        ({"keep": "1"}, TypeError, "keep must be"),
        ({"keep": 367 * 86400}, ValueError, "keep must be"),
        ({"ttl": 0}, ValueError, "ttl must be"),
        ({"refresh": 0}, ValueError, "refresh must be"),
        ({"keep": 60, "refresh": 60}, ValueError, "refresh must be less than keep, 60 s, not 60"),
        (
            {"refresh": 60, "rerun": False},
            ValueError,
            "refresh runs again what was done, which rerun=False is to prevent",
        ),
        ({"keep_failure": -1}, ValueError, "keep_failure must be"),
        ({"on_running": "skip"}, ValueError, "on_running must be 'wait' or 'raise', not 'skip'"),
        ({"on_running": "raise", "timeout": 1}, ValueError, "timeout has no use"),
        ({"timeout": "1"}, TypeError, "timeout must be"),
        ({"max_waiters": 0}, ValueError, "max_waiters must be"),
        ({"dumps": str}, ValueError, "dumps and loads belong together"),
        ({"loads": str}, ValueError, "dumps and loads belong together"),
        ({"dumps": 1, "loads": str}, TypeError, "dumps must be a function"),
        ({"by": 1}, TypeError, "by must be"),
        ({"by": ["user", 1]}, TypeError, "by must be"),
    ],
    ids=repr,
)
def test_bad_options_are_refused(api, options, error, words):
    client = api.handfast(NOWHERE)
    with pytest.raises(error, match=words):
        client.once(**{"name": "a"} | options)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda once: once.run(print, timeout="1"), TypeError, "timeout must be seconds"),
        (lambda once: once.run(print, fingerprint=1), TypeError, "fingerprint must be a str, bytes or None, not 1"),
        (lambda once: once.run(print, fingerprint=""), ValueError, "fingerprint must not be empty"),
        (lambda once: once.run("work"), TypeError, "function must be a function without arguments, .*'work'"),
        (lambda once: once.acquire(timeout=float("nan")), ValueError, "timeout must be"),
        (lambda once: once.acquire(fingerprint=b""), ValueError, "fingerprint must not be empty"),
        (lambda once: once.try_acquire(fingerprint=()), TypeError, "fingerprint must be"),
        (lambda once: once.status(timeout=0), ValueError, "timeout must be at least"),
        (lambda once: once.force_release(reason=""), ValueError, "reason must not be empty"),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_sent(api, call, error, words):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error, match=words):
            await call(client.once("a"))


@pytest.mark.parametrize("parts", [(), (None,), (b"x",), (1.0,), ("",)], ids=repr)
def test_parts_of_keys_are_checked(api, parts):
    with pytest.raises((TypeError, ValueError), match="key"):
        api.handfast(NOWHERE).once("a").keyed(*parts)


async def test_neither_it_nor_its_runs_are_copied_pickled_or_detached(plain, api):
    once = plain.once("a")
    assert repr(once.keyed("x")) in ("<Once 'a|x'>", "<AsyncOnce 'a|x'>")
    current = once.acquire()
    if api is ASYNCIO:
        current = await current
    for one in (once, current):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot be copied or pickled; (?!use detach)"):
                copied(one)
    with pytest.raises(TypeError, match="can't be detached: its result belongs to the process that runs it"):
        detached = current.detach()
        await detached
    released = current.release()
    if api is ASYNCIO:
        await released


async def test_its_errors_are_pickled(here, there, api):
    once = here.once("a", rerun=False)
    with pytest.raises(AlreadyRunning) as running:
        async with once:
            await there.once("a", on_running="raise").acquire()
    with pytest.raises(NotCompleted) as failed:
        await there.once("a").acquire()
    await once.forget()
    await once.run(api.function(lambda: 1), fingerprint="one")
    with pytest.raises(KeyReused) as reused:
        await once.acquire(fingerprint="two")
    for error in (running.value, failed.value, reused.value):
        read = pickle.loads(pickle.dumps(error))
        assert (type(read), str(read), vars(read)) == (type(error), str(error), vars(error))


def test_one_object_is_used_by_many_threads_at_once(server, raw):
    calls, begun = [], threading.Barrier(12)
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(12) as threads:
        once = hf.once("a")

        def call(_):
            begun.wait(PATIENCE)
            return once.run(lambda: calls.append(1) or len(calls), timeout=PATIENCE)

        assert list(threads.map(call, range(12), timeout=PATIENCE)) == [1] * 12
    assert len(calls) == 1
