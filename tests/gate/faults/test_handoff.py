"""A lease that is handed over is worth its ttl: its receiver confirms it before the caller runs, and reads the reply later.

Renewals are switched off in most tests, so that nothing but the confirmation extends a lease. That an event loop was blocked or
a process was paused is emulated: the clock is set forward.
"""

from __future__ import annotations

import asyncio
import select
from asyncio import Future
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import handfast
from handfast import AsyncHandfast, Handfast
from handfast._drivers import clock
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.shared import Seat
from handfast._engine.constants import CLAIM_MS
from handfast._protocol.lease import LeaseTable
from handfast.acl import scripts_for
from handfast.testing import FaultProxy, interrupt_at, script
from tests._support.apis import ASYNCIO, until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, more

CLAIM_S = CLAIM_MS / 1000

TTL_S = 30.0

CONFIRMATION = script("permit_confirm")

OURS = [handfast._api, handfast._drivers.sync, handfast._protocol, handfast._engine]

both_kinds = pytest.mark.parametrize("renew", [True, False], ids=["renewed", "not renewed"])


@pytest.fixture
def no_renewals(monkeypatch):
    monkeypatch.setattr(LeaseTable, "due", lambda *_: [])


@pytest.fixture
def proxy(server, raw):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, proxy):
    """A client behind the proxy."""
    async with api.client(proxy.url) as client:
        yield client


async def hand_over(holder, lock, look=lambda lease: lease, *, before=lambda: None):
    """Hand a lock over to a waiter. Return what ``look`` makes of its lease, in the very step that has it."""
    held = holder.lock("a").acquire()

    async def wait():
        return look(await lock.acquire())

    asked = asyncio.create_task(wait())
    await until_queued(lock)
    before()
    held.release()
    return await asked


def there(client):
    """Seconds that the lease lasts on the server."""
    (holder,) = client.lock("a").status().holders
    return holder.remaining


def until_tried(proxy):
    """Wait until a waiter has found out how its confirmation is to be sent."""
    eventually(lambda: any(map(CONFIRMATION, proxy.commands)))


def until_confirmed(client, lease):
    """Wait until the server has confirmed a lease and its reply has arrived, without a step of any event loop."""
    eventually(lambda: there(client) > CLAIM_S)
    if (confirmation := lease._state.confirmation) is not None:
        is_asyncio = isinstance(confirmation.pending, Future)
        transport = lease._state.owner.session._connection.transport._transport if is_asyncio else None
        ready = transport.get_extra_info("socket") if is_asyncio else confirmation.pending
        assert select.select([ready], [], [], 10)[0]


@pytest.mark.usefixtures("no_renewals")
@both_kinds
async def test_a_grant_is_confirmed_for_its_whole_ttl_before_its_caller_goes_on(hf, here, renew):
    def look(lease):
        eventually(lambda: there(hf) > CLAIM_S)  # an event loop does nothing meanwhile
        return lease

    lease = await hand_over(hf, here.lock("a", ttl=TTL_S, renew=renew), look)
    await eventually_async(lambda: lease.remaining() > CLAIM_S)
    theirs = there(hf)
    assert lease.remaining() <= theirs
    assert await lease.release() is True


@pytest.mark.usefixtures("no_renewals")
@both_kinds
async def test_a_caller_that_was_blocked_for_longer_than_the_claim_window_has_its_lease(suspend, hf, here, renew):
    def block(lease):
        until_confirmed(hf, lease)
        suspend(CLAIM_S + 1)
        lease.check()
        assert TTL_S - CLAIM_S - 5 < lease.remaining() <= TTL_S - CLAIM_S
        return lease

    lease = await hand_over(hf, here.lock("a", ttl=TTL_S, renew=renew), block)
    assert await lease.release() is True


@pytest.mark.usefixtures("no_renewals")
async def test_a_block_that_was_blocked_for_longer_than_the_claim_window_ends_well(suspend, hf, here):
    lock = here.lock("a", ttl=TTL_S)
    held = hf.lock("a").acquire()

    async def work():
        async with lock as lease:
            until_confirmed(hf, lease)
            suspend(CLAIM_S + 1)
        return lease

    working = asyncio.create_task(work())
    await until_queued(lock)
    held.release()
    lease = await working
    assert not lease.lost
    assert not hf.lock("a").locked()


