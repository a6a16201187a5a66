"""Renewal and loss, in both APIs: a thread sees to them in the one, a timer of the event loop in the other."""

from __future__ import annotations

import asyncio
import gc

import pytest
import redis

from handfast import LeaseLost
from handfast._drivers.sync import renewer as sync_renewer
from handfast._protocol import electing, retry
from handfast._protocol.lease import release
from handfast.acl import scripts_for
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, containing, script
from tests._support.apis import ASYNCIO, renewer_of, until_queued
from tests._support.engine import Engine
from tests._support.family import scripts_run, until_listening
from tests._support.helpers import eventually, eventually_async, settled

pytestmark = pytest.mark.usefixtures("short_ticks")


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
    renewer = hf._driver._here.renewer
    add = renewer.add

    def add_late(lease):
        renewer.take(lease.token, "deploy")
        add(lease)

    monkeypatch.setattr(renewer, "add", add_late)
    lease = hf.lock("a").acquire()
    with pytest.raises(LeaseLost, match="deploy"):
        lease.check()
    assert lease.release() is False


def test_a_connection_is_waited_for_no_longer_than_a_part_of_what_the_first_lease_has_left(hf, monkeypatch):
    """Then leases are renewed on an idle one: to wait for all of it would lose that lease."""
    monkeypatch.setattr(sync_renewer, "TICK_S", 3600.0)
    with hf.lock("long", ttl=600), hf.lock("short", ttl=60) as lease:
        assert 0 < hf._driver._here.renewer._spare_time() < lease.remaining() / 2


def test_the_first_cleanup_begins_at_once(hf, raw, monkeypatch):
    """It starts the renewal thread, which has not made its pipe then."""
    monkeypatch.setattr(sync_renewer, "TICK_S", 3600.0)
    renewer = hf._driver._here.renewer
    assert renewer._thread is None
    renewer.clean_up(electing.announce(hf.election("a")._terms, 1, "one two three", ends=False))
    eventually(lambda: raw.exists("{hf:election:a}:terms"))


def test_revocations_of_unknown_leases_do_not_pile_up(hf):
    renewer = hf._driver._here.renewer
    for number in range(1000):
        renewer.take(b"%d" % number, "deploy")
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
            for known in scripts_for(["lock"]):
                raw.script_load(known.source)
            before = scripts_run(raw)
            lease = await client.lock("a", ttl=3600, renew=renew).acquire()
            await until_listening(raw)
            # The renewal thread asks once, as soon as it listens; a revocation before that would be noticed by the
            # answer.
            await eventually_async(lambda: scripts_run(raw) == before + (1 if api is ASYNCIO else 2))
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


# --- cleanups in the background


async def test_a_cleanup_finds_the_new_primary_after_a_planned_failover(api, monkeypatch):
    """The old one keeps the connection and refuses; no renewal and no other call opens a new one."""
    monkeypatch.setattr(retry, "CLEANUP_PAUSE_S", 0.01)
    with PrivateServer() as old, PrivateServer() as new, FaultProxy(old.url) as proxy:
        with redis.Redis.from_url(old.url) as was, redis.Redis.from_url(new.url, decode_responses=True) as now:
            client = api.handfast(proxy.url)
            lease = await settled(client.lock("a").acquire())
            renewer = renewer_of(client)
            await eventually_async(lambda: api is ASYNCIO or renewer._session.is_open)
            for key in was.scan_iter():
                now.restore(key, was.pttl(key), was.dump(key))
            assert Engine(now).holders() == [lease.token]
            was.replicaof("127.0.0.1", 1)
            proxy.retarget(new.url, cut=False)
            renewer.remove(lease._state)
            renewer.clean_up(release(lease._state, by_holder=False))
            await eventually_async(lambda: Engine(now).holders() == [])
            await settled(client.close())


# --- leases that were dropped


async def test_a_dropped_lease_without_renewal_does_not_warn(here, there):
    assert await here.lock("once an hour", ttl=3600, renew=False).try_acquire() is not None
    gc.collect()
    assert await there.lock("once an hour", ttl=3600, renew=False).try_acquire() is None


# --- only of the sync API: the renewer is a thread


def test_a_dropped_lease_may_be_collected_while_the_renewer_has_the_gate(hf):
    lease = hf.lock("a").acquire()
    with hf._driver._here.renewer._gate:
        hf._driver._here.renewer._sending = True
        with pytest.warns(ResourceWarning):
            del lease
            gc.collect()
        hf._driver._here.renewer._sending = False
