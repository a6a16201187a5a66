"""The probe of a client, in both APIs: what happens where no message comes through, and what is said where nothing can work."""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import threading

import pytest

from handfast import ServerRefused, ServerUnsupported
from handfast._protocol import acquire
from handfast.acl import rights_for
from handfast.testing import FaultProxy, ServerController, command, script
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
async def test_waiters_behind_a_proxy_without_messages_are_served_in_their_order_by_asking(api, proxy, there, caplog):
    lost = proxy.lose_pushes()
    async with api.client(proxy.url) as client:
        holder, inside, served = await there.lock("a").acquire(), [], []

        async def wait(number):
            async with client.lock("a").acquire(timeout=30):
                assert not inside
                inside.append(number)
                await asyncio.sleep(0.01)
                served.append(number)
                inside.clear()

        waiters = []
        for number in range(4):
            waiters.append(asyncio.create_task(wait(number)))
            await until_queued(there.lock("a"), number + 1)
        await holder.release()
        await asyncio.wait_for(asyncio.gather(*waiters), 60)
    assert served == [0, 1, 2, 3]
    assert lost.happened
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "no messages of" in record.getMessage()


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


@pytest.mark.slow
async def test_a_server_without_the_clock_in_its_scripts_is_refused_in_words(api):
    with ServerController("--rename-command", "TIME", "") as server:
        async with api.client(server.url) as client:
            with pytest.raises(ServerRefused, match="services without TIME in scripts"):
                await client.lock("a").acquire(timeout=5)
        assert server.admin.dbsize() == 0


async def test_without_the_right_to_the_clock_nothing_is_acquired(api, server, raw):
    rules = [rule for rule in rights_for(["lock"]).rules() if rule != "+time"]
    raw.execute_command("ACL", "SETUSER", "timeless", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://timeless:x@")) as client:
            with pytest.raises(ServerRefused, match="too few rights for this script"):
                await client.lock("a").acquire(timeout=5)
        assert raw.dbsize() == 0
    finally:
        raw.execute_command("ACL", "DELUSER", "timeless")
