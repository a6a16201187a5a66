"""Scripts through Handfast clients under lost replies and restarts: how often each script runs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import redis

from handfast import AsyncHandfast, ClientClosed, Script, ScriptError, ServerRefused, testing
from handfast.embedded import PrivateServer, find_binary, supervisor
from handfast.testing import FaultProxy, command
from tests._support.apis import SYNC
from tests._support.helpers import eventually_async, settled
from tests._support.scripting import COUNT, made

SAFE = Script("-- KEYS counter\n-- TWICE one more is counted.\nreturn redis.call('INCR', KEYS[1])", name="safe")


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_script_whose_reply_is_lost_is_not_sent_again(api, proxy, raw, what):
    ran = 0
    async with made(api, proxy.url) as ours:
        await settled(COUNT(ours, counter="c"))
        for _ in range(5):
            fault = getattr(proxy, what)(testing.script(COUNT))
            with pytest.raises(redis.ConnectionError):
                await settled(COUNT(ours, counter="c"))
            assert fault.spent
            ran += what == "lose_reply"
            assert raw.get("c") == str(1 + ran)
            ran += 1
            assert await settled(COUNT(ours, counter="c")) == 1 + ran


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_an_idempotent_script_is_sent_again(api, proxy, raw, what):
    ran = 1
    async with made(api, proxy.url) as ours:
        await settled(SAFE(ours, counter="c"))
        for _ in range(5):
            fault = getattr(proxy, what)(testing.script(SAFE))
            ran += 2 if what == "lose_reply" else 1
            assert await settled(SAFE(ours, counter="c")) == ran
            assert fault.spent


async def test_an_idempotent_script_is_sent_again_after_the_reply_to_its_source_is_lost(api, proxy, raw):
    async with made(api, proxy.url) as ours:
        for script, count in ((COUNT, 1), (SAFE, 3)):
            raw.script_flush()
            fault = proxy.lose_reply(command("EVAL"))
            with contextlib.nullcontext() if script is SAFE else pytest.raises(redis.ConnectionError):
                await settled(script(ours, counter="c"))
            assert fault.spent
            assert raw.get("c") == str(count)


@pytest.mark.parametrize("word", ["TRYAGAIN", "READONLY", "LOADING"])
async def test_a_script_that_ran_is_not_sent_again_after_a_transient_error(api, server, raw, word):
    script = Script(f"redis.call('INCR', KEYS[1])\nreturn redis.error_reply('{word} later')", name="late")
    async with made(api, server.url) as ours:
        with pytest.raises(ServerRefused) as caught:
            await settled(script(ours, keys=["c"]))
    assert (caught.value.name, caught.value.reply) == ("late", f"{word} later")
    assert raw.get("c") == "1"


async def test_a_broken_connection_makes_no_concurrent_call_run_twice(proxy, raw):
    script = Script("return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)")
    async with AsyncHandfast(proxy.url) as ours:
        await script(ours, keys=["h"], args=["first"])
        lost = answered = 0
        for round_ in range(10):
            fault = proxy.lose_reply(testing.script(script), after=5 * round_)
            numbers = [f"{round_}:{number}" for number in range(50)]
            outcomes = await asyncio.gather(
                *(script(ours, keys=["h"], args=[one]) for one in numbers), return_exceptions=True
            )
            assert fault.spent
            seen = raw.hgetall("h")
            for number, outcome in zip(numbers, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    assert isinstance(outcome, redis.ConnectionError)
                    assert seen.get(number) in {None, "1"}
                    lost += 1
                else:
                    assert (outcome, seen[number]) == (1, "1")
                    answered += 1
    assert lost >= 10
    assert lost + answered == 500


async def test_a_cancelled_call_leaves_the_replies_of_other_calls_intact(server, raw):
    async with AsyncHandfast(server.url) as ours:
        await COUNT(ours, counter="c")
        for _ in range(20):
            gone, kept = (asyncio.ensure_future(script(ours, counter="c")) for script in (COUNT, SAFE))
            await asyncio.sleep(0)
            gone.cancel()
            assert await kept == int(raw.get("c"))
            with pytest.raises(asyncio.CancelledError):
                await gone


def restarted(path):
    folder = Path(path).parent
    folder.mkdir(0o700)
    server = supervisor.SupervisedServer(find_binary(), str(folder), remove_dir=True)
    while not supervisor.answers(path):
        assert not server.has_exited
    return server


async def test_a_restart_between_two_calls_is_survived(api):
    with PrivateServer() as server:
        ours = api.handfast(server.url)
        assert await settled(COUNT(ours, counter="c")) == 1
    if api is not SYNC:
        await eventually_async(lambda: not ours._driver._running_context().session.is_open)
    again = restarted(server.socket)
    try:
        assert await settled(COUNT(ours, counter="c")) == 1
        assert await settled(COUNT(ours, counter="c")) == 2
    finally:
        await settled(ours.close())
        again.end()


async def test_a_connection_broken_between_two_calls_is_reopened(api, proxy, raw):
    async with made(api, proxy.url) as ours:
        for count in range(1, 6):
            assert await settled(COUNT(ours, counter="c")) == count
            proxy.cut()
            if api is not SYNC:
                await eventually_async(lambda: not ours._driver._running_context().session.is_open)


async def test_a_script_that_could_not_be_sent_yet_waits_for_the_connection(api, proxy, raw):
    async with made(api, proxy.url) as ours:
        assert await settled(COUNT(ours, counter="c")) == 1
        proxy.cut()
        if api is not SYNC:
            await eventually_async(lambda: not ours._driver._running_context().session.is_open)
        fault = proxy.lose_reply(command("SUBSCRIBE"), times=2)
        assert await settled(COUNT(ours, counter="c")) == 2
        assert fault.spent


async def test_a_closed_client_runs_no_script(api, server, raw):
    async with made(api, server.url) as ours:
        assert await settled(COUNT(ours, counter="c")) == 1
    with pytest.raises(ClientClosed, match="this client was closed; 'with' opens it again"):
        await settled(COUNT(ours, counter="c"))
    assert raw.get("c") == "1"


async def test_clients_of_redis_py_send_the_source_again_after_a_restart(api):
    with PrivateServer() as server:
        path = server.socket
        async with api.users_client(unix_socket_path=path) as client:
            assert await settled(COUNT(client, counter="c")) == 1
            server.close()
            await settled(client.connection_pool.disconnect())  # older versions do not notice the restart themselves
            again = restarted(path)
            try:
                assert [await settled(COUNT(client, counter="c")) for _ in range(2)] == [1, 2]
            finally:
                again.end()


async def test_a_script_that_returns_noscript_itself_is_not_run_again(api, server, raw):
    script = Script("redis.call('INCR', KEYS[1])\nreturn redis.error_reply('NOSCRIPT of its own')", name="own")
    async with made(api, server.url) as ours, api.users_client(unix_socket_path=server.socket) as theirs:
        for number, (client, error) in enumerate([(ours, ServerRefused), (theirs, redis.ResponseError)] * 2, 1):
            with pytest.raises(error, match="of its own"):
                await settled(script(client, keys=["c"], args=[]))
            assert raw.get("c") == str(number)


async def test_after_a_readonly_reply_the_primary_is_looked_up_again(api, server, raw):
    async with made(api, server.url) as ours:
        await settled(COUNT(ours, counter="c"))
        before = {client["id"] for client in raw.client_list()} - {str(raw.client_id())}
        raw.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises((ScriptError, ServerRefused), match="read only replica"):
                await settled(COUNT(ours, counter="c"))
        finally:
            raw.replicaof("no", "one")
        assert await settled(COUNT(ours, counter="c")) == 2
        assert not before & {client["id"] for client in raw.client_list()}


@pytest.mark.parametrize("words", ["ROOM 7 is BUSY", "BUSY with others", "OOM: the room is full", "READONLY for you"])
async def test_error_replies_of_a_script_are_not_taken_for_server_errors(api, server, raw, words):
    source = f"-- KEYS counter\n-- TWICE one more is counted.\nredis.call('INCR', KEYS[1])\nreturn redis.error_reply('{words}')"
    async with made(api, server.url) as ours:
        before = {client["id"] for client in raw.client_list()}
        with pytest.raises(ServerRefused, match=words) as caught:
            await settled(Script(source, name="own")(ours, counter="c"))
        assert raw.get("c") == "1"
        assert not caught.value.changed_nothing
        mine = {client["id"] for client in raw.client_list()} - before
        with pytest.raises(ServerRefused):
            await settled(Script(source, name="own")(ours, counter="c"))
        assert {client["id"] for client in raw.client_list()} - before == mine, "the connection remains open"


async def test_a_refusal_by_the_server_is_not_a_script_error(api, server, raw):
    script = Script("return redis.call('SET', KEYS[1], 'x')", name="set")
    async with made(api, server.url) as ours, api.users_client(unix_socket_path=server.socket) as theirs:
        raw.config_set("maxmemory", 1)
        with pytest.raises(ServerRefused, match="out of memory") as caught:
            await settled(script(ours, keys=["a"]))
        assert not caught.value.changed_nothing, "the script may have changed state before"
        with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
            await settled(script(theirs, keys=["a"]))
        raw.config_set("maxmemory", 0)
        raw.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(ServerRefused, match="this server is a replica"):
                await settled(script(ours, keys=["a"]))
            with pytest.raises(redis.ResponseError, match="read only replica"):
                await settled(script(theirs, keys=["a"]))
        finally:
            raw.replicaof("no", "one")


async def test_a_map_reply_with_unhashable_keys_is_returned_as_a_list(api, server, raw):
    script = Script("redis.setresp(3)\nreturn {map={[{1}]='x'}}", name="odd")
    async with made(api, server.url) as ours:
        for _ in range(2):
            assert await settled(script(ours)) == [[1], b"x"]