@pytest.mark.usefixtures("no_renewals")
async def test_the_renewer_reads_what_has_arrived_before_it_calls_a_lease_lost(suspend, hf, api, here):
    def block(lease):
        until_confirmed(hf, lease)
        suspend(CLAIM_S + 1)
        leases = lease._state.owner.leases if api is ASYNCIO else here._driver._here.leases
        assert leases.remove_expired(clock.monotonic()) == []
        return lease

    lease = await hand_over(hf, here.lock("a", ttl=TTL_S), block)
    assert not lease.lost
    assert await lease.release() is True


async def test_a_lease_that_is_dropped_after_a_block_is_renewed_no_more(suspend, hf, api, here):
    """Its first deadline has passed, and the reply that extends it is there, but not read yet."""
    tables = []

    def block(lease):
        until_confirmed(hf, lease)
        suspend(CLAIM_S + 1)
        tables.append(lease._state.owner.leases if api is ASYNCIO else here._driver._here.leases)

    with pytest.warns(ResourceWarning, match=r"Lease of 'a', fence \d+> was dropped without a release"):
        await hand_over(hf, here.lock("a", ttl=TTL_S), block)
    assert not tables[0]
    assert there(hf) > CLAIM_S


@pytest.mark.usefixtures("no_renewals")
async def test_a_confirmation_without_a_reply_does_not_stretch_the_belief(suspend, hf, far, proxy):
    def block(lease):
        suspend(CLAIM_S)
        assert lease.lost
        assert lease.remaining() == 0.0
        return lease

    def delay():
        until_tried(proxy)
        proxy.delay(CONFIRMATION, seconds=0.3)

    lease = await hand_over(hf, far.lock("a", ttl=TTL_S), block, before=delay)
    assert await lease.release() is False
    assert lease.lost, "it stays lost"


@pytest.mark.usefixtures("no_renewals")
async def test_a_server_that_forgot_its_scripts_meanwhile_confirms_all_the_same(hf, here, raw):
    """The reply is read when the caller awaits again, and that may be long after."""
    for _ in range(2):
        lease = await hand_over(
            hf, here.lock("a", ttl=TTL_S), lambda lease: until_confirmed(hf, lease) or lease, before=raw.script_flush
        )
        assert await lease.release() is True


@pytest.mark.usefixtures("no_renewals")
def test_the_shared_connection_confirms_with_the_source(hf, server, raw):
    """Its thread could send it again, but not while the process is stopped."""
    with FaultProxy(server.url) as proxy, Handfast(proxy.url, max_sessions=1) as crowd:
        lent = crowd._driver._here.pool.take()
        lease = handed_over(hf, crowd)
        assert lease.release() is True
        crowd._driver._here.pool.give(lent)
        (sent,) = (command for command in proxy.commands if CONFIRMATION(command))
        assert sent.name == "EVAL"


@pytest.mark.usefixtures("no_renewals")
async def test_a_user_who_may_send_no_script_confirms_with_the_digest(hf, api, server, raw):
    raw.execute_command("ACL", "SETUSER", "digests", "reset", "on", ">secret", "+@all", "-eval", "~*", "&*")
    url = server.url.replace("unix://", "unix://digests:secret@")
    try:
        for needed in scripts_for(["lock"]):
            raw.script_load(needed.source)
        async with api.client(url) as client:
            for _ in range(2):
                lease = await hand_over(
                    hf, client.lock("a", ttl=TTL_S), lambda lease: until_confirmed(hf, lease) or lease
                )
                assert await lease.release() is True
        noted = [entry for entry in raw.acl_log() if entry["username"] == "digests"]
        assert [(entry["object"], entry["count"]) for entry in noted] == [("eval", 1)]
    finally:
        raw.acl_deluser("digests")
        raw.acl_log_reset()


@both_kinds
@pytest.mark.parametrize("fault", ["lose_reply", *more("lose_request")])
async def test_a_lost_confirmation_is_repeated_within_the_claim_window(hf, far, proxy, fault, renew):
    faults = []

    def lose():
        until_tried(proxy)
        faults.append(getattr(proxy, fault)(CONFIRMATION))

    lease = await hand_over(hf, far.lock("a", ttl=TTL_S, renew=renew), before=lose)
    await eventually_async(lambda: lease.remaining() > CLAIM_S)
    assert faults[0].happened
    assert there(hf) > CLAIM_S
    assert await lease.release() is True


