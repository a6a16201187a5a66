"""Latches through both APIs: opening, giving up, and tasks of an event loop that wait together."""

from __future__ import annotations

import asyncio

import pytest

from handfast import ServerRefused, WaitTimeout
from handfast._drivers.aio.shared_waits import SharedWaits
from handfast._drivers.clock import monotonic
from handfast._engine.effects import Answer
from handfast._protocol import asking
from handfast.testing import FaultProxy, command, script
from tests._support.apis import ASYNCIO, CROWDED, SYNC
from tests._support.helpers import eventually_async

WATCHERS, PARTS = "{hf:latch:a}:watchers", "{hf:latch:a}:parts"


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, and the sync one with all connections in use."""
    return request.param


async def wait(latch, **options):
    """Wait: for a task of its own, which needs a coroutine."""
    return await latch.wait(**options)


async def watching(raw, count=1):
    await eventually_async(lambda: raw.zcard(WATCHERS) == count)


async def test_all_that_wait_go_on_once_all_parts_are_done(here, there, raw):
    latches = [client.latch("a", 3) for client in (here, there)]
    tasks = [asyncio.create_task(wait(latch)) for latch in latches]
    await watching(raw, 2)
    assert [await latches[0].done("x"), await latches[1].done("x", 7), await latches[0].done("x")] == [2, 1, 1]
    assert not any(task.done() for task in tasks)
    assert str(await latches[1].status()) == "1 to be done; 2 waiting"
    assert await latches[0].done("z") == 0
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    await latches[0].wait(timeout=0)
    status = await latches[0].status()
    assert (status.done, status.left, str(status)) == (("x", "7", "z"), 0, "open; 0 waiting")


async def test_who_waits_too_long_learns_how_many_parts_are_left(here):
    latch = here.latch("a", 1000)
    await latch.done(*range(600))
    for timeout, said in ((0, "'a' is not open: 400 parts are"), (0.05, r"'a' was not open within 0.05 s: 400 parts")):
        with pytest.raises(WaitTimeout, match=said) as late:
            await latch.wait(timeout=timeout)
        assert (late.value.left, late.value.timeout, isinstance(late.value, TimeoutError)) == (400, timeout, True)


@pytest.mark.parametrize("left", [1, 0])
async def test_a_call_asks_once_more_at_the_end_of_its_time(here, raw, left):
    task = asyncio.create_task(wait(here.latch("a", 3), timeout=0.5))
    await watching(raw)
    raw.zadd(PARTS, dict.fromkeys("xyz"[left:], 1))  # without a message
    raw.pexpire(PARTS, 60_000)
    if left:
        with pytest.raises(WaitTimeout, match="1 part is"):
            await task
    else:
        await task


async def test_a_latch_that_is_forgotten_is_closed(here, there, raw):
    latch = here.latch("a", 1)
    await latch.done("x")
    assert [await latch.forget(), await latch.forget()] == [True, False]
    task = asyncio.create_task(wait(latch))
    await watching(raw)
    await there.latch("a", 1).done("x")
    await asyncio.wait_for(task, 20)


async def test_a_message_that_is_lost_delays_who_waits_by_a_poll(here, raw, monkeypatch):
    monkeypatch.setattr(asking, "WATCH_POLL_S", 0.05)
    task = asyncio.create_task(wait(here.latch("a", 1)))
    await watching(raw)
    raw.zadd(PARTS, {"x": 1})
    raw.pexpire(PARTS, 60_000)
    await asyncio.wait_for(task, 20)


async def test_a_reply_to_done_that_is_lost_counts_once(api, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.lock("a").status()
            proxy.lose_reply(script("latch_done"))
            assert await client.latch("a", 2).done("x") == 1
            proxy.lose_reply(command("DEL"))
            assert await client.latch("a", 2).forget()


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (("a", 0), ValueError, "count must be from 1 to 100,000"),
        (("a", "1"), TypeError, "count must be an int"),
    ],
)
async def test_bad_arguments_are_refused_before_any_call(api, args, error, words):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=words):
            client.latch(*args)
        with pytest.raises(TypeError, match="at least one"):
            await client.latch("a", 1).done()


# --- tasks of an event loop


@pytest.fixture
async def mine(server, raw):
    """A client of the asyncio API, as users have it."""
    async with ASYNCIO.handfast(server.url) as client:
        await client.latch("a", 2).done("x")
        yield client


async def test_a_thousand_tasks_are_one_waiter_and_go_on_where_the_one_that_asks_is_cancelled(mine, raw):
    latch = mine.latch("a", 2)
    tasks = [asyncio.create_task(latch.wait(timeout=60)) for _ in range(1000)]
    await watching(raw)
    assert (await latch.status()).waiting == 1
    tasks[0].cancel()
    tasks[1].cancel()
    await watching(raw, 2)
    await latch.done("y")
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert ends[2:] == [None] * 998


async def test_the_time_of_one_task_is_not_that_of_another(mine, raw):
    latch = mine.latch("a", 2)
    times = [0.05, 60, 0.05, 0.1, None]
    tasks = [asyncio.create_task(latch.wait(timeout=timeout)) for timeout in times]
    for late in (0, 2, 3):
        with pytest.raises(WaitTimeout, match="1 part is"):
            await tasks[late]
    await latch.done("y")
    await asyncio.wait_for(asyncio.gather(tasks[1], tasks[4]), 20)


async def test_what_the_server_refuses_is_refused_to_all(mine, raw):
    raw.config_set("maxmemory", 1)
    ends = await asyncio.gather(*(mine.latch("a", 2).wait() for _ in range(9)), return_exceptions=True)
    raw.config_set("maxmemory", 0)
    assert {type(end) for end in ends} == {ServerRefused}
    assert len({id(end) for end in ends}) == 9


async def test_no_answer_is_older_than_the_call_that_gets_it():
    waits, asked = SharedWaits(), []
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]

    async def ask(_until):
        asked.append(monotonic())
        return await answers[len(asked) - 1]

    first = asyncio.create_task(waits.share("q", monotonic(), float("inf"), ask))
    await eventually_async(lambda: asked)
    later = asyncio.create_task(waits.share("q", monotonic(), float("inf"), ask))
    await eventually_async(lambda: waits._shared["q"])
    old, new = Answer(asked[0], "old"), Answer(monotonic(), "new")
    answers[0].set_result(old)
    assert await first is old
    await asyncio.sleep(0)
    answers[1].set_result(new)
    assert await later is new
    assert len(asked) == 2
