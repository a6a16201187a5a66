"""Renewal and loss, in both APIs: a thread sees to them in the one, a timer of the event loop in the other."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
import weakref

import pytest
import redis

from handfast import Handfast, LeaseLost
from handfast._drivers.sync import renewer as sync_renewer
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, containing, script
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.family import until_listening
from tests._support.helpers import eventually, eventually_async, wall_clock

pytestmark = pytest.mark.usefixtures("short_ticks")


@pytest.fixture
def stopping():
    """A server that may be stopped and go on, and a client to look at it with."""
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        server.behind = behind
        yield server


# --- by force


async def test_a_revoked_lease_is_lost_at_once_with_the_reason(here, there, raw):
    called = []
    lease = await here.lock("a").acquire()
    lease.add_lost_callback(lambda: called.append(lease.lost))
    await until_listening(raw)
    assert await there.lock("a").force_release(reason="deploy") == 1
    assert await eventually_async(lambda: called) == [True]
    with pytest.raises(LeaseLost, match="deploy") as caught:
        lease.check()
    assert (caught.value.name, caught.value.fence) == ("a", lease.fence)
    assert await lease.release() is False


async def test_force_release_lets_the_next_waiter_in(here, there):
    lease = await here.lock("a").acquire()

    async def wait():
        async with there.lock("a").acquire(timeout=20) as second:
            return second.fence

    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait())
        await until_queued(here.lock("a"))
        assert await there.lock("a").force_release() == 1
    assert waiter.result() > lease.fence
    await eventually_async(lambda: lease.lost)
    assert await lease.release() is False


def test_a_revocation_that_arrives_before_its_lease_is_added_is_not_missed(hf, monkeypatch):
    """The renewal thread may read the message while the acquiring thread is still reading its grant."""
    renewer = hf._driver._renewer
    add = renewer.add

    def add_late(lease):
        renewer.revoked(lease.token, "deploy")
        add(lease)

    monkeypatch.setattr(renewer, "add", add_late)
    lease = hf.lock("a").acquire()
    with pytest.raises(LeaseLost, match="deploy"):
        lease.check()
    assert lease.release() is False


def test_revocations_of_unknown_leases_do_not_pile_up(hf):
    renewer = hf._driver._renewer
    for number in range(1000):
        renewer.revoked(b"%d" % number, "deploy")
    assert len(renewer._early) <= sync_renewer.MAX_EARLY


@pytest.mark.parametrize("renew", [True, False])
def test_a_revocation_that_comes_before_the_renewal_thread_listens_is_noticed(hf, other, raw, monkeypatch, renew):
    monkeypatch.setattr(sync_renewer, "TICK_S", 0.3)
    lease = hf.lock("a", ttl=3600, renew=renew).acquire()
    assert other.lock("a").force_release() == 1
    assert not raw.pubsub_channels("hf:control:*")
    assert lease.lost_event.wait(10)
    assert not lease.release()


@pytest.mark.parametrize("renew", [True, False])
async def test_a_revocation_whose_message_is_lost_with_the_connection_is_noticed(api, server, there, raw, renew):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            lease = await client.lock("a", ttl=3600, renew=renew).acquire()
            await until_listening(raw)
            lost = proxy.lose_pushes(containing(b"revoked"), times=1)
            assert await there.lock("a").force_release() == 1
            await eventually_async(lambda: lost.spent)
            assert not lease.lost
            proxy.cut()
            await eventually_async(lambda: lease.lost)
            assert not await lease.release()


async def test_a_lease_without_renewal_that_is_only_asked_for_keeps_its_end(api, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            lease = await client.lock("a", ttl=3600, renew=False).acquire()
            await until_listening(raw)
            end = Engine(raw).stored().holders
            asked = script("permit_renew")
            before = sum(map(asked, proxy.commands))
            proxy.cut()
            await eventually_async(lambda: sum(map(asked, proxy.commands)) > before)
            assert Engine(raw).stored().holders == end
            assert 3590 < lease.remaining() <= 3600
            assert await lease.release() is True


async def test_a_reason_with_line_ends_is_one_line_of_the_log(here, there, raw, caplog):
    lease = await here.lock("a").acquire()
    await until_listening(raw)
    assert await there.lock("a").force_release(reason="deploy\n2026-01-01 ERROR forged\x1b[2J é") == 1
    await eventually_async(lambda: caplog.records)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason.endswith("deploy\\n2026-01-01 ERROR forged\\x1b[2J é")
    (record,) = [record for record in caplog.records if record.name == "handfast.renewal"]
    assert "\n" not in record.getMessage()
    assert not await lease.release()


async def test_force_release_of_a_free_lock_takes_nothing(here):
    assert await here.lock("a").force_release() == 0


async def test_status_works_though_a_record_is_missing(here, raw):
    permits = here.semaphore("a", 2)
    first, second = await permits.acquire(), await permits.acquire()
    Engine(raw, kind="semaphore").lose_record(second.token)
    shown, unknown = (await permits.status()).holders
    assert (bool(shown.label), unknown.label) == (True, "")
    assert await first.release() is True
    assert await second.release() is True


# --- how a holder hears of it


async def test_the_lost_event_is_set_by_a_loss(here, there, raw):
    lease = await here.lock("a").acquire()
    event = lease.lost_event
    assert not event.is_set()
    await until_listening(raw)
    assert await there.lock("a").force_release() == 1
    async with asyncio.timeout(10):
        await event.wait()
    assert lease.lost
    assert await lease.release() is False


async def test_the_lost_event_is_one_and_set_at_once_when_asked_for_after_the_loss(here, raw):
    lease = await here.lock("a").acquire()
    raw.flushall()
    assert await lease.release() is False
    assert lease.lost_event.is_set()
    second = await here.lock("a").acquire()
    second.lost_event.set()
    assert second.lost_event.is_set(), "there is one event"
    await second.release()


async def test_the_lost_event_of_a_released_lease_is_never_set(here, there):
    lease = await here.lock("a").acquire()
    event = lease.lost_event
    assert await lease.release() is True
    second = await there.lock("a").acquire()
    assert await here.lock("a").force_release() == 1
    await eventually_async(lambda: second.lost)
    assert not event.is_set()
    assert await second.release() is False


async def test_leaving_a_block_after_a_loss_raises_unless_the_block_did(here, raw):
    with pytest.raises(LeaseLost):
        async with here.lock("a"):
            raw.flushall()
    with pytest.raises(LeaseLost):
        async with here.lock("a").acquire(timeout=5):
            raw.flushall()
    with pytest.raises(KeyError):
        async with here.lock("a"):
            raw.flushall()
            raise KeyError
    with pytest.warns(RuntimeWarning, match="was lost"):
        async with here.lock("a", on_lost="warn"):
            raw.flushall()


async def test_a_block_whose_lease_is_taken_raises_the_operators_reason(here, there, raw):
    with pytest.raises(LeaseLost, match="deploy"):
        async with here.lock("a") as lease:
            await until_listening(raw)
            await there.lock("a").force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
    assert not await here.lock("a").locked()


async def test_a_block_with_on_lost_warn_runs_to_its_end(here, there, raw):
    ended = False
    with pytest.warns(RuntimeWarning, match="deploy"):
        async with here.lock("a", on_lost="warn") as lease:
            await until_listening(raw)
            await there.lock("a").force_release(reason="deploy")
            await eventually_async(lambda: lease.lost)
            await asyncio.sleep(0.01)
            ended = True
    assert ended


async def test_a_block_that_lost_its_lease_does_not_release_the_next_holders(here, there, raw):
    lock = here.lock("a", on_lost="warn")
    entered, leave = asyncio.Event(), asyncio.Event()

    async def second():
        async with lock as lease:
            entered.set()
            await leave.wait()
            assert not lease.lost
            return lease.token

    async with asyncio.TaskGroup() as tasks:
        with pytest.warns(RuntimeWarning, match="deploy"):
            async with lock as lease:
                await until_listening(raw)
                assert await there.lock("a").force_release(reason="deploy") == 1
                await eventually_async(lambda: lease.lost)
                task = tasks.create_task(second())
                await entered.wait()
        (token,) = Engine(raw).holders()
        leave.set()
    assert task.result() == token != lease.token
    assert Engine(raw).holders() == []


@pytest.mark.slow
async def test_no_callback_and_no_strangers_message_ends_the_renewer(here, raw):
    called = []
    lease = await here.lock("a", ttl=0.3).acquire()
    lease.add_lost_callback(sys.exit)
    lease.add_lost_callback(lambda: called.append(1))
    await until_listening(raw)
    for channel in raw.pubsub_channels("hf:control:*"):
        for words in ("", "revoked", "granted x", "what is this"):
            assert raw.publish(channel, words) == 1
    raw.flushall()
    await eventually_async(lambda: called)
    async with here.lock("b", ttl=0.3) as second:
        await asyncio.sleep(0.8)
        assert not second.lost
    await lease.release()


# --- time


async def test_a_lease_without_renewal_expires(here, there):
    called = []
    lease = await here.lock("a", ttl=0.1, renew=False).acquire()
    lease.add_lost_callback(lambda: called.append(1))
    await eventually_async(lambda: called)
    assert lease.lost
    assert lease.remaining() == 0
    with pytest.raises(LeaseLost):
        await lease.extend(1)
    async with there.lock("a"):
        pass
    assert await lease.release() is False


@pytest.mark.slow
async def test_the_holder_never_believes_longer_than_the_server(here):
    _, ahead = wall_clock()
    lock = here.lock("a", ttl=0.6)
    lease = await lock.acquire()
    seen, until = set(), time.monotonic() + 1.2
    while time.monotonic() < until:
        believed = time.monotonic() + lease.remaining()
        (holder,) = (await lock.status()).holders
        end = time.monotonic() + holder.remaining
        set_forward = max(0.0, wall_clock()[0] - ahead)  # ends leases early, which no client can know
        assert believed <= end + set_forward
        seen.add(round(believed, 1))
    assert len(seen) > 2, "it was renewed several times"
    assert await lease.release() is True


@pytest.mark.slow
async def test_many_leases_are_renewed_together(here):
    leases = [await here.lock(f"n{number}", ttl=0.5).acquire() for number in range(200)]
    await asyncio.sleep(1.2)
    assert not any(lease.lost for lease in leases)
    assert all([await lease.release() for lease in leases])


# --- servers that are gone for a while


@pytest.mark.slow
async def test_renewals_fail_until_the_server_is_back_and_the_lease_lives(api, stopping):
    async with api.client(stopping.url) as client, client.lock("a", ttl=2.0) as lease:
        await until_listening(stopping.behind)
        os.kill(stopping.pid, signal.SIGSTOP)
        await asyncio.sleep(1.0)
        os.kill(stopping.pid, signal.SIGCONT)
        await asyncio.sleep(1.5)
        assert not lease.lost


@pytest.mark.slow
async def test_a_server_that_is_gone_for_longer_than_the_ttl_is_a_loss_known_without_it(api, stopping):
    async with api.client(stopping.url) as client:
        lease = await client.lock("a", ttl=0.6).acquire()
        called = []
        lease.add_lost_callback(lambda: called.append(1))
        os.kill(stopping.pid, signal.SIGSTOP)
        await eventually_async(lambda: called)
        assert lease.lost
        os.kill(stopping.pid, signal.SIGCONT)
        assert await lease.release() is False


@pytest.mark.slow
async def test_a_renewer_without_a_server_does_not_spin(api, stopping):
    async with api.client(stopping.url) as client:
        leases = [await client.lock(f"n{number}", ttl=2).acquire() for number in range(3)]
        await until_listening(stopping.behind)
        stopping.behind.close()
        stopping.close()
        before = time.process_time()
        await eventually_async(lambda: all(lease.lost for lease in leases))
        assert time.process_time() - before < 1.0, "two seconds of trying again are no work"


# --- leases that were dropped


async def test_a_dropped_lease_warns_and_is_not_renewed(here, there):
    lease = await here.lock("a", ttl=0.3).acquire()
    lease.lost_event.clear()  # an event that was asked for keeps no lease alive
    with pytest.warns(ResourceWarning, match="was dropped without a release"):
        del lease
        gc.collect()
    async with there.lock("a").acquire(timeout=10):
        pass


async def test_a_dropped_lease_without_renewal_does_not_warn(here, there):
    assert await here.lock("once an hour", ttl=3600, renew=False).try_acquire() is not None
    gc.collect()
    assert await there.lock("once an hour", ttl=3600, renew=False).try_acquire() is None


async def test_no_log_and_no_repr_shows_a_whole_token(here, raw, caplog):
    caplog.set_level(logging.DEBUG, "handfast")
    lease = await here.lock("a", ttl=0.2).acquire()
    texts = [repr(lease), repr(here.lock("a")), repr(await here.lock("a").status())]
    raw.flushall()
    await eventually_async(lambda: lease.lost and caplog.records)
    assert not any(lease.token in text for text in [*texts, caplog.text])


# --- only of the sync API: the renewer is a thread


def test_a_client_that_is_dropped_takes_its_thread_along(server, raw):
    hf = Handfast(server.url)
    hf.lock("a", ttl=0.1).acquire().release()
    gone = weakref.ref(hf._driver)
    thread = hf._driver._renewer._thread
    del hf
    gc.collect()
    assert gone() is None
    thread.join(10)
    assert not thread.is_alive()


def test_a_renewal_thread_that_was_killed_is_reported_and_started_again(hf, monkeypatch, caplog):
    """A filter of the program's logging that raises kills it twice: in its work, and where that is reported."""
    caplog.set_level(logging.DEBUG, "handfast.renewal")
    killed = []
    monkeypatch.setattr(threading, "excepthook", killed.append)
    logger, lease = logging.getLogger("handfast.renewal"), hf.lock("a", ttl=0.2, renew=False).acquire()
    logger.addFilter(killing := lambda _: sys.exit("killed"))
    try:
        eventually(lambda: killed)
    finally:
        logger.removeFilter(killing)
    assert "killed" in str(killed[0].exc_value)
    eventually(lambda: not killed[0].thread.is_alive())
    second = hf.lock("b", ttl=0.2).acquire()
    before = second._state.deadline
    eventually(lambda: second._state.deadline > before)
    assert second.release() is True
    assert lease.release() is False


def test_a_dropped_lease_may_be_collected_while_the_renewer_has_the_gate(hf):
    lease = hf.lock("a").acquire()
    with hf._driver._renewer._gate:
        hf._driver._renewer._sending = True
        with pytest.warns(ResourceWarning):
            del lease
            gc.collect()
        hf._driver._renewer._sending = False


@pytest.mark.slow
def test_a_release_without_a_server_raises_the_client_librarys_error():
    with PrivateServer() as server:
        hf = Handfast(server.url, retry_for=0.3)
        lease = hf.lock("a").acquire()
    with pytest.raises(redis.ConnectionError):
        lease.release()
    lease._state.let_go(0.0)
    hf.close()
