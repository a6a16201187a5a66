"""What a client reports to the functions of `Handfast.on`. In both APIs."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
import time
from collections import Counter

import pytest

from handfast import (
    AcquireTimeout,
    AsyncHandfast,
    Handfast,
    LeaseLost,
    NotCompleted,
    Preempted,
    QueueFull,
    RateLimited,
    Superseded,
)
from handfast import events as seen
from handfast._drivers import dispatcher
from handfast._protocol import once as once_steps
from handfast.events import (
    Acquired,
    Admitted,
    Connected,
    Event,
    Found,
    Lost,
    Queued,
    Refused,
    Released,
    RenewalFailed,
    Wanted,
)
from handfast.testing import cancel_everywhere
from tests._support.apis import ASYNCIO, take, until_queued
from tests._support.family import until_listening
from tests._support.helpers import eventually, eventually_async, settled

SOON_S = 0.05

SHORT_S = 0.5
"""A ttl after which a lease that is not renewed is lost."""

MADE = {
    "lock": lambda client, **more: client.lock("a", **more),
    "semaphore": lambda client, **more: client.semaphore("a", 1, **more),
    "rwlock": lambda client, **more: client.rwlock("a", **more).write(),
    "election": lambda client, **_: client.election("a"),
    "once": lambda client, **more: client.once("a", **more),
}
made = pytest.mark.parametrize("kind", MADE)


@pytest.fixture
def told(here):
    """What the first client reports, but for its connections."""
    found = []
    here.on(lambda event: None if isinstance(event, Connected) else found.append(event))
    return found


def kinds_of(told):
    return [type(event) for event in told]


async def ends_of(told, many):
    await eventually_async(lambda: sum(isinstance(event, Released | Lost) for event in told) >= many)


@made
async def test_a_lease_is_acquired_and_released(here, told, kind):
    began = time.time()
    async with MADE[kind](here) as lease:
        assert kinds_of(told) == [Acquired]
    acquired, released = told
    assert (acquired.kind, acquired.name, acquired.fence, acquired.position) == (kind, "a", lease.fence, None)
    assert (type(released), released.kind, released.name, released.fence) == (Released, kind, "a", lease.fence)
    assert began <= acquired.at <= released.at <= time.time()
    assert 0 <= released.held_for < 60 > acquired.waited >= 0


@made
async def test_one_that_waits_is_queued_and_then_acquires(here, there, told, kind):
    lease = await MADE[kind](there).acquire()
    waiter = asyncio.create_task(take(MADE[kind](here)))
    await until_queued(MADE[kind](here))
    await eventually_async(lambda: kinds_of(told) == [Queued])
    await lease.release()
    fence = await waiter
    await ends_of(told, 1)
    queued, acquired, _ = told
    assert (queued.kind, queued.name, queued.position) == (kind, "a", 0)
    assert (acquired.fence, acquired.position) == (fence, 0)
    assert acquired.waited > 0


async def test_why_a_request_got_nothing(here, there, told):
    full = here.lock("a", max_waiters=1)
    lease = await there.lock("a").acquire()
    assert await here.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout):
        await here.lock("a").acquire(timeout=0)
    with pytest.raises(AcquireTimeout):
        await here.lock("a").acquire(timeout=SOON_S)
    waiter = asyncio.create_task(take(here.lock("a")))
    await until_queued(here.lock("a"))
    with pytest.raises(QueueFull):
        await full.acquire()
    with pytest.raises(AcquireTimeout):
        await there.lock("a").replace(timeout=SOON_S)
    with pytest.raises(Superseded):
        await waiter
    await lease.release()
    refused = [event for event in told if isinstance(event, Refused)]
    assert [event.outcome for event in refused] == ["busy", "busy", "timeout", "full", "superseded"]
    assert [event.position for event in refused] == [None, None, 0, None, 0]
    assert refused[2].waited >= SOON_S
    assert {(event.kind, event.name) for event in told} == {("lock", "a")}


async def test_a_limiter_admits_or_refuses(here, told):
    limiter = here.limiter("api", "3/h")
    await limiter.acquire(cost=2)
    assert not await limiter.try_acquire(cost=2)
    with pytest.raises(RateLimited):
        await limiter.acquire(cost=2, timeout=SOON_S)
    lenient = here.limiter("api", "3/h", enforce=False)
    await lenient.acquire(cost=2)
    first, busy, late, allowed = told
    assert (first.kind, first.name, first.cost, first.exceeded) == ("limiter", "api", 2, False)
    assert (busy.outcome, late.outcome) == ("busy", "timeout")
    assert (type(allowed), allowed.cost, allowed.exceeded) == (Admitted, 2, True)


async def test_a_record_is_found(api, here, told):
    once = here.once("job")
    assert await once.run(api.function(lambda: 1)) == 1
    assert await once.run(api.function(lambda: 2)) == 1
    assert (await once.try_acquire()).done
    failing = here.once("bad", rerun=False)
    with pytest.raises(ZeroDivisionError):
        await failing.run(api.function(lambda: 1 // 0))
    with pytest.raises(NotCompleted):
        await failing.run(api.function(lambda: 1))
    assert kinds_of(told) == [Acquired, Released, Found, Found, Acquired, Released, Found]
    assert [event.outcome for event in told if isinstance(event, Found)] == ["done", "done", "failed"]
    assert {event.position for event in told if isinstance(event, Found)} == {None}


async def test_a_record_that_was_waited_for_is_found_by_a_request_in_the_queue(api, here, there, told):
    run = await there.once("a").acquire()

    async def call():
        return await here.once("a").run(api.function(lambda: 2))

    waiter = asyncio.create_task(call())
    await until_queued(there.once("a"))
    await eventually_async(lambda: kinds_of(told) == [Queued])
    await run.finish(1)
    assert await waiter == 1
    assert [(type(event), event.position) for event in told] == [(Queued, 0), (Found, 0)]


async def test_tasks_that_share_an_answer_are_each_told_of(api, here, there, told):
    run = await there.once("job").acquire()
    waiting = [asyncio.create_task(settled(here.once("job").run(api.function(lambda: "mine")))) for _ in range(5)]
    await until_queued(there.once("job"))
    await settled(run.finish("theirs"))
    await run.release()
    assert await asyncio.gather(*waiting) == ["theirs"] * 5
    assert kinds_of(told).count(Found) == 5


@made
@pytest.mark.usefixtures("short_ticks")
async def test_a_lease_that_is_taken_is_lost(here, there, raw, told, kind):
    lease = await MADE[kind](here).acquire()
    await until_listening(raw)
    assert await MADE[kind](there).force_release(reason="it hangs")
    await ends_of(told, 1)
    _, lost = told
    assert (lost.kind, lost.name, lost.fence, lost.cause) == (kind, "a", lease.fence, "revoked")
    assert "it hangs" in lost.reason
    assert lease.lost
    await lease.release() if kind != "once" else None
    assert len(told) == 2


async def test_a_loss_that_its_block_finds_is_reported_once(here, told, raw):
    with pytest.raises(LeaseLost):
        async with here.lock("a"):
            raw.flushall()
    await ends_of(told, 1)
    assert kinds_of(told) == [Acquired, Lost]
    assert told[1].cause == "server"


async def test_a_block_that_fails_under_a_lost_lease_reports_the_loss(here, told):
    with pytest.raises(ZeroDivisionError):
        async with here.lock("a") as lease:
            lease._state.deadline = 0.0  # its renewer has not seen that yet
            assert lease.lost
            raise ZeroDivisionError
    await ends_of(told, 1)
    assert [(type(event), event.fence) for event in told] == [(Acquired, lease.fence), (Lost, lease.fence)]


async def test_a_generator_that_is_closed_has_released_its_lease(server):
    told = []
    async with AsyncHandfast(server.url) as client:
        client.on(told.append, Acquired, Released, Lost)

        async def hold():
            async with client.lock("a"):
                yield

        holding = hold()
        await anext(holding)
        await holding.aclose()
        assert kinds_of(told) == [Acquired, Released]


async def test_a_lease_that_is_not_renewed_ends_as_planned(here, told):
    lease = await here.lock("a", ttl=SOON_S, renew=False).acquire()
    await ends_of(told, 1)
    assert (told[1].cause, told[1].fence) == ("planned", lease.fence)


async def test_a_lease_that_is_held_too_long_has_expired(here, told):
    lease = await here.lock("a", max_hold=SOON_S).acquire()
    await ends_of(told, 1)
    assert (told[1].cause, lease.lost) == ("expired", True)


@pytest.mark.parametrize("grace", [0, SOON_S])
async def test_a_lease_that_a_later_request_took_is_revoked(here, there, told, grace):
    """Whether its client hears of that from the server, or the grace ends by its own clock."""
    lease = await here.lock("a", yields=False).acquire()
    async with there.lock("a").preempt(grace=grace, reason="a new message"):
        await ends_of(told, 1)
    assert (told[-1].cause, told[-1].fence) == ("revoked", lease.fence)
    assert told[-1].reason == "its holder was asked to end and did not in time: a new message"


async def test_a_lease_that_is_dropped_is_lost(here, told):
    with pytest.warns(ResourceWarning):
        await take_and_drop(here)
    await ends_of(told, 1)
    assert (told[1].cause, told[1].name) == ("dropped", "a")


async def take_and_drop(client):
    await client.lock("a").acquire()


async def test_what_a_closed_client_held_is_lost(api, server, raw):
    told = []
    client = api.client(server.url)
    client.on(told.append, Acquired, Lost)
    lease = await client.lock("a").acquire()
    await client.close(release=True)
    await ends_of(told, 1)
    assert (told[1].cause, told[1].fence) == ("closed", lease.fence)


@pytest.mark.usefixtures("short_ticks")
async def test_what_outlives_a_closed_client_is_lost_when_its_ttl_ends(api, server, raw, suspend):
    told, called = [], []
    client = api.client(server.url)
    client.on(told.append, Acquired, Lost)
    leases = [await client.lock(name).acquire() for name in ("a", "b")]
    leases[0].add_lost_callback(lambda: called.append("lost"))
    await client.close(release=False)
    assert not any(lease.lost for lease in leases)
    assert len(told) == 2
    suspend(3600)
    await ends_of(told, 2)
    assert {(one.cause, one.fence) for one in told[2:]} == {("closed", lease.fence) for lease in leases}
    await eventually_async(lambda: called == ["lost"])


async def test_a_detached_lease_is_released_here_and_acquired_there(here, there, told):
    others = []
    there.on(others.append, Acquired, Released)
    lease = await here.lock("a").acquire()
    token = await lease.detach()
    adopted = await there.lock("a").adopt(token)
    await adopted.release()
    assert [(type(event), event.fence) for event in told] == [(Acquired, lease.fence), (Released, lease.fence)]
    assert [(type(event), event.fence) for event in others] == [(Acquired, lease.fence), (Released, lease.fence)]


@made
async def test_a_lease_that_is_taken_at_once_is_lost_with_the_reason(here, there, told, kind):
    """Before its client listens for that: the sync API opens the connection for it half a second later."""
    lease = await MADE[kind](here).acquire()
    await MADE[kind](there).force_release(reason="INC-4411")
    await ends_of(told, 1)
    assert [(event.cause, event.reason, event.fence) for event in told if isinstance(event, Lost)] == [
        ("revoked", "INC-4411", lease.fence)
    ]
    assert lease.lost


async def test_locks_of_which_one_is_taken_at_once_are_lost_with_the_reason(here, there, told):
    lease = await here.lock_all(["a", "b"]).acquire()
    await there.lock("b").force_release(reason="INC-4411")
    await ends_of(told, 1)
    assert (told[1].cause, told[1].reason, lease.lost) == ("revoked", "INC-4411", True)


def test_an_act_before_the_grant_is_not_why_a_lease_is_gone(hf, other, raw):
    lost = []
    hf.on(lost.append, Lost)
    held = other.lock("a").acquire()
    assert other.lock("a").force_release(reason="an earlier one")
    lease = hf.lock("a").acquire()
    for key in raw.keys("{hf:lock:a}:*"):
        if raw.type(key) == "hash":
            raw.hdel(key, *[field for field in raw.hkeys(key) if field != "last"])
        else:
            raw.delete(key)
    eventually(lambda: lost)
    assert (lost[0].cause, lost[0].fence, lease.lost) == ("server", lease.fence, True)
    assert held.fence < lease.fence


async def test_a_holder_that_is_asked_to_end(here, there, raw, told, short_ticks):
    async def turn():
        with pytest.raises(Preempted):
            async with here.lock("a") as lease:
                while not lease.lost:
                    await asyncio.sleep(0.01)
                    lease.check()

    running = asyncio.create_task(turn())
    await eventually_async(lambda: kinds_of(told) == [Acquired])
    await until_listening(raw)
    async with there.lock("a").preempt(grace=30, reason="a newer one"):
        await running
    await eventually_async(lambda: len(told) == 3)
    wanted = next(event for event in told if isinstance(event, Wanted))
    assert (wanted.reason, wanted.by, wanted.grace, wanted.fence) == (
        "a newer one",
        there._driver.label,
        30,
        told[0].fence,
    )
    assert {*kinds_of(told)} == {Acquired, Wanted, Released}


async def test_several_locks_are_one_request_and_those_of_together_one_each(here, there, told):
    async with here.lock_all(["a", "b"]):
        pass
    async with there.lock("y"):
        assert await here.together(here.lock("x"), here.lock("y")).try_acquire() is None
    assert [(type(event), event.name) for event in told] == [
        (Acquired, "a, b"),
        (Released, "a, b"),
        (Acquired, "x"),
        (Refused, "y"),
        (Released, "x"),
    ]


async def test_a_function_hears_what_it_asked_for_until_it_stops(here):
    every, named, lost = [], [], []
    stop = here.on(every.append)
    here.on(named.append, seen.NameEvent)
    here.on(lost.append, Lost)
    async with here.lock("a"):
        pass
    stop()
    stop()
    async with here.lock("b"):
        pass
    await eventually_async(lambda: any(isinstance(event, Connected) for event in every) or len(every) == 2)
    assert [event.name for event in every if isinstance(event, seen.NameEvent)] == ["a", "a"]
    assert [event.name for event in named] == ["a", "a", "b", "b"]
    assert lost == []


async def test_the_last_function_that_stops_leaves_nothing(here):
    for _ in range(2):
        here.on(print)()
    assert here._driver.events.dispatcher is None


def test_threads_that_add_and_stop_functions_lose_none(hf):
    heard = Counter()

    def add(number):
        for _ in range(200):
            hf.on(lambda _: None)()
            hf.on(lambda _, number=number: heard.update([number]), Acquired)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adding = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in adding:
            thread.start()
        for thread in adding:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    with hf.lock("a"):
        assert heard == dict.fromkeys(range(4), 200)


async def test_a_function_may_stop_itself(here):
    told = []
    stop = here.on(lambda event: (told.append(event), stop()), Acquired, Released)
    for _ in range(2):
        async with here.lock("a"):
            pass
    assert kinds_of(told) == [Acquired]


async def test_a_run_that_is_lost_before_it_begins_has_a_single_end(here, told, raw, monkeypatch):
    once = here.once("pay", rerun=False)
    begin = once_steps.begin
    monkeypatch.setattr(once_steps, "begin", lambda lease: (raw.flushall(), begin(lease))[1])
    with pytest.raises(LeaseLost):
        await once.acquire()
    assert [type(event) for event in told if not isinstance(event, Released | Lost)] == [Acquired]
    await ends_of(told, 1)
    assert len(told) == 2


async def test_a_function_is_called_where_the_caller_is(api, here):
    where = []
    here.on(
        lambda _: where.append((threading.current_thread(), asyncio.current_task() if api is ASYNCIO else None)),
        Acquired,
    )

    async def one():
        async with here.lock("a"):
            return threading.current_thread(), asyncio.current_task() if api is ASYNCIO else None

    caller = await asyncio.create_task(one())
    assert len(where) == 1
    if api is ASYNCIO:
        assert where == [caller]
    else:
        assert where[0][0].name != "handfast-events"


async def test_a_function_that_raises_harms_nothing_and_is_logged_once(here, told, caplog):
    def fails(_event):
        raise ZeroDivisionError("mine")

    here.on(fails)
    for _ in range(3):
        async with here.lock("a"):
            pass
    assert kinds_of(told) == [Acquired, Released] * 3
    failed = [record for record in caplog.records if "given to on()" in record.getMessage()]
    assert [record.name for record in failed] == ["handfast.lease"]
    assert failed[0].exc_info[0] is ZeroDivisionError


async def test_a_function_that_hangs_keeps_no_lease_from_being_renewed(here, there, told):
    go_on = threading.Event()
    here.on(lambda _: go_on.wait(30), Lost)
    try:
        lost = await here.lock("a", ttl=SOON_S, renew=False).acquire()
        lease = await here.lock("b", ttl=SHORT_S).acquire()
        deadline = lease._state.deadline
        await eventually_async(lambda: lost.lost)
        await eventually_async(lambda: lease._state.deadline > deadline + SHORT_S)
        assert not lease.lost
        await lease.release()
    finally:
        go_on.set()
    await ends_of(told, 2)


async def test_a_function_that_hangs_costs_itself_alone(here, there, told):
    """Neither another function of its client nor those of other clients."""
    go_on, hangs, others = threading.Event(), threading.Event(), []
    here.on(lambda _: (hangs.set(), go_on.wait(120)), Lost)
    here.on(others.append, Lost)
    there.on(others.append, Lost)
    try:
        for client in (here, there):
            await client.lock("a", ttl=SOON_S, renew=False).acquire()
            await eventually_async(hangs.is_set)
        await eventually_async(lambda: len(others) == 2)
        await ends_of(told, 1)
    finally:
        go_on.set()


async def test_events_that_a_function_does_not_take_are_dropped_and_logged_once(here, monkeypatch, caplog):
    monkeypatch.setattr(dispatcher, "MAX_WAITING", 2)
    go_on, hangs, heard = threading.Event(), threading.Event(), []
    here.on(lambda event: (hangs.set(), go_on.wait(30), heard.append(event)), RenewalFailed)
    try:
        here._driver.events.renewal_failed("1")
        await eventually_async(hangs.is_set)
        for number in range(5):
            here._driver.events.renewal_failed(str(number))
    finally:
        go_on.set()
    await eventually_async(lambda: len(heard) == 3)
    await eventually_async(lambda: "given to on() hangs" in caplog.text)
    assert caplog.text.count("given to on() hangs: 2 events wait for it") == 1
    here._driver.events.renewal_failed("again")
    await eventually_async(lambda: [event.reason for event in heard] == ["1", "0", "1", "again"])


async def test_a_function_that_was_stopped_does_not_get_what_waits_for_it(here):
    go_on, hangs, heard = threading.Event(), threading.Event(), []
    stop = here.on(lambda event: (heard.append(event), hangs.set(), go_on.wait(30)), RenewalFailed)
    done = []
    for number in range(2):
        here._driver.events.renewal_failed(str(number))
    await eventually_async(hangs.is_set)
    stop()
    here.on(done.append, RenewalFailed)
    go_on.set()
    here._driver.events.renewal_failed("later")
    await eventually_async(lambda: [event.reason for event in done] == ["later"])
    await eventually_async(lambda: not any(one.name == "handfast-events" for one in threading.enumerate()))
    assert [event.reason for event in heard] == ["0"]


def test_a_function_that_acquires_does_not_hear_of_itself(hf):
    told = []

    def audited(event):
        told.append(event)
        with hf.lock("audit"):
            pass

    others = []
    hf.on(others.append, Acquired)
    hf.on(audited, Acquired)
    with hf.lock("a"):
        pass
    assert [event.name for event in told] == ["a"]
    assert [event.name for event in others] == ["a", "audit"]


async def test_what_is_no_function_or_no_event_is_refused(here):
    async def coroutine(_event):
        """Do nothing."""

    for callback in (None, "print", coroutine):
        with pytest.raises(TypeError, match="needs a function that is not awaited"):
            here.on(callback)
    for kind in (int, "Lost", Lost(at=0, kind="lock", name="a", fence=1, held_for=0, cause="expired", reason="")):
        with pytest.raises(TypeError, match=r"takes classes of handfast\.events"):
            here.on(print, kind)


def test_no_event_has_a_token_or_a_result():
    events = [getattr(seen, name) for name in seen.__all__ if isinstance(getattr(seen, name), type)]
    fields = {field.name for kind in events if issubclass(kind, Event) for field in dataclasses.fields(kind)}
    assert not fields & {"token", "value", "result", "label"}
    assert len(events) == 15


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
async def test_wherever_it_is_cancelled_each_request_and_each_lease_ends_once(server, kind):
    async with ASYNCIO.client(server.url) as holder, ASYNCIO.client(server.url) as client:
        told = []
        client.on(told.append, seen.NameEvent)
        lock = MADE[kind](client, timeout=SOON_S)

        async def steps():
            async with lock:
                pass

        runs = 0
        for is_free in (True, False):
            held = None if is_free else await MADE[kind](holder).acquire()
            async for outcome in cancel_everywhere(steps):
                runs += 1
                await eventually_async(lambda: not lock._driver._running_context()._is_busy())
                acquired, refused = kinds_of(told).count(Acquired), kinds_of(told).count(Refused)
                assert acquired + refused == 1, (outcome, told)
                assert acquired == kinds_of(told).count(Released) + kinds_of(told).count(Lost), (outcome, told)
                told.clear()
            if held is not None:
                await held.release()
        assert runs > 6


def test_a_forked_or_deactivated_client_tells_as_well():
    told = []
    with Handfast("null:") as hf:
        hf.on(told.append)
        with hf.lock("a"):
            pass
        lease = hf.lock("b", ttl=SOON_S, renew=False).acquire()
        eventually(lambda: len(told) == 4)
        assert lease.lost
    assert kinds_of(told) == [Acquired, Released, Acquired, Lost]


async def test_a_deactivated_asyncio_client_tells_as_well():
    told = []
    async with AsyncHandfast("null:") as hf:
        hf.on(told.append)
        async with hf.lock("a"):
            pass
    assert kinds_of(told) == [Acquired, Released]