async def test_a_frozen_waiter_costs_the_claim_window_and_not_its_ttl(hf, server):
    """Its event loop does nothing until the next await. Without renewal, too."""
    async with AsyncHandfast(server.url) as frozen:
        held = hf.lock("a").acquire()
        asked = asyncio.create_task(frozen.lock("a", ttl=TTL_S, renew=False).acquire())
        await until_queued(frozen.lock("a"))
        held.release()
        assert there(hf) <= CLAIM_S
        lease = await asked
        assert await lease.release() is True


@pytest.mark.usefixtures("no_renewals")
def test_what_has_arrived_is_read_while_the_loop_is_blocked_on_uvloop_too(suspend, hf, server):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with AsyncHandfast(server.url) as client:

            def block(lease):
                until_confirmed(hf, lease)
                suspend(CLAIM_S + 1)
                lease.check()
                return lease

            lease = await hand_over(hf, client.lock("a", ttl=TTL_S), block)
            async with client.lock("b"):  # the loop goes on to read by itself
                pass
            assert await lease.release() is True

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def handed_over(hf, other):
    """Return a lease of the other client that this one has handed over."""
    held = hf.lock("a").acquire()
    with ThreadPoolExecutor(1) as waiter:
        asked = waiter.submit(other.lock("a", ttl=TTL_S).acquire)
        eventually(lambda: hf.lock("a").status().waiting)
        held.release()
        return asked.result()


@pytest.mark.usefixtures("no_renewals")
def test_a_thread_that_uses_the_session_reads_the_reply_to_a_confirmation_before_its_own(hf, other, raw):
    lease = handed_over(hf, other)
    until_confirmed(hf, lease)
    session = lease._state.confirmation.pending
    assert other.lock("b").locked() is False
    assert lease._state.confirmation is None
    assert other._driver._here.pool._idle == [session], "there was one session"
    assert lease.remaining() > CLAIM_S
    assert lease.release() is True


def test_the_reply_to_a_confirmation_is_read_before_the_server_keeps_the_renewal_thread_waiting(
    suspend, hf, other, raw, monkeypatch
):
    """The thread connects when it first finds a lease. A server that stalls just then must not cost that lease."""
    stalls = [CLAIM_S + 1]

    def stall(*_):
        if stalls:
            suspend(stalls.pop())
        raise redis.ConnectionError

    monkeypatch.setattr(other._driver._here.renewer._link, "open", stall)
    lease = handed_over(hf, other)
    eventually(lambda: not stalls)
    eventually(lambda: lease.lost or lease.remaining() > CLAIM_S)
    assert lease.release() is True


def test_a_confirmation_that_can_have_no_reply_any_more_makes_its_lease_due_at_once(hf, other, raw):
    held = hf.lock("a").acquire()
    with ThreadPoolExecutor(1) as waiter:
        asked = waiter.submit(other.lock("a", ttl=TTL_S, renew=False).acquire)
        eventually(lambda: hf.lock("a").status().waiting)
        held.release()
        lease = asked.result()
    due = lease._state.due_at
    lease._state.confirmation.settle(None)
    assert lease._state.due_at < due
    eventually(lambda: lease.remaining() > CLAIM_S)
    assert lease.release() is True


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # leases that an interrupt took from the caller
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts while those are dropped
@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("waits_at", [Session, Seat])
def test_an_interrupt_at_any_point_of_a_handoff_leaves_nothing_behind(server, other, raw, monkeypatch, waits_at, fault):  # noqa: PLR0917
    """The holder releases when the waiter begins to wait, so that each run is handed the lock within its wait."""
    park, held = waits_at.park, []

    def handed_over(session, effect):
        if held:
            holder.submit(held.pop().release).result()
        return park(session, effect)

    monkeypatch.setattr(waits_at, "park", handed_over)
    engine, step, run = Engine(raw), 0, None
    most = 1 if waits_at is Seat else 16
    with Handfast(server.url, max_sessions=most) as hf, ThreadPoolExecutor(1) as holder:
        lock, lent = hf.lock("a", ttl=TTL_S), hf._driver._here.pool.take() if waits_at is Seat else None
        while run is None or run.struck:
            held.append(other.lock("a").acquire())
            run = interrupt_at(lock.acquire, step := step + 1, within=OURS, exception=fault)
            if held:
                held.pop().release()
            if run.how == "finished":
                assert run.result.release() is True
            assert engine.holders() == engine.queue() == [], run
    assert run.how == "finished"
    assert step > 60
    assert (lent is None) is (waits_at is Session)
