"""Leases that count only once replicas have them: ``min_replicas=`` and ``replica_timeout=``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import time

import pytest

from handfast import LeaseLost, NotReplicated, ServerRefused
from handfast.testing import FaultProxy, ServerController
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually_async

ACKNOWLEDGED = {"min_replicas": 1, "replica_timeout": 0.2}

OBJECTS = {
    "lock": lambda client, **options: client.lock("a", **options),
    "rlock": lambda client, **options: client.rlock("a", **options),
    "lock_all": lambda client, **options: client.lock_all(["a", "b"], **options),
    "semaphore": lambda client, **options: client.semaphore("a", 3, **options),
    "read": lambda client, **options: client.rwlock("a", **options).read(),
    "write": lambda client, **options: client.rwlock("a", **options).write(),
}


class Pair:
    """A primary and its replica, which can stand still."""

    def __init__(self, primary):
        self.primary = primary
        (self.replica,) = primary._replicas
        self._pid = self.replica.admin.info("server")["process_id"]
        self.url = primary.url
        self.wait_until_in_step()

    def wait_until_in_step(self):
        """A primary sends nothing for up to a second after a replica is there."""
        self.primary.admin.set("last", "write", px=1000)
        assert self.primary.admin.wait(1, 10_000) == 1

    def stop(self):
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self._pid, signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self):
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def has(self, kind):
        """Return who holds the name ``a`` at the replica, without waiting for it."""
        return Engine(self.replica.admin, kind=kind).holders()


@pytest.fixture(scope="module")
def servers():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ServerController() as primary:
        primary.replica("--port", str(port))
        yield Pair(primary)


@pytest.fixture
def pair(servers):
    servers.primary.admin.flushall()
    servers.wait_until_in_step()
    yield servers
    servers.go_on()


# --- grants


@pytest.mark.parametrize("kind", OBJECTS)
async def test_a_grant_is_at_the_replica_when_the_caller_has_it(api, pair, kind):
    stored_as = {"rlock": "lock", "lock_all": "lock", "read": "rwlock", "write": "rwlock"}.get(kind, kind)
    async with api.client(pair.url) as client:
        for _ in range(5):
            for take in ("acquire", "try_acquire"):
                lease = await getattr(OBJECTS[kind](client, **ACKNOWLEDGED), take)()
                assert len(pair.has(stored_as)) == 1
                await lease.release()
        async with OBJECTS[kind](client, **ACKNOWLEDGED):
            assert len(pair.has(stored_as)) == 1


@pytest.mark.parametrize("kind", OBJECTS)
async def test_a_grant_that_the_replica_does_not_have_is_given_back(api, pair, kind):
    async with api.client(pair.url) as client:
        wanted = OBJECTS[kind](client, **ACKNOWLEDGED)
        with pair.stopped():
            for take in ("acquire", "try_acquire"):
                with pytest.raises(NotReplicated, match=r"0 of 1 replica had the lease of '.*' after 0\.2 s") as caught:
                    await getattr(wanted, take)()
                assert caught.value.replicas == 0
                assert isinstance(caught.value, ServerRefused)
                assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
                free = await OBJECTS[kind](client).try_acquire()
                assert await free.release()
        pair.wait_until_in_step()
        lease = await wanted.acquire()
        assert await lease.release()


async def test_a_grant_that_is_handed_over_is_acknowledged_too(api, pair):
    async with api.client(pair.url) as first, api.client(pair.url) as second:
        held = await first.lock("a").acquire()
        waiting = asyncio.ensure_future(second.lock("a", **ACKNOWLEDGED).acquire(timeout=10))
        await until_queued(first.lock("a"))
        await held.release()
        lease = await waiting
        assert len(pair.has("lock")) == 1
        assert 25 < lease.remaining() <= 30
        waiting = asyncio.ensure_future(first.lock("a", **ACKNOWLEDGED).acquire(timeout=10))
        await until_queued(first.lock("a"))
        with pair.stopped():
            await lease.release()
            with pytest.raises(NotReplicated):
                await waiting
        assert (await second.lock("a").status()).holders == ()


async def test_replicas_have_their_own_time_beside_the_callers(api, pair):
    async with api.client(pair.url) as client:
        async with client.lock("a", **ACKNOWLEDGED):  # there is a connection from then on
            pass
        with pair.stopped(), pytest.raises(NotReplicated):
            await client.lock("b", min_replicas=1, replica_timeout=1).acquire(timeout=0.05)


async def test_more_replicas_than_there_are_never_have_it(api, pair):
    async with api.client(pair.url) as client:
        with pytest.raises(NotReplicated, match=r"1 of 2 replicas had the lease of 'a' after 0\.2 s"):
            await client.lock("a", min_replicas=2, replica_timeout=0.2).acquire()


async def test_many_grants_at_once_share_their_barriers(api, pair):
    async with api.client(pair.url) as client:
        pair.primary.admin.config_resetstat()
        leases = await asyncio.gather(*(client.lock(f"n{number}", **ACKNOWLEDGED).acquire() for number in range(100)))
        assert len({lease.token for lease in leases} if hasattr(leases[0], "token") else leases) == 100
        waits = pair.primary.admin.info("commandstats")["cmdstat_wait"]["calls"]
        assert waits < 30 if api.name != "sync" else waits == 100
        with pair.stopped():
            began = time.monotonic()
            results = await asyncio.gather(
                *(client.lock(f"m{number}", **ACKNOWLEDGED).acquire() for number in range(100)), return_exceptions=True
            )
        assert {type(result) for result in results} == {NotReplicated}
        assert time.monotonic() - began < 20, "and not a barrier for each"


# --- renewals


async def test_a_lease_lasts_only_as_long_as_replicas_have_it(api, pair, caplog):
    async with api.client(pair.url) as client:
        acknowledged = await client.lock("a", ttl=1.2, **ACKNOWLEDGED).acquire()
        other = await client.lock("b", ttl=0.6).acquire()
        await asyncio.sleep(1.5)
        assert not acknowledged.lost
        with pair.stopped(), caplog.at_level(logging.DEBUG, "handfast.renewal"):
            await eventually_async(lambda: acknowledged.lost)
            assert not other.lost, "which asked for no replicas"
            await other.extend(5)
        with pytest.raises(LeaseLost, match=r"its ttl ended .*; the last renewal failed: 0 of 1 replica had the lease"):
            acknowledged.check()
        assert any(
            "retrying: " in record.getMessage() or "cannot renew" in record.getMessage() for record in caplog.records
        )


async def test_a_replica_that_is_back_in_time_saves_the_lease(api, pair):
    async with api.client(pair.url) as client:
        lease = await client.lock("a", ttl=3, **ACKNOWLEDGED).acquire()
        with pair.stopped():
            await asyncio.sleep(1.8)
        await asyncio.sleep(1.8)
        assert not lease.lost
        assert await lease.release()


async def test_a_renewal_that_changes_nothing_is_waited_for_all_the_same(api, pair):
    async with api.client(pair.url) as client:
        lease = await client.lock("a", **ACKNOWLEDGED).acquire()
        await lease.extend(60)
        await lease.extend(1)
        with pair.stopped(), pytest.raises(NotReplicated):
            await lease.extend(1)
        await lease.extend(1)


async def test_an_adopted_lease_is_acknowledged(api, pair):
    async with api.client(pair.url) as giver, api.client(pair.url) as taker:
        token = await (await giver.lock("a").acquire()).detach()
        with pair.stopped(), pytest.raises(NotReplicated):
            await taker.lock("a", **ACKNOWLEDGED).adopt(token)
        lease = await taker.lock("a", **ACKNOWLEDGED).adopt(token)
        assert len(pair.has("lock")) == 1
        assert await lease.release()


# --- what else may go wrong


async def test_a_script_that_the_server_has_forgotten_is_acknowledged_once_it_knows_it(api, pair):
    async with api.client(pair.url) as client:
        for _ in range(3):
            pair.primary.admin.script_flush()
            lease = await client.lock("a", ttl=0.9, **ACKNOWLEDGED).acquire()
            assert len(pair.has("lock")) == 1
            pair.primary.admin.script_flush()
            await asyncio.sleep(1.2)
            assert not lease.lost
            await lease.release()


async def test_a_connection_that_breaks_while_replicas_are_waited_for_is_replaced(api, pair):
    with FaultProxy(pair.url) as proxy:
        async with api.client(proxy.url) as client:
            await (await client.lock("a", **ACKNOWLEDGED).acquire()).release()
            pair.stop()
            waiting = asyncio.ensure_future(client.lock("a", min_replicas=1, replica_timeout=2).acquire())
            await eventually_async(lambda: pair.primary.admin.info("clients")["blocked_clients"])
            proxy.cut()
            pair.go_on()
            lease = await waiting
            assert len(pair.has("lock")) == 1
            assert await lease.release()


async def test_a_user_who_may_not_wait_learns_of_the_right(api, pair):
    pair.primary.admin.execute_command("ACL", "SETUSER", "limited", "on", ">x", "~*", "&*", "+@all", "-wait")
    url = pair.url.replace("unix://", "unix://limited:x@")
    async with api.client(url) as client:
        with pytest.raises(ServerRefused, match=r"\+wait"):
            await client.lock("a", **ACKNOWLEDGED).acquire()
        assert (await client.lock("a").status()).holders == ()
    pair.primary.admin.execute_command("ACL", "DELUSER", "limited")


async def test_a_server_without_the_command_is_named(api):
    with ServerController("--rename-command", "WAIT", "") as server:
        async with api.client(server.url) as client:
            with pytest.raises(ServerRefused, match="min_replicas"):
                await client.lock("a", **ACKNOWLEDGED).acquire()
            assert (await client.lock("a").status()).holders == ()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"min_replicas": -1}, "min_replicas must be from 1 to 100, not -1"),
        ({"min_replicas": 101}, "min_replicas must be from 1 to 100, not 101"),
        ({"min_replicas": 1, "replica_timeout": 0.1}, "replica_timeout must be at least 0.2 s"),
        ({"min_replicas": 1, "ttl": 2}, "replica_timeout must be at most a third of ttl, 0.666667 s"),
        ({"min_replicas": 1, "replica_timeout": 3}, "at most half of the client's socket_timeout, 2.5 s"),
    ],
)
async def test_what_cannot_be_waited_for_is_refused_before_anything_is_sent(api, options, error):
    async with api.client("redis://127.0.0.1:1") as client:
        for make in OBJECTS.values():
            with pytest.raises(ValueError, match=error):
                make(client, **options)


@pytest.mark.parametrize("value", [True, False, "1", 1.0, None])
async def test_replicas_are_counted_in_whole_numbers(api, value):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="min_replicas must be an int"):
            client.lock("a", min_replicas=value)
