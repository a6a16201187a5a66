"""Debouncing through both APIs, and over the connection that threads share: which call runs, and what is left of the others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from math import inf

import pytest

from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, CROWDED, SYNC
from tests._support.family import scripts_run
from tests._support.helpers import eventually_async

BURST = "{hf:debounce:a}:burst"
LONG = 300.0
"""Longer than any test lasts."""


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, and the sync one with all connections in use."""
    return request.param


@pytest.fixture
async def mine(server, raw):
    """A client of the asyncio API as its users have it."""
    async with ASYNCIO.handfast(server.url) as client:
        await client.debounce("b", 0.01).wait()
        yield client


async def wait(debounce):
    """Wait: for a task of its own, which needs a coroutine."""
    return await debounce.wait()


async def entered(raw, before=None):
    """Wait until another call is the newest one. Return its token."""
    return await eventually_async(lambda: (token := raw.hget(BURST, "token")) != before and token)


async def start(raw, debounce):
    """Start a call, and wait until it is the newest one."""
    before = raw.hget(BURST, "token")
    task = asyncio.create_task(wait(debounce))
    await entered(raw, before)
    return task


async def test_the_newest_call_runs_and_the_others_end_at_once(here, there, raw):
    calls = [await start(raw, client.debounce("a", LONG)) for client in (here, there, here)]
    assert await asyncio.wait_for(asyncio.gather(*calls[:2]), 20) == [False, False]
    assert not calls[2].done()
    last = await start(raw, there.debounce("a", 0.05))
    assert await asyncio.wait_for(asyncio.gather(calls[2], last), 20) == [False, True]
    assert not raw.hexists(BURST, "token")


async def test_a_burst_runs_at_most_so_long_after_its_first_call(here, there, raw):
    first = await start(raw, here.debounce("a", LONG))
    assert await asyncio.wait_for(wait(there.debounce("a", 0.05, at_most=0.05)), 20)
    assert await asyncio.wait_for(first, 20) is False


async def test_a_call_takes_two_trips_and_one_that_is_superseded_one(here, there, raw):
    await there.debounce("b", 0.01).wait()
    await here.debounce("b", 0.01).wait()
    before = scripts_run(raw)
    first = await start(raw, here.debounce("a", 0.2))
    assert await there.debounce("a", 0.2).wait()
    assert await first is False
    assert scripts_run(raw) - before in (3, 4), "its timer may be earlier than that of the server, once"


async def test_keys_have_nothing_to_do_with_each_other(here, there, raw):
    debounce = here.debounce("a", timedelta(milliseconds=50))
    assert debounce.keyed("x", 1).name == "a|x|1"
    runs = [asyncio.create_task(wait(one)) for one in (debounce.keyed("x"), debounce.keyed("y"), debounce)]
    assert await asyncio.wait_for(asyncio.gather(*runs), 20) == [True] * 3


async def test_lost_replies_make_no_second_call_and_no_second_run(api, there, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.lock("a").status()
            proxy.lose_reply(script("debounce_enter"))
            first = await start(raw, client.debounce("a", LONG))
            second = await start(raw, there.debounce("a", LONG))
            assert await asyncio.wait_for(first, 20) is False
            proxy.lose_reply(script("debounce_enter"), after=1)
            assert await asyncio.wait_for(wait(client.debounce("a", 0.05)), 20) is True
            assert await asyncio.wait_for(second, 20) is False
    assert not raw.hexists(BURST, "token")


@pytest.mark.parametrize(
    ("args", "options", "error", "words"),
    [
        (("a", 0), {}, ValueError, "quiet must be at least a millisecond"),
        (("a", "1"), {}, TypeError, "quiet must be seconds"),
        (("a", inf), {}, ValueError, "quiet must be finite"),
        (("a", 2), {"at_most": 1.5}, ValueError, "at_most must be at least quiet, and 1.5 is less than 2"),
        (("a", 1), {"by": 1}, TypeError, "by must"),
    ],
)
async def test_bad_arguments_are_refused_before_any_call(api, args, options, error, words):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=words):
            client.debounce(*args, **options)


# --- decorators


def test_a_decorated_function_runs_for_the_newest_call_of_each_key(hf):
    debounce = hf.debounce("a", 0.05, by="customer")

    @debounce
    def reindex(customer, number=1):
        """Count."""
        return f"{customer} {number}"

    assert reindex("ann", number=2) == "ann 2"
    assert reindex.__doc__ == "Count."


async def test_a_decorated_coroutine_function_returns_nothing_where_a_later_call_takes_over(mine, raw):
    calls = []

    @mine.debounce("a", LONG)
    async def early():
        calls.append("early")

    @mine.debounce("a", 0.05)
    async def late():
        calls.append("late")
        return "done"

    first = asyncio.create_task(early())
    await entered(raw)
    assert await late() == "done"
    assert await first is None
    assert calls == ["late"]
