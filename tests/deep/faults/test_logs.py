"""What the log says of leases and outages, and what a lease says of its own time, in both APIs.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from handfast import Handfast, LeaseLost, ServerRefused
from handfast._drivers.failures import connection_broke
from handfast._drivers.sync.session import Session
from handfast.testing import FaultProxy, ServerController
from tests._support.apis import until_queued
from tests._support.helpers import eventually, eventually_async
from tests.gate.faults import test_logs as gate

records = gate.records

pytestmark = pytest.mark.usefixtures("short_ticks")


# --- the time of a lease


async def test_waited_is_the_time_that_others_held_it(here, there):
    first = await here.lock("a").acquire()
    began = time.monotonic()

    async def wait():
        async with there.lock("a").acquire(timeout=20) as second:
            return second.waited, time.monotonic() - began

    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait())
        await until_queued(here.lock("a"))
        queued = time.monotonic()
        await asyncio.sleep(0.1)
        held_after_queueing = time.monotonic() - queued
        await first.release()
    waited, most = waiter.result()
    assert held_after_queueing - 0.001 <= waited <= most
    assert isinstance(waited, float)
    assert 0 <= first.waited < waited


async def test_held_for_grows_until_the_release(here):
    lease = await here.lock("a").acquire()
    await asyncio.sleep(0.01)
    before = lease.held_for
    assert before >= 0.01
    assert lease.held_for > before
    await lease.release()
    ended = lease.held_for
    assert ended > before
    await asyncio.sleep(0.01)
    assert lease.held_for == ended


async def test_held_for_of_a_lease_that_ran_out_ends_at_its_deadline(here):
    lease = await here.lock("a", ttl=0.2, renew=False).acquire()
    await eventually_async(lambda: lease.lost)
    ended = lease.held_for
    # That is the ttl, or more by as much as a later reply has shown that the grant came after its request was sent.
    assert ended == lease._state.deadline - lease._state.acquired_at >= 0.2 - 1e-9
    await lease.release()
    assert lease.held_for == ended


# --- of outages


async def test_an_outage_is_one_warning_and_its_end_one_info(api, records):
    with ServerController(persistent=True) as server:
        async with api.client(server.url) as client:
            leases = [await client.lock(name, ttl=30).acquire() for name in "abc"]
            await client.lock("planned", ttl=60, renew=False).acquire()
            await eventually_async(lambda: server.admin.pubsub_channels("hf:control:*"))
            server.kill()
            (warning,) = await eventually_async(lambda: levels(records, logging.WARNING))
            server.restart(keep_data=True)
            (info,) = await eventually_async(lambda: levels(records, logging.INFO))
            assert len(levels(records, logging.WARNING)) == 1, "once, however often it was tried"
            for lease in leases:
                await lease.release()
    assert warning.getMessage().startswith("cannot renew 3 leases (")
    assert "; the first, of 'a', ends in " in warning.getMessage()
    assert (warning.lock, warning.leases) == ("a", 3)
    assert warning.reason in warning.getMessage()
    assert 0 < warning.ends_in <= 30
    assert info.getMessage() == f"renewing 3 leases again after {info.lasted:.1f} s"
    assert info.lasted > 0


async def test_a_second_outage_is_a_second_warning(api, records):
    with ServerController(persistent=True) as server:
        async with api.client(server.url) as client:
            lease = await client.lock("a").acquire()
            await eventually_async(lambda: server.admin.pubsub_channels("hf:control:*"))
            for number in (1, 2):
                server.kill()
                await eventually_async(lambda wanted=number: len(levels(records, logging.WARNING)) == wanted)
                server.restart(keep_data=True)
                await eventually_async(lambda wanted=number: len(levels(records, logging.INFO)) == wanted)
            await lease.release()


async def test_a_loss_names_the_last_error_of_its_renewal(api, records):
    with ServerController() as server:
        async with api.client(server.url) as client:
            lease = await client.lock("a", ttl=1.5).acquire()
            await eventually_async(lambda: server.admin.pubsub_channels("hf:control:*"))
            server.kill()
            (error,) = await eventually_async(lambda: levels(records, logging.ERROR))
            with pytest.raises(LeaseLost, match=r"the last renewal failed: .*connecting to ") as caught:
                lease.check()
            assert error.reason == caught.value.reason
            assert len(levels(records, logging.WARNING)) == 1


async def test_a_server_that_hangs_is_named_as_the_cause(api, records):
    with ServerController() as server:
        async with api.client(server.url) as client:
            lease = await client.lock("a", ttl=1).acquire()
            await eventually_async(lambda: server.admin.pubsub_channels("hf:control:*"))
            server.pause()
            await eventually_async(lambda: lease.lost)
            with pytest.raises(LeaseLost, match="the last renewal failed: the server did not answer"):
                lease.check()
            server.resume()


async def test_a_silent_server_is_warned_of_while_there_is_time(api, server, raw, records):
    with FaultProxy(server.url) as proxy:
        async with api.client(f"{proxy.url}?socket_timeout=0.3") as client:
            async with client.lock("a", ttl=10):
                await eventually_async(lambda: raw.pubsub_channels("hf:control:*"))
                with proxy.black_hole():
                    (warning,) = await eventually_async(lambda: levels(records, logging.WARNING))
                # The second is redis-py's, if the session's handshake was not over yet.
                assert warning.reason in ("the server did not answer in time", "Timeout reading from socket")
                assert warning.ends_in > 5
                await eventually_async(lambda: levels(records, logging.INFO))


async def test_a_refused_renewal_is_one_warning_however_often_it_is_tried(here, raw, records):
    lease = await here.lock("a", ttl=1).acquire()
    await eventually_async(lambda: raw.pubsub_channels("hf:control:*"))
    raw.config_set("min-replicas-to-write", 1)
    try:
        (warning,) = await eventually_async(lambda: levels(records, logging.WARNING))
        assert "NOREPLICAS" in warning.reason
        await eventually_async(lambda: lease.lost)
        with pytest.raises(LeaseLost, match=r"the last renewal failed: .*NOREPLICAS"):
            lease.check()
    finally:
        raw.config_set("min-replicas-to-write", 0)
    assert len(levels(records, logging.WARNING)) == 1


async def test_a_connection_that_is_cut_and_opened_again_is_no_outage(api, server, raw, records):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            lease = await client.lock("a", ttl=10).acquire()
            await eventually_async(lambda: raw.pubsub_channels("hf:control:*"))
            before = lease._state.deadline
            proxy.cut()
            await eventually_async(lambda: lease._state.deadline > before)
            await lease.release()
    assert not levels(records, logging.WARNING)
    assert not levels(records, logging.INFO)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_connection_that_breaks_at_a_renewal_is_no_outage_if_the_next_one_holds(
    server, records, monkeypatch, when, times
):
    with Handfast(server.url) as client:
        lease = client.lock("a", ttl=1).acquire()
        if when == "later":
            eventually(lambda: client._driver._here.renewer._session.is_open)
        send, before, left = Session.send, lease._state.deadline, times

        def breaks(session, *args, **options):
            nonlocal left
            if not left:
                return send(session, *args, **options)
            left -= 1
            session.drop()
            raise connection_broke("by a test")

        monkeypatch.setattr(Session, "send", breaks)
        eventually(lambda: not left and lease._state.deadline > before)
        eventually(lambda: len(levels(records, logging.INFO)) == (times > 1))
        lease.release()
    assert any("by a test" in record.getMessage() for record in records("handfast.renewal"))
    assert len(levels(records, logging.WARNING)) == len(levels(records, logging.INFO)) == (times > 1)


# --- cleanups


@pytest.mark.parametrize("call", ["acquire", "try_acquire", "block"])
async def test_a_server_that_refuses_for_good_is_an_error_and_no_cleanup(api, records, call):
    with ServerController() as server:
        async with api.client(server.replica().url, retry_for=0.1) as client:
            with pytest.raises(ServerRefused, match="replica"):
                if call == "block":
                    async with client.lock("a"):
                        pass
                else:
                    await getattr(client.lock("a"), call)()
    assert not records("handfast.cleanup")


# --- leases that end as planned


async def test_a_lease_without_renewal_that_runs_out_is_no_warning(here, records):
    lease = await here.lock("cooldown", ttl=0.2, renew=False).acquire()
    await eventually_async(lambda: records("handfast.renewal"))
    (record,) = records("handfast.renewal")
    assert record.levelno == logging.DEBUG
    assert "lost the lease of 'cooldown'" in record.getMessage()
    assert lease.lost


def levels(records, level):
    return [record for record in records("handfast.renewal") if record.levelno == level]
