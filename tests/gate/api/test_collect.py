"""Items of a burst through both APIs: each is done by some run, and forgotten when that run says so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from math import inf

import pytest

from handfast import Handfast, QueueFull
from handfast._api.sync import debounce as sync_debounce
from handfast._api.sync import object as sync_object
from handfast._drivers.sync import driver, performing, session
from handfast._protocol import debouncing
from handfast.testing import FaultProxy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO, SYNC
from tests._support.cancelling import settled
from tests._support.helpers import eventually, eventually_async

ITEMS, QUEUE, BURST = ("{hf:debounce:a}:" + part for part in ("items", "queue", "burst"))
LONG = 300.0
"""Longer than any test lasts."""
SHORT = 0.02


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn."""
    return request.param


@contextlib.asynccontextmanager
async def block(debounce, item, **options):
    """Enter a block of either API."""
    made = debounce.collect(item, **options)
    if hasattr(made, "__aenter__"):
        async with made as items:
            yield items
        return
    items = await asyncio.to_thread(made.__enter__)
    try:
        yield items
    except BaseException:
        if not await asyncio.to_thread(made.__exit__, *sys.exc_info()):
            raise
    else:
        await asyncio.to_thread(made.__exit__, None, None, None)


async def collect(debounce, item, **options):
    """Return the items of a block that does nothing."""
    async with block(debounce, item, **options) as items:
        return items


async def start(raw, debounce, item, **options):
    """Start a call, and wait until it is the newest one."""
    before = raw.hget(BURST, "token")
    task = asyncio.create_task(collect(debounce, item, **options))
    await eventually_async(lambda: (token := raw.hget(BURST, "token")) != before and token)
    return task


def left(raw):
    """Return how many items the server has."""
    return raw.zcard(QUEUE)


async def test_the_run_gets_the_items_of_all_and_the_others_none(here, there, raw):
    calls = [await start(raw, client.debounce("a", LONG), n) for n, client in enumerate((here, there, here))]
    assert await collect(there.debounce("a", SHORT), {"last": [1, None]}) == (0, 1, 2, {"last": [1, None]})
    assert await asyncio.wait_for(asyncio.gather(*calls), 20) == [(), (), ()]
    assert left(raw) == 0
    assert raw.hkeys(ITEMS) == [""]
    assert await collect(here.debounce("a", SHORT), "next") == ("next",)


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, KeyboardInterrupt])
async def test_the_next_run_gets_the_items_of_a_block_that_raises(here, there, raw, error):
    with pytest.raises(error):
        async with block(here.debounce("a", SHORT), "first"):
            raise error
    assert left(raw) == 1
    assert await collect(there.debounce("a", SHORT), "second") == ("first", "second")


async def test_items_that_cannot_be_read_stay(here, there, raw):
    def loads(data):
        raise LookupError(data.decode())

    first = await start(raw, here.debounce("a", LONG), b"one", dumps=bytes)
    with pytest.raises(LookupError, match="one"):
        await collect(there.debounce("a", SHORT), "x", dumps=str.encode, loads=lambda data: data == b"x" or loads(data))
    assert await asyncio.wait_for(first, 20) == ()
    assert await collect(there.debounce("a", SHORT), b"two", dumps=bytes) == (b"one", b"x", b"two")


async def test_the_items_of_a_run_that_takes_too_long_are_for_another_one(here, there, raw, caplog):
    async with block(here.debounce("a", SHORT), "first", within=0.001) as items:
        assert await collect(there.debounce("a", SHORT), "second") == ("first", "second")
    assert items == ("first",)
    assert left(raw) == 0
    assert [(one.name, one.levelno) for one in caplog.records] == [("handfast.debounce", logging.WARNING)]
    assert "other runs may have done them as well" in caplog.text


async def test_two_runs_at_a_time_have_items_of_their_own(here, there, raw):
    async with block(here.debounce("a", SHORT), "first") as first:
        async with block(there.debounce("a", SHORT), "second") as second:
            assert (first, second) == (("first",), ("second",))
        assert left(raw) == 2, "the first run, and its item"
    assert left(raw) == 0


async def test_the_call_that_leaves_the_last_of_so_many_runs_at_once(here, there, raw):
    calls = [await start(raw, here.debounce("a", LONG), n, max_items=3) for n in range(2)]
    assert await asyncio.wait_for(collect(there.debounce("a", LONG), 2, max_items=3), 20) == (0, 1, 2)
    assert await asyncio.wait_for(asyncio.gather(*calls), 20) == [(), ()]


async def test_a_run_gets_hundreds_of_items_in_the_order_of_their_arrival(raw, server):
    async with ASYNCIO.handfast(server.url) as client:
        debounce = client.debounce("a", 0.3)
        calls = await asyncio.wait_for(asyncio.gather(*(collect(debounce, n) for n in range(250))), 20)
    got = [items for items in calls if items]
    assert sorted(item for items in got for item in items) == [*range(250)]
    assert all(items == tuple(sorted(items)) for items in got)
    assert len(got[-1]) > 100
    assert left(raw) == 0


