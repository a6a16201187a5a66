"""What an outage looks like to a caller: never as if others held the name, and for as long as the caller allows."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from handfast import AcquireTimeout, ServerRefused
from handfast.testing import FaultProxy, ServerController, script
from tests._support.apis import until_queued
from tests._support.helpers import eventually, eventually_async, more

NEVER = 600.0
"""A time in seconds that no test waits for."""

OUTAGES = {
    "gone": (lambda server: server.kill(), redis.ConnectionError),
    "hung": (lambda server: server.pause(), redis.TimeoutError),
}
CALLS = {
    "try_acquire": lambda lock, _: lock.try_acquire(timeout=0.3),
    "acquire": lambda lock, _: lock.acquire(timeout=0.3),
    "status": lambda lock, _: lock.status(timeout=0.3),
    "acquire without a limit": lambda lock, _: lock.acquire(),
    "release": lambda _, lease: lease.release(),
    "extend": lambda _, lease: lease.extend(60),
}
REFUSALS = {
    "a replica": "READONLY",
    "a long script": "BUSY",
}


@pytest.fixture
def server():
    with ServerController("--lua-time-limit", "1") as server:
        yield server
        if server.running:
            server.resume()


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("call", ["try_acquire", "acquire", *more(*list(CALLS)[2:])])
async def test_an_outage_raises_the_connection_error_in_both_apis(api, server, call, outage):
    begin, error = OUTAGES[outage]
    options = {"socket_timeout": 0.5} if outage == "hung" else {}
    async with api.users_client(unix_socket_path=server.socket, **options) as mine:
        async with api.client(mine, retry_for=0.3) as client:
            lease = await client.lock("held").acquire()
            await (await client.lock("free").acquire()).release()
            begin(server)
            with pytest.raises(error) as caught:
                await CALLS[call](client.lock("free"), lease)
            assert not isinstance(caught.value, AcquireTimeout)


@pytest.mark.parametrize("outage", ["gone", *more("hung")])
async def test_a_waiter_whose_server_ends_raises_the_connection_error(api, server, outage):
    begin, error = OUTAGES[outage]
    async with api.client(server.url, retry_for=0.3) as client, api.client(server.url) as other:
        held = await other.lock("a").acquire()
        async with asyncio.TaskGroup() as tasks:
            waiter = tasks.create_task(raised(lambda: client.lock("a").acquire(timeout=1)))
            await until_queued(other.lock("a"))
            begin(server)
        assert isinstance(waiter.result(), error)
        assert held.fence


async def raised(call):
    """Return the error that a call raises."""
    try:
        await call()
    except Exception as error:  # noqa: BLE001 -- the test looks at it
        return error
    return None


@pytest.mark.parametrize("verb", ["try_acquire", "status"])
async def test_a_call_that_does_not_wait_replaces_a_connection_that_broke_while_it_was_idle(api, server, verb):
    async with api.client(server.url, retry_for=NEVER) as client:
        await (await client.lock("a").acquire()).release()
        server.kill()
        server.restart()
        found = await getattr(client.lock("a"), verb)()
        assert found is not None
        if verb == "try_acquire":
            await found.release()


async def test_a_call_that_does_not_wait_is_sent_twice_at_most(api, server):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=NEVER) as client:
            await (await client.lock("a").acquire()).release()
            fault = proxy.lose_request(script("permit_acquire"), times=None)
            with pytest.raises(redis.ConnectionError):
                await client.lock("a").try_acquire()
            assert fault.happened == 2
            fault.clear()


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refusal_that_may_pass_is_reported_at_once_where_no_one_waits(api, server, refusal):
    """With that much time for retries it would never be reported otherwise."""
    async with api.client(server.url, retry_for=NEVER) as client:
        await (await client.lock("a").acquire()).release()
        with refusing(server, REFUSALS[refusal]):
            with pytest.raises(ServerRefused, match=REFUSALS[refusal]) as caught:
                await client.lock("a").try_acquire()
            assert caught.value.changed_nothing


async def test_a_refusal_that_may_pass_is_retried_for_the_time_of_the_client(api, server):
    async with api.client(server.url, retry_for=0.2) as client:
        await (await client.lock("a").acquire()).release()
        with refusing(server, "READONLY"), pytest.raises(ServerRefused, match="READONLY"):
            await client.lock("a").acquire()
        async with client.lock("a"):
            pass


async def test_a_replica_is_not_asked_for_renewals_without_a_pause(api, server):
    async with api.client(server.url) as client:
        lease = await client.lock("a", ttl=1.2).acquire()
        server.admin.config_resetstat()
        with refusing(server, "READONLY"):
            await eventually_async(lambda: asyncio.sleep(0, lease.lost))
            calls = server.admin.info("commandstats")
        assert sum(calls[name]["calls"] for name in calls if name.startswith("cmdstat_eval")) < 40


@contextlib.contextmanager
def refusing(server, word):
    """Let a server refuse scripts within the block."""
    if word == "READONLY":
        server.admin.replicaof("127.0.0.1", 1)
        yield
        server.admin.replicaof("NO", "ONE")
        return

    def run_on():
        with contextlib.suppress(redis.RedisError), redis.Redis(unix_socket_path=server.socket) as client:
            client.eval("while true do end", 0)

    def is_busy():
        try:
            return not server.admin.ping()
        except redis.RedisError as error:
            return "BUSY" in str(error)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(run_on)
        eventually(is_busy)
        yield
        server.admin.script_kill()
