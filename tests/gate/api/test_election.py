"""Elections: terms, observers and history, in both APIs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from math import inf

import pytest
import redis

from handfast import ClientClosed, LeaseLost
from handfast._api.sync import announced as sync_announced
from handfast._api.sync import election as sync_election
from handfast._api.sync import primitive
from handfast._drivers.sync import cleanup, contexts, driver, performing, renewer
from handfast._engine.effects import Answer, Park, Waking
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.packing import doubles
from handfast._protocol import electing
from handfast._protocol.asking import ObjectAttempt, watch
from handfast.testing import FaultProxy, interrupt_at, script
from tests._support.apis import ASYNCIO, SYNC, until_queued
from tests._support.cancelling import context_of
from tests._support.cancelling import settled as still
from tests._support.family import until_listening
from tests._support.helpers import awaited, eventually, eventually_async, settled

WHERE = [sync_election, sync_announced, primitive, cleanup, contexts, driver, performing, renewer]
"""Modules in which a term is interrupted at every point."""

SOON_S = 0.3
"""A ttl in seconds that is to end."""


async def observed(api, election, seen):
    """Have all changes noted, until the task is cancelled."""
    if api is ASYNCIO:
        async for leader in election.observe():
            seen.append(leader)

    def observe():
        with contextlib.suppress(Exception):  # the client is closed at the end of the test
            for leader in election.observe():
                seen.append(leader)

    threading.Thread(target=observe, daemon=True).start()


def values(seen):
    return [leader.value if leader else None for leader in seen]


async def test_a_term_is_a_lease_and_others_see_its_value(here, there):
    election = here.election("a", value="http://10.0.0.5:8000")
    assert await there.election("a").leader() is None
    async with election as term:
        leader = await there.election("a", value="other").leader()
        assert (leader.value, leader.fence, leader.transitions, leader.candidates) == (
            "http://10.0.0.5:8000",
            term.fence,
            1,
            0,
        )
        assert 0 <= leader.led_for < leader.remaining <= 15
        status = await there.election("a").status()
        assert status.holders[0].value == "http://10.0.0.5:8000"
        assert await there.election("a").try_acquire() is None
    assert await there.election("a").leader() is None


@pytest.mark.parametrize("value", ["", "a b|c=d\x1b%20", "\N{GRINNING FACE}" * 256, "x" * 1024])
async def test_a_value_is_read_as_it_was_given(here, there, value):
    async with here.election("a", value=value):
        assert (await there.election("a").leader()).value == value


@pytest.mark.parametrize("value", ["\N{GRINNING FACE}" * 257, "\ud800", b"x"])
async def test_values_that_no_record_can_have_are_refused_before_any_io(here, value):
    with pytest.raises((TypeError, ValueError), match="value must"):
        here.election("a", value=value)


async def test_candidates_lead_in_the_order_in_which_they_came(here, there):
    term = await here.election("a", value="one").acquire()
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(awaited(there.election("a", value="two").acquire()))
        await eventually_async(lambda: waiting(here, 1))
        third = tasks.create_task(awaited(here.election("a", value="three").acquire()))
        await eventually_async(lambda: waiting(here, 2))
        status = await here.election("a").status()
        assert [one.value for one in status.waiters] == ["two", "three"]
        await term.release()
        await (await second).release()
        await (await third).release()
    assert term.fence < second.result().fence < third.result().fence


async def waiting(client, count):
    return (await client.election("a").status()).waiting == count


async def test_an_observer_sees_each_leader_and_each_vacancy(api, here, there):
    seen = []
    task = asyncio.create_task(observed(api, there.election("a"), seen))
    await eventually_async(lambda: seen == [None])
    for number in range(3):
        async with here.election("a", value=str(number)):
            await eventually_async(lambda number=number: values(seen)[-1] == str(number))
        await eventually_async(lambda: seen[-1] is None)
    assert values(seen) == [None, "0", None, "1", None, "2", None]
    task.cancel()


async def test_an_observer_sees_a_handover(api, here, there):
    seen, election = [], here.election("a", value="one")
    async with election:
        task = asyncio.create_task(observed(api, there.election("a"), seen))
        await eventually_async(lambda: values(seen) == ["one"])
        second = asyncio.create_task(awaited(there.election("a", value="two").acquire()))
        await eventually_async(lambda: waiting(here, 1))
    async with await second:
        await eventually_async(lambda: values(seen)[-1] == "two")
    task.cancel()


async def test_the_end_of_a_dead_leader_is_seen_when_its_lease_ends(api, server, here):
    seen = []
    async with api.client(server.url, release_at_exit=False) as mortal:
        term = await mortal.election("a", ttl=SOON_S, value="dead").acquire()
        task = asyncio.create_task(observed(api, here.election("a"), seen))
        await eventually_async(lambda: values(seen) == ["dead"])
    await eventually_async(lambda: values(seen) == ["dead", None])
    assert term.lost
    task.cancel()


async def test_a_force_release_is_seen_and_noted_with_its_reason(api, here, there, raw):
    seen = []
    term = await here.election("a").acquire()
    await until_listening(raw)
    task = asyncio.create_task(observed(api, there.election("a"), seen))
    await eventually_async(lambda: len(seen) == 1)
    assert await there.election("a").force_release(reason="maintenance") == 1
    await eventually_async(lambda: seen[-1] is None)
    await eventually_async(lambda: term.lost)

    async def noted():
        return "maintenance" in ((await there.election("a").history())[0].why or "")

    await eventually_async(noted)
    task.cancel()


async def test_the_history_has_the_newest_term_first(here, there):
    for number in range(40):
        async with here.election("a", value=str(number)) as term:
            pass
    last = await here.election("a", value="last").acquire()

    async def noted():
        terms = await there.election("a").history()
        return len(terms) == 32 and terms[0].fence == last.fence and terms[1].why == "resigned"

    await eventually_async(noted)
    terms = await there.election("a").history()
    assert [one.value for one in terms] == ["last", *map(str, range(39, 8, -1))]
    assert terms[0].ended is terms[0].why is None
    assert terms[1].fence == term.fence
    assert terms[1].began <= terms[1].ended
    assert [one.value for one in await there.election("a").history(2)] == ["last", "39"]
    await last.release()


@pytest.mark.parametrize("limit", [0, 33, 1.5, None])
async def test_bad_limits_of_a_history_are_refused(here, limit):
    with pytest.raises((TypeError, ValueError), match="limit must"):
        await here.election("a").history(limit)


async def test_run_leads_until_the_function_returns(api, here):
    async def lead(term):
        assert not term.lost
        return term.fence

    plain = (lambda term: term.fence) if api is SYNC else lead
    assert await here.election("a").run(plain) > 0
    assert await here.election("a").leader() is None


async def test_run_campaigns_again_after_a_loss(api, here, there):
    fences = []

    async def take_away():
        await there.election("a").force_release()

    async def lead_async(term):
        fences.append(term.fence)
        if len(fences) == 1:
            await asyncio.shield(take_away())
            await asyncio.Event().wait()  # until it is cancelled
        return "done"

    def lead(term):
        fences.append(term.fence)
        if len(fences) == 1:
            there._thing.election("a").force_release()
            eventually(lambda: term.lost)
        return "done"

    assert await here.election("a").run(lead if api is SYNC else lead_async) == "done"
    assert fences == sorted(set(fences))
    assert len(fences) == 2


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    "error",
    [
        LeaseLost("other", 1, "it is another one"),
        ClientClosed("other"),
        redis.exceptions.ConnectionError("of the function's own client"),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_end_by_another_hand_is_logged_and_the_campaign_goes_on(api, here, error, caplog):
    terms = []

    def lead(term):
        terms.append(term.fence)
        if len(terms) < 3:
            raise error
        return "led"

    async def lead_async(term):
        return lead(term)

    assert await here.election("a").run(lead if api is SYNC else lead_async) == "led"
    assert len(set(terms)) == 3
    logged = [one.getMessage() for one in caplog.records if one.name == "handfast.election"]
    said = "the function that leads 'a' failed, and is called again in {} s: " + type(error).__name__
    assert logged == [said.format("0.01"), said.format("0.02")]


async def test_a_leader_that_returns_where_an_operator_asks_it_to_end_campaigns_again(api, here, there, raw):
    terms = []

    def lead(term):
        terms.append(term.fence)
        if len(terms) == 1:
            term.wanted_event.wait()
        return len(terms)

    async def lead_async(term):
        terms.append(term.fence)
        if len(terms) == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return len(terms)

    run = asyncio.create_task(settled(here.election("a").run(lead if api is SYNC else lead_async)))
    await eventually_async(lambda: terms)
    await until_listening(raw)
    await settled(there.hold("a", 3600, kind="election", reason="a migration", now=True, grace=3600))
    await until_queued(there.election("a"))
    assert len(terms) == 1
    assert not run.done()
    assert await there.unhold("a", kind="election")
    assert await run == 2


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("data", ["kept", "lost"])
async def test_a_campaign_outlives_an_outage(api, server, there, caplog, data):
    """Longer than ``retry_for``: the candidate asks again for as long as the process lives."""
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as far, await there.election("a").acquire() as other:
            led = far.election("a")
            run = asyncio.create_task(settled(led.run((lambda _term: "led") if api is SYNC else leads)))
            await until_queued(there.election("a"))
            proxy.retarget("unix:///nowhere")
            proxy.cut()
            await eventually_async(lambda: "the election 'a' could not go on, and tries again in 0.01 s" in caplog.text)
            if data == "lost":
                await other.release()
            proxy.retarget(server.url)
            if data == "kept":
                await other.release()
            assert await run == "led"


async def leads(_term):
    return "led"


@pytest.mark.usefixtures("short_pauses")
async def test_a_cleanup_that_fails_after_a_loss_ends_no_campaign(api, here, there, raw, caplog):
    terms = []

    def lead(term):
        terms.append(term.fence)
        if len(terms) == 1:
            term.lost_event.wait()
            raise LookupError("in cleaning up")
        return "led"

    async def lead_async(term):
        terms.append(term.fence)
        if len(terms) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                raise LookupError("in cleaning up")
        return "led"

    run = asyncio.create_task(settled(here.election("a").run(lead if api is SYNC else lead_async)))
    await eventually_async(lambda: terms)
    await until_listening(raw)
    await there.election("a").force_release(reason="stuck")
    assert await run == "led"
    assert "the function that leads 'a' failed" in caplog.text


async def test_a_function_of_the_other_api_is_refused_before_it_is_called(api, here):
    called = []

    async def coroutine(_term):
        called.append("coroutine")

    def plain(_term):
        called.append("plain")

    wrong = coroutine if api is SYNC else plain
    with pytest.raises(TypeError, match="coroutine function"):
        await settled(here.election("a").run(wrong))
    assert not called
    assert await here.election("a").history() == ()
    with pytest.raises(TypeError, match=r"returned (a coroutine|NoneType)"):
        await settled(here.election("a").run(lambda term: wrong(term)))  # noqa: PLW0108 -- as users write it
    assert await here.election("a").leader() is None


async def test_tasks_that_observe_the_same_are_one_waiter(server, raw):
    async with ASYNCIO.client(server.url) as client:
        seen = [[] for _ in range(20)]
        tasks = [asyncio.create_task(observed(ASYNCIO, client.election("a"), one)) for one in seen]
        await eventually_async(lambda: all(values(one) == [None] for one in seen))
        await eventually_async(lambda: raw.zcard("{hf:election:a}:watchers") == 1)
        async with client.election("a", value="x"):
            await eventually_async(lambda: all(values(one) == [None, "x"] for one in seen))
        for task in tasks:
            task.cancel()


async def test_an_observer_goes_on_after_its_connection_broke(api, server, here):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            seen = []
            task = asyncio.create_task(observed(api, far.election("a"), seen))
            await eventually_async(lambda: values(seen) == [None])
            proxy.cut()
            async with here.election("a", value="x"):
                await eventually_async(lambda: values(seen)[-1] == "x")
            task.cancel()


async def test_without_a_server_no_one_is_observed(api):
    async with api.client("null:") as client:
        async with client.election("a") as term:
            assert term.fence
        assert await settled(client.election("a").leader()) is None
        seen = []
        await asyncio.wait_for(observed(api, client.election("a"), seen), 10)
        await eventually_async(lambda: seen == [None])


# --- at every point


def test_an_interrupt_of_a_resignation_leaves_no_leader(hf):
    step, run, election = 0, None, hf.election("a")
    while run is None or run.struck:
        term = election.acquire()
        run = interrupt_at(term.release, step := step + 1, within=WHERE)
        term.release()
        assert not election.status().holding, run
        assert not term.lost, run
    assert step > 15


async def test_an_observer_that_is_cancelled_leaves_nothing_in_the_client(server):
    async with ASYNCIO.handfast(server.url) as client:

        async def look():
            async for leader in client.election("a").observe():
                assert leader is None

        for _ in range(3):
            task = asyncio.create_task(look())
            await eventually_async(lambda: client._driver._contexts and context_of(client).session.inbox)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await still(client)
            assert not context_of(client).session.inbox


@pytest.mark.parametrize("name", ["election_announce", "election_watch"])
async def test_a_reply_that_is_lost_changes_nothing(api, server, here, name):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            seen = []
            task = asyncio.create_task(observed(api, far.election("a"), seen))
            await eventually_async(lambda: values(seen) == [None])
            fault = proxy.lose_reply(script(name))
            async with far.election("a", value="x") as term:
                await eventually_async(lambda: values(seen)[-1] == "x")
            await eventually_async(lambda: values(seen)[-1] is None)
            assert fault.happened == 1

            async def noted():
                return [(one.fence, one.why) for one in await here.election("a").history()] == [
                    (term.fence, "resigned")
                ]

            await eventually_async(noted)
            task.cancel()


# --- without a server


@pytest.mark.parametrize(("left_us", "until"), [(1_000_000, 101.002), (0, 105.0), (60_000_000, 105.0)])
def test_an_observer_asks_when_the_lease_ends_that_it_has_seen(left_us, until):
    attempt = ObjectAttempt(ObjectRequest(KeySet("hf", "election", "a"), known=1), b"t" * 32, 100.0)
    steps = watch(attempt, "watch", inf, has_end=True)
    call = next(steps)
    assert call.prefix.name == "election_watch"
    park = steps.send(Answer(100.0, b"waits " + doubles(left_us)))
    assert park == Park(attempt.token, until)
    assert steps.send(Waking(until, None)) == call
    with pytest.raises(StopIteration) as ended:
        steps.send(Answer(until, b"vacant " + doubles(1, 0, 0)))
    assert electing.leader(ended.value.value) is None


def test_an_observer_asks_once_more_at_the_end_of_its_time():
    attempt = ObjectAttempt(ObjectRequest(KeySet("hf", "election", "a"), known=0), b"t" * 32, 100.0)
    steps = watch(attempt, "watch", 101.0, has_end=True)
    next(steps)
    assert steps.send(Answer(100.0, b"waits " + doubles(0))).until == 101.0
    steps.send(Waking(101.0, None))
    with pytest.raises(StopIteration):
        steps.send(Answer(101.0, b"waits " + doubles(0)))
