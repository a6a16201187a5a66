"""The probe of a client, in both APIs: what happens where no message comes through, and what is said where nothing can work."""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import threading

import pytest

from handfast import ServerUnsupported
from handfast._protocol import acquire
from handfast.acl import rights_for
from handfast.testing import FaultProxy, command, script
from tests._support.apis import until_queued
from tests._support.helpers import eventually_async

ASKS = script("permit_acquire")

NEVER_S = 600.0


@pytest.fixture
def proxy(server, raw):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def only_messages(monkeypatch):
    """Let waiters that hear poll too late for any test."""
    monkeypatch.setattr(acquire, "HEAD_POLL_S", NEVER_S)


def sent(proxy, match):
    return sum(map(match, proxy.commands))


async def topics(client):
    return {one.topic: one for one in await client.check_server(timeout=20)}


@pytest.mark.usefixtures("only_messages")
async def test_a_client_that_hears_is_probed_once_and_asks_once(api, proxy, there, caplog):
    async with api.client(proxy.url) as client:
        for _ in range(2):
            holder, asked = await there.lock("a").acquire(), sent(proxy, ASKS)
            waiter = asyncio.create_task(_take(client))
            await until_queued(there.lock("a"))
            await holder.release()
            await asyncio.wait_for(waiter, 30)
            # Once more if the server did not know the script.
            assert sent(proxy, ASKS) - asked in {1, 2}
            proxy.cut()
        await _take(client)
    assert sent(proxy, command("SUBSCRIBE")) > 2
    assert sent(proxy, command("PUBLISH")) == 1
    assert not caplog.records


async def _take(client):
    async with client.lock("a").acquire(timeout=60):
        pass


async def test_the_first_message_that_comes_through_ends_the_polling(api, proxy, there):
    proxy.lose_pushes(times=1)
    async with api.client(proxy.url) as client:
        unheard = (await topics(client))["messages"]
        assert unheard.severity == "warning"
        assert "no messages reach this client" in unheard.text
        holder = await there.lock("a").acquire()
        waiter = asyncio.create_task(_take(client))
        await until_queued(there.lock("a"))
        await holder.release()
        await asyncio.wait_for(waiter, 30)
        await eventually_async(lambda: _has_heard(client))


async def _has_heard(client):
    found = await topics(client)
    return "messages" not in found and found["server"].text.endswith("grants reach this client")


async def test_without_the_right_to_publish_the_check_of_the_server_warns(api, server, raw):
    rules = [rule for rule in rights_for(["check_server"]).rules() if rule != "+publish"]
    raw.execute_command("ACL", "SETUSER", "quiet", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://quiet:x@")) as client:
            assert (await topics(client))["messages"].severity == "warning"
    finally:
        raw.execute_command("ACL", "DELUSER", "quiet")


# --- nothing can work


class Resp2(socketserver.StreamRequestHandler):
    """A server that knows no HELLO."""

    def handle(self):
        with contextlib.suppress(OSError):
            while self.request.recv(4096):
                self.request.sendall(self.server.refusal)


@pytest.fixture
def resp2():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Resp2) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("login", ["", "user:secret@"])
@pytest.mark.parametrize(
    "refusal",
    [
        b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n",
        b"-ERR unknown command 'hello'\r\n",
        b"-NOPROTO unsupported protocol version\r\n",
    ],
    ids=["6.0", "other", "NOPROTO"],
)
async def test_a_server_that_speaks_resp2_only_is_refused_in_words(api, resp2, login, refusal):
    resp2.refusal = refusal
    async with api.client(f"redis://{login}127.0.0.1:{resp2.server_address[1]}") as client:
        with pytest.raises(ServerUnsupported, match="does not speak RESP3") as caught:
            await client.lock("a").acquire(timeout=5)
    assert "secret" not in str(caught.value)