async def test_of_ten_thousand_items_a_further_one_is_refused(here, raw):
    raw.zadd(QUEUE, dict.fromkeys(map(str, range(10_000)), 0))
    raw.expire(QUEUE, 600)
    with pytest.raises(
        QueueFull, match="10000 are already waiting for 'a'; they are items that no run has done"
    ) as found:
        await collect(here.debounce("a", LONG), 1)
    assert found.value.waiting == 10_000
    assert not raw.exists(ITEMS, BURST)


async def test_a_call_that_is_cancelled_leaves_its_item(here, there, raw):
    call = await start(raw, here.debounce("a", LONG), "first")
    if here.__class__.__name__ == "Awaitable":
        there_too = await start(raw, there.debounce("a", LONG), "other")  # a thread is not cancelled: it is superseded
        assert await asyncio.wait_for(call, 20) == ()
        call = there_too
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert "first" in await collect(there.debounce("a", SHORT), "second")


async def test_where_the_server_lost_all_a_run_has_its_own_item(here, raw):
    call = await start(raw, here.debounce("a", 0.3), "own")
    raw.flushall()
    assert await asyncio.wait_for(call, 20) == ("own",)


@pytest.mark.parametrize("verb", ["put", "enter", "take", "done"])
async def test_a_lost_reply_makes_no_second_item_and_loses_none(api, there, server, raw, verb):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.lock("a").status()
            proxy.lose_reply(script(f"debounce_{verb}"))
            assert await asyncio.wait_for(collect(client.debounce("a", SHORT), "one"), 20) == ("one",)
    assert await collect(there.debounce("a", SHORT), "two") == ("two",)


async def test_at_maxmemory_an_item_is_refused_and_a_run_goes_on(here, there, raw):
    call = await start(raw, here.debounce("a", 0.3), "one")
    raw.config_set("maxmemory", 1)
    with pytest.raises(Exception, match="OOM"):
        await collect(there.debounce("a", SHORT), "two")
    assert await asyncio.wait_for(call, 20) == ("one",)
    raw.config_set("maxmemory", 0)
    assert left(raw) == 0


@pytest.mark.parametrize(
    ("item", "options", "error", "words"),
    [
        ({1}, {}, TypeError, "not JSON serializable"),
        ("x" * 65_535, {}, ValueError, "an item must be at most 65,536 bytes as it is stored, not 65,537"),
        ("x", {"dumps": bytes}, TypeError, "must be bytes with dumps=bytes, not str"),
        ("x", {"dumps": str.encode}, ValueError, "dumps and loads belong together"),
        (1, {"within": 0}, ValueError, "within must be at least a millisecond"),
        (1, {"within": inf}, ValueError, "within must be finite"),
        (1, {"within": 86_401}, ValueError, "within must be at most a day, not 86401"),
        (1, {"max_items": 0}, ValueError, "max_items must be from 1 to 1,000, not 0"),
        (1, {"max_items": 1.5}, TypeError, "max_items must be an int"),
    ],
)
async def test_bad_arguments_are_refused_before_any_call(api, item, options, error, words):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=words):
            client.debounce("a", 1.0).collect(item, **options)


async def test_a_cancellation_at_any_await_loses_no_item_and_does_none_twice(server, raw):
    cancelled, done, made = 0, [], iter(range(1000))
    async with ASYNCIO.handfast(server.url) as client:
        debounce = client.debounce("a", 0.002)

        async def once():
            async with debounce.collect(next(made), within=LONG) as items:
                await asyncio.sleep(0)
            done.extend(items)

        await once()
        async for outcome in cancel_everywhere(once, twice=True):
            assert outcome.how != "failed", outcome
            await settled(client)
            cancelled += outcome.how == "stopped"
            assert not raw.hexists(BURST, "token"), outcome
        rest = await collect(debounce, "last")
    assert cancelled > 4
    assert len({*done}) == len(done), "done twice"
    assert not {*done} & {*rest}


def test_an_interrupt_at_any_point_leaves_none_waiting_and_does_no_item_twice(hf, raw):
    struck, done, made = 0, [], iter(range(100_000))
    debounce = hf.debounce("a", 0.002)

    def once():
        with debounce.collect(next(made), within=0.001) as items:
            pass
        done.extend(items)

    once()
    where = [driver, performing, session, sync_object, sync_debounce, debouncing]
    for outcome in interrupt_everywhere(once, within=where):
        assert outcome.how != "failed", outcome
        struck += outcome.how == "stopped"
        eventually(lambda: not raw.hexists(BURST, "token"))
        with debounce.collect("last") as rest:
            assert not {*done} & {*rest}, outcome
    assert struck > 50


def test_without_a_server_a_run_has_its_own_item():
    with Handfast("null:") as client, client.debounce("a", LONG).collect(1, max_items=1) as items:
        assert items == (1,)
