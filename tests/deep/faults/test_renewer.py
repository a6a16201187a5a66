"""Renewal and loss, in both APIs: a thread sees to them in the one, a timer of the event loop in the other.

These tests need real time, processes or chance; the others are in the gate.
"""

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
from handfast._protocol.lease import release
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, renewer_of
from tests._support.family import until_listening
from tests._support.helpers import eventually, eventually_async, settled, wall_clock

pytestmark = pytest.mark.usefixtures("short_ticks")


@pytest.fixture
def stopping():
    """A server that may be stopped and go on, and a client to look at it with."""
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        server.behind = behind
        yield server


# --- how a holder hears of it


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


async def test_many_leases_are_renewed_together(here):
    leases = [await here.lock(f"n{number}", ttl=0.5).acquire() for number in range(200)]
    await asyncio.sleep(1.2)
    assert not any(lease.lost for lease in leases)
    assert all([await lease.release() for lease in leases])


# --- servers that are gone for a while


async def test_renewals_fail_until_the_server_is_back_and_the_lease_lives(api, stopping):
    async with api.client(stopping.url) as client, client.lock("a", ttl=2.0) as lease:
        await until_listening(stopping.behind)
        os.kill(stopping.pid, signal.SIGSTOP)
        await asyncio.sleep(1.0)
        os.kill(stopping.pid, signal.SIGCONT)
        await asyncio.sleep(1.5)
        assert not lease.lost


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
    thread = hf._driver._here.renewer._thread
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


def test_a_release_without_a_server_raises_the_client_librarys_error():
    with PrivateServer() as server:
        hf = Handfast(server.url, retry_for=0.3)
        lease = hf.lock("a").acquire()
    with pytest.raises(redis.ConnectionError):
        lease.release()
    lease._state.let_go(0.0)
    hf.close()


# --- connections that break at every call


@pytest.mark.parametrize("what", ["permit_renew", "permit_release"])
async def test_a_connection_that_breaks_at_every_renewal_or_cleanup_is_replaced_after_pauses(api, server, there, what):
    """Otherwise a client opens hundreds within the second for which the lease lasts."""
    with FaultProxy(server.url) as proxy:
        client = api.handfast(proxy.url)
        lease = await settled(client.lock("a", ttl=1).acquire())
        renewer = renewer_of(client)
        await eventually_async(lambda: api is ASYNCIO or renewer._session.is_open)
        fault = proxy.lose_request(script(what), times=None)
        if what == "permit_release":
            renewer.remove(lease._state)
            renewer.clean_up(release(lease._state, by_holder=False))
        async with there.lock("a").acquire(timeout=20):
            assert 1 < fault.happened < 60
        fault.clear()
        await settled(client.close())
