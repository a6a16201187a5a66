"""Clients of a service that a Sentinel watches over: the primary is found, and the new one before the old one stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast, Handfast, LeaseLost, ServerUnsupported
from handfast._drivers import primary_watch
from handfast.embedded import find_binary
from tests._support.apis import SYNC, take, until_queued, use
from tests._support.helpers import eventually, eventually_async
from tests._support.sentinel import Watched
from tests.deep.faults.test_aio_lifetime import CLOSED, SILENT, play


@pytest.fixture
def watched():
    """A primary that a Sentinel watches over."""
    watched = Watched(shutil.which("redis-server") or find_binary())
    try:
        watched.start()
        yield watched
    finally:
        watched.close()


async def test_the_primary_of_a_sentinels_client_is_found(api, watched):
    async with (
        api.users_sentinel(watched.sentinel, watched.password) as sentinel,
        api.client(sentinel.master_for(watched.name)) as client,  # no other reference keeps it
    ):
        gc.collect()
        await use(client)


@pytest.mark.parametrize("database", ["", "/1"])
async def test_the_port_of_a_sentinel_is_named_as_what_it_is(api, watched, database):
    place = f"127.0.0.1:{watched.sentinel}"
    async with api.client(f"redis://:{watched.password}@{place}{database}") as client:
        with pytest.raises(ServerUnsupported, match="Sentinel") as refused:
            await client.lock("a").acquire()
    assert (f"redis+sentinel://{place}/{watched.name}" in str(refused.value)) == (not database)


async def test_a_server_is_not_taken_for_a_sentinel(api, watched):
    async with api.client(f"redis+sentinel://127.0.0.1:{watched.primary}/x?sentinel_password=s3cret") as client:
        with pytest.raises(ServerUnsupported, match="not a Sentinel"):
            await client.lock("a").acquire()


def test_the_command_finds_a_sentinels_primary(watched):
    command = [sys.executable, "-m", "handfast", "run", "b", "--url", watched.url, "--", "echo", "done"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


async def test_a_sentinels_primary_is_found_and_after_a_failover_the_new_one(api, watched):
    async with api.client(watched.url, retry_for=30) as client:
        await use(client)
        async with client.lock("a") as lease:
            pass
        with watched.client(watched.sentinel) as sentinel:
            mine = {str(sentinel.client_id()), *watched.watching()}
            others = {one["id"] for one in sentinel.client_list() if one["user"] == "default"} - mine
            assert not others, "the Sentinels were asked, and their connections were left open"
        watched.kill_primary()
        assert await take(client.lock("a")) > lease.fence
        await use(client, ttl=10)
        with watched.client(watched.replica) as behind:
            assert behind.role()[0] == "master"
            behind.select(1)
            assert list(behind.scan_iter("{hf:lock:a}*"))


def test_threads_that_connect_at_the_same_moment_leave_each_other_alone(watched):
    threads = 16
    start = threading.Barrier(threads)

    def acquire(number):
        start.wait()
        client.lock(f"a-{number}").acquire(timeout=10).release()

    for _ in range(5):
        with Handfast(watched.url) as client, ThreadPoolExecutor(threads) as pool:
            list(pool.map(acquire, range(threads)))


# --- a planned failover, after which the old primary takes writes for ten seconds more


async def until_it_acquires_at_the_new_primary(client, watched):
    """Acquire new names until one is at the new primary, and assert that the old one would still have granted the next."""
    with watched.client(watched.primary) as old, watched.client(watched.replica) as new:
        for database in (old, new):
            database.select(1)
        until = time.monotonic() + 5
        for number in range(1000):
            with contextlib.suppress(LeaseLost):  # the old primary granted it, and it was released at the new one
                await take(client.lock(f"new-{number}"))
            if any(new.scan_iter(f"{{hf:lock:new-{number}}}*")):
                break
            assert time.monotonic() < until, "it stays at the old primary"
            await asyncio.sleep(0.05)
        # The last one may have been acquired at the old primary, and released at the new.
        await take(client.lock("next"))
        assert any(new.scan_iter("{hf:lock:next}*"))
        assert not any(old.scan_iter("{hf:lock:next}*"))
        assert old.role()[0] == "master"


async def test_after_a_planned_failover_everybody_leaves_the_old_primary(api, watched):
    async with api.client(watched.url) as client, asyncio.TaskGroup() as tasks:
        lock = client.lock("a")
        lease = await lock.acquire()
        waiter = tasks.create_task(take(lock))
        await until_queued(lock)
        await eventually_async(watched.watching)
        watched.switch()
        await until_it_acquires_at_the_new_primary(client, watched)
        assert await lock.try_acquire() is None
        assert await lease.release()
        assert await waiter > lease.fence


async def test_a_switch_that_no_message_tells_of_is_found_out_when_the_sentinel_is_reached_again(
    api, watched, monkeypatch
):
    monkeypatch.setattr(f"handfast._drivers.{'sync' if api is SYNC else 'aio'}.primary_watch.PAUSE_S", 3.0)
    async with api.client(watched.url) as client:
        await use(client)
        (connection,) = await eventually_async(watched.watching)
        with watched.client(watched.sentinel) as sentinel:
            sentinel.client_kill_filter(_id=connection)
        watched.switch()
        await until_it_acquires_at_the_new_primary(client, watched)


async def test_a_sentinel_that_refuses_to_tell_is_named_in_one_warning(api, watched, caplog, monkeypatch):
    monkeypatch.setattr(f"handfast._drivers.{'sync' if api is SYNC else 'aio'}.primary_watch.ASK_EVERY_S", 0.05)
    with watched.client(watched.sentinel) as sentinel:
        sentinel.execute_command("ACL", "SETUSER", "default", "-subscribe")
    with caplog.at_level(logging.WARNING, "handfast.sentinel"):
        async with api.client(watched.url) as client:
            await use(client)
            await eventually_async(lambda: caplog.records)
            await asyncio.sleep(0.5)
    (record,) = caplog.records
    assert record.getMessage().startswith("no Sentinel of 'mymaster' tells of a new primary (")
    assert "'subscribe' command" in record.getMessage()


async def test_a_connection_that_was_opened_while_the_primary_changed_is_not_used(api, server):
    async with api.client(server.url) as client:
        connector = client._driver._connector
        connect, opened = connector.connect, []

        def to_the_old_primary(*args):
            opened.append(args)
            connector.reached = True
            if len(opened) == 1:
                connector.switches += 1
            return connect(*args)

        connector.connect = to_the_old_primary
        await take(client.lock("a"))
        assert len(opened) == 2


async def test_a_switch_during_the_handshake_of_a_connection_ends_it(server):
    async with AsyncHandfast(server.url) as client:
        connector = client._driver._connector
        connect, opened = connector.connect, []

        async def and_switch():
            opened.append(await connect())
            connector.reached = True
            if len(opened) == 1:
                session = client._driver._contexts[asyncio.get_running_loop()].session
                asyncio.get_running_loop().call_soon(session.reconnect)
            return opened[-1]

        connector.connect = and_switch
        await take(client.lock("a"))
        assert len(opened) == 2


# --- nothing is left


async def test_close_leaves_no_connection_to_a_sentinel_and_no_thread(api, watched):
    async with api.client(watched.url) as client:
        await use(client)
        assert len(await eventually_async(watched.watching)) == 1
    await eventually_async(lambda: not watched.watching())
    assert not [thread for thread in threading.enumerate() if "primary-watch" in thread.name]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_however_a_loop_or_client_ends_it_ends_silently(watched, kind):
    for scenario in SILENT.values():
        play(watched, kind, scenario)
    eventually(lambda: not watched.watching())


def test_a_loop_that_is_closed_without_its_shutdown_leaves_no_connection(watched):
    play(
        watched,
        "asyncio",
        CLOSED.replace("    loop.close()", "    loop.run_until_complete(asyncio.sleep(0.3))\n    loop.close()"),
    )
    eventually(lambda: not watched.watching())


def test_a_dropped_client_leaves_no_connection_to_a_sentinel(watched):
    client = Handfast(watched.url)
    with client.lock("a"):
        pass
    eventually(watched.watching)
    del client
    gc.collect()
    eventually(lambda: not watched.watching())


def test_a_forked_child_has_a_watch_of_its_own(watched):
    with Handfast(watched.url) as client:
        with client.lock("a"):
            pass
        parents = eventually(watched.watching)
        if (child := os.fork()) == 0:
            code = 1
            try:
                with client.lock("b"):
                    eventually(lambda: len(watched.watching()) == 2)
                client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert watched.watching() == parents


async def test_another_sentinel_is_asked_when_one_falls_silent(api, watched, monkeypatch):
    monkeypatch.setattr(f"handfast._drivers.{'sync' if api is SYNC else 'aio'}.primary_watch.ASK_EVERY_S", 0.1)
    assert primary_watch.ASK_EVERY_S > 1
    async with api.client(watched.url) as client:
        await use(client)
        before = await eventually_async(watched.watching)
        with watched.stopped():
            await asyncio.sleep(0.5)
        await eventually_async(lambda: watched.watching() not in ([], before))


@pytest.fixture
def mute():
    """A Sentinel whose machine is gone, as a proxy or a firewall makes it look: it accepts, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


async def test_a_sentinel_that_does_not_answer_is_asked_once(api, watched, mute):
    login, _, rest = watched.url.rpartition("@")
    url = f"{login}@127.0.0.1:{mute.getsockname()[1]},{rest}"
    async with api.client(url) as client:
        lease = await client.lock("a", ttl=6).acquire(timeout=4)
        with watched.client(watched.primary) as primary:
            await eventually_async(primary.pubsub_channels)
            await eventually_async(watched.watching)
            before = lease._state.deadline
            for one in primary.client_list():
                if "handfast" in one.get("lib-name", ""):
                    primary.client_kill_filter(one["id"])
        await eventually_async(lambda: lease._state.deadline > before)
        await use(client, name="b")
        assert await lease.release() is True
    asked = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            mute.accept()[0].close()
            asked += 1
    assert asked == 1
