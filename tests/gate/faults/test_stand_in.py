"""Renewals while the event loop is blocked: a thread sends them, until the loop goes on."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from handfast import AsyncHandfast, LeaseLost
from handfast._drivers.aio.stand_in import Absence
from tests._support.helpers import eventually, eventually_async, forever, until_alone

SINCE_DUE_S = 16
"""A lease of 30 s is due after 10, and overdue after 15."""


@pytest.fixture
async def mine(server, raw):
    async with AsyncHandfast(server.url) as client:
        await client.lock("a").locked()
        yield client


def blocked_until(condition):
    """Block the event loop until a condition is true, which no other code of this loop can make true meanwhile."""
    return eventually(condition)


def stand_ins():
    return [thread for thread in threading.enumerate() if thread.name == "handfast-stand-in"]


async def test_leases_are_renewed_while_the_loop_is_blocked(mine, suspend, raw, caplog):
    connections = len(raw.client_list())
    with caplog.at_level(logging.INFO, "handfast.renewal"):
        async with mine.lock("a") as one, mine.semaphore("s", 2) as other:
            before = [lease._state.deadline for lease in (one, other)]
            suspend(SINCE_DUE_S)
            blocked_until(lambda: [lease._state.deadline for lease in (one, other)] > before)
            blocked_until(lambda: other._state.deadline > before[1])
            assert len(raw.client_list()) == connections + 1
            await eventually_async(lambda: len(raw.client_list()) == connections)
            assert not one.lost
            assert not other.lost
        await eventually_async(lambda: len(caplog.records) == 2)
    began, went_on = caplog.records
    assert began.levelno == logging.WARNING
    assert "the event loop is blocked; a thread renews 2 leases" in began.getMessage()
    assert began.leases == 2
    assert went_on.levelno == logging.INFO
    assert went_on.lasted >= 0


async def test_where_the_server_is_full_the_loops_own_connection_makes_room(mine, suspend, raw):
    most = raw.config_get("maxclients")["maxclients"]
    async with mine.lock("a") as lease:
        before, connections = lease._state.deadline, len(raw.client_list())
        raw.config_set("maxclients", connections)
        try:
            suspend(SINCE_DUE_S)
            blocked_until(lambda: lease._state.deadline > before)
            assert len(raw.client_list()) == connections
            async with mine.lock("b").acquire(timeout=20):  # as soon as the thread has left
                assert not lease.lost
            assert len(raw.client_list()) == connections
        finally:
            raw.config_set("maxclients", most)


async def test_a_lease_that_turns_out_to_be_gone_ends_its_block_when_the_loop_goes_on(mine, suspend, raw):
    with pytest.raises(LeaseLost, match="no longer had it"):
        async with mine.lock("a") as lease:
            raw.flushall()
            suspend(SINCE_DUE_S)
            blocked_until(lambda: lease.lost)
            await forever()


async def test_a_script_that_the_server_has_forgotten_is_sent_in_full(mine, suspend, raw):
    async with mine.lock("a") as lease:
        raw.script_flush()
        before = lease._state.deadline
        suspend(SINCE_DUE_S)
        blocked_until(lambda: lease._state.deadline > before)


async def test_no_thread_looks_at_what_is_not_renewed_and_none_stays_for_nothing(mine, suspend):
    eventually(lambda: not stand_ins())
    async with mine.lock("a", renew=False):
        assert not stand_ins()
    async with mine.lock("a"):
        assert len(stand_ins()) == 1
        async with mine.lock("b"):
            assert len(stand_ins()) == 1
    eventually(lambda: not stand_ins())


async def test_what_is_left_of_a_client_or_a_loop_keeps_no_thread(server, raw):
    def leave():
        loop = asyncio.new_event_loop()
        lease = loop.run_until_complete(AsyncHandfast(server.url).lock("a").acquire())
        assert stand_ins()
        loop.close()
        return lease

    leases = [await asyncio.to_thread(leave)]
    client = AsyncHandfast(server.url)
    leases.append(await client.lock("b").acquire())
    await client.close(release=False)
    eventually(lambda: not stand_ins())
    assert all(leases)
    leases.clear()
    until_alone(raw)


async def test_without_a_thread_all_is_as_before(mine, monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    eventually(lambda: not stand_ins())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    async with mine.lock("a") as lease:
        assert not stand_ins()
        assert lease.fence


async def test_what_was_not_sent_before_the_loop_goes_on_is_not_sent_any_more(mine):
    async with mine.lock("a") as lease:
        absence, unsent, late = Absence(), asyncio.Future(), asyncio.Future()
        session = mine._driver._contexts[asyncio.get_running_loop()].session
        absence.add(lease._state, session, unsent)
        absence.end()
        absence.add(lease._state, session, late)
        assert unsent.cancelled()
        assert late.cancelled()
        assert absence.take_answered() == []
