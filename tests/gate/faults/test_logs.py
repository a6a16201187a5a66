"""What the log says of leases and outages, and what a lease says of its own time, in both APIs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from handfast import LeaseLost, ServerRefused
from tests._support.apis import until_queued
from tests._support.helpers import eventually_async

pytestmark = pytest.mark.usefixtures("short_ticks")


@pytest.fixture
def records(caplog):
    """A function that returns the records of one logger so far."""
    caplog.set_level(logging.DEBUG, "handfast")
    return lambda logger: [record for record in caplog.records if record.name == logger]


# --- of leases


async def test_debug_shows_who_had_it_and_for_how_long(here, there, records):
    first = await here.lock("a").acquire()

    async def wait():
        async with there.lock("a").acquire(timeout=20) as second:
            return second

    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait())
        await until_queued(here.lock("a"))
        await first.release()
    second = waiter.result()
    acquired, released, next_acquired, next_released = sorted(
        records("handfast.lease"), key=lambda record: (record.fence, record.getMessage())
    )
    for lease, one, other in ((first, acquired, released), (second, next_acquired, next_released)):
        assert one.getMessage() == f"acquired 'a' with fence {lease.fence} after {lease.waited:.3f} s"
        assert other.getMessage().startswith(f"released 'a' with fence {lease.fence} after ")
        assert (one.lock, one.fence, one.waited) == ("a", lease.fence, lease.waited)
        assert (other.lock, other.fence) == ("a", lease.fence)
        assert lease.held_for <= other.held_for < lease.held_for + 1


async def test_a_block_that_fails_logs_its_release_too(here, records):
    with pytest.raises(ZeroDivisionError):
        async with here.lock("a"):
            1 / 0  # noqa: B018 -- the error is the purpose
    assert [record.getMessage().split()[0] for record in records("handfast.lease")] == ["acquired", "released"]


async def test_above_debug_nothing_is_said_of_leases_that_end_well(here, caplog):
    caplog.set_level(logging.INFO, "handfast")
    async with here.lock("a"):
        pass
    assert not caplog.records


# --- the time of a lease


async def test_held_for_stops_when_the_lease_is_revoked(here, there):
    lease = await here.lock("a").acquire()
    await there.lock("a").force_release()
    await eventually_async(lambda: lease.lost)
    ended = lease.held_for
    assert 0 < ended < 30
    with pytest.raises(LeaseLost):
        lease.check()
    assert lease.held_for == ended


# --- cleanups


@pytest.mark.parametrize("call", ["acquire", "try_acquire"])
async def test_who_may_run_no_script_gets_an_error_and_no_cleanup(api, server, raw, records, call):
    raw.execute_command("ACL", "SETUSER", "idle", "on", ">x", "~*", "&*", "+@all", "-eval", "-evalsha")
    try:
        async with api.client(server.url.replace("unix://", "unix://idle:x@")) as client:
            with pytest.raises(ServerRefused, match=r"\+evalsha"):
                await getattr(client.lock("a"), call)()
    finally:
        raw.execute_command("ACL", "DELUSER", "idle")
    assert not records("handfast.cleanup")


# --- leases that end as planned


async def test_a_lease_without_renewal_that_is_taken_away_is_still_an_error(here, there, raw, records):
    lease = await here.lock("a", renew=False).acquire()
    await eventually_async(lambda: raw.pubsub_channels("hf:control:*"))
    await there.lock("a").force_release(reason="deploy")
    (record,) = await eventually_async(lambda: records("handfast.renewal"))
    assert record.levelno == logging.ERROR
    assert (record.reason, lease.lost) == ("deploy", True)
