"""A replica becomes the primary while connections to the old one stay open, or an older state of the server comes back.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from handfast._engine.packing import doubles
from handfast._protocol import acquire
from handfast.testing import ServerController
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async
from tests.gate.faults.test_failover import outcome, record_of


@pytest.fixture
def primary():
    """A server of its own, with a replica that it can change roles with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ServerController() as server:
        server.replica("--port", str(port))
        yield server


@pytest.fixture
def replica(primary):
    (replica,) = primary._replicas
    return replica


def change_roles(primary, replica):
    """Make the replica the primary, without the loss of any data and of any connection."""
    primary.admin.execute_command("FAILOVER")
    eventually(lambda: replica.admin.info("replication")["role"] == "master")
    eventually(lambda: primary.admin.info("replication").get("master_link_status") == "up")


def test_a_subscriber_at_a_replica_hears_of_no_grant(primary, replica):
    """A message that is published at the primary is heard at its replicas, but not counted."""
    granted = Engine(primary.admin)
    pubsub = replica.admin.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("inbox:elsewhere")
    eventually(lambda: replica.admin.pubsub_numsub("inbox:elsewhere")[0][1])
    granted.acquire("first")
    granted.acquire("elsewhere")
    assert granted.release("first") == ["released", 0]
    primary.admin.publish("inbox:elsewhere", "revoked by way_of_test")
    pubsub.get_message(timeout=3)  # of the subscription
    assert pubsub.get_message(timeout=3)["data"] == "revoked by way_of_test", "the next message"
    assert granted.queue() == granted.holders() == []
    pubsub.close()


async def test_a_waiter_at_the_old_primary_does_not_believe_a_grant_that_the_new_one_gives_to_another(
    api, primary, replica, monkeypatch
):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", 60.0)  # a waiter that asks learns of the new roles
    engine = Engine(primary.admin)
    engine.acquire("first")
    async with api.client(primary.url) as stays, api.client(replica.url) as moves:
        waiting = asyncio.create_task(outcome(stays.lock("a").acquire(timeout=4)))
        await until_queued(stays.lock("a"))
        (token,) = engine.queue()
        inbox, _ = record_of(engine, token)
        change_roles(primary, replica)
        engine = Engine(replica.admin)
        right = asyncio.create_task(outcome(moves.lock("a").acquire()))
        await eventually_async(lambda: len(engine.queue()) == 2)
        assert not waiting.done()
        assert engine.release("first") == ["released", 0]
        lease = await right
        primary.admin.config_resetstat()
        # It asks again, unless it took what came before for a grant.
        replica.admin.publish(inbox, f"granted {token} ".encode() + doubles(0, 0, 0))
        refused = {"errorstat_READONLY", "errorstat_ERR"}  # as Redis 6.2 counts what is refused to a script
        await eventually_async(lambda: refused & primary.admin.info("errorstats").keys())
        assert await waiting is None
        lease.check()
