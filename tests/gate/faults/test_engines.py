"""Who a server is, in both APIs: some engines are refused by name, and one that is not known has to prove that its scripts run alone."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading

import pytest
import redis

from handfast import ServerUnsupported
from handfast._drivers.failures import hello_refused
from handfast._engine.servers import ENGINES, IDENTITY, identify, isolation_proof, product
from handfast.testing import FaultProxy, command
from tests._support.apis import ASYNCIO, SYNC

REDIS = "redis_version:7.2.4"


class Pretender(socketserver.ThreadingTCPServer):
    """Stands before a server under another name, and may let others write while a script runs."""

    daemon_threads = True

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Relay)
        self.target, self.info, self.is_isolated = target, REDIS, True
        self.refuses, self.has_written = b"", threading.Event()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.server_address[1]}"


class Relay(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.socket(socket.AF_UNIX) as upstream, contextlib.suppress(OSError):
            upstream.connect(self.server.target)
            threading.Thread(target=self.answer, args=(upstream,), daemon=True).start()
            while data := self.request.recv(1 << 16):
                upstream.sendall(self.take(data))
            upstream.shutdown(socket.SHUT_WR)

    def answer(self, upstream):
        with contextlib.suppress(OSError):
            while data := upstream.recv(1 << 16):
                self.request.sendall(data)

    def take(self, data):
        """Answer what only the server pretends, and return the rest."""
        server = self.server
        if data.startswith(IDENTITY):
            info = f"# Server\r\n{server.info}\r\n".encode()
            self.request.sendall(b"$%d\r\n%b\r\n" % (len(info), info))
            return data.removeprefix(IDENTITY)
        if b"for look" in data and server.refuses:
            self.request.sendall(server.refuses)
            return b""
        if b"for look" in data and not server.is_isolated:
            self.request.sendall(b":%d\r\n" % (not server.has_written.wait(20)))
            return b""
        if b"$3\r\nSET\r\n" in data:
            server.has_written.set()
        return data


@pytest.fixture
def pretender(server, raw):
    with Pretender(server.socket) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()


async def take(api, url):
    async with api.client(url) as client, client.lock("a").acquire(timeout=20):
        pass


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            "rlec_version:7.22\r\ncrdt_slots:16384",
            "Active-Active of Redis Software cannot be used: each of its regions",
        ),
        ("mvcc_depth:0", "KeyDB cannot be used: active replicas"),
        ("kvrocks_version:2.12.0", "Kvrocks cannot be used: its scripts cannot ask"),
    ],
)
async def test_an_engine_that_cannot_work_is_refused_by_name(api, pretender, raw, info, said):
    pretender.info = f"{REDIS}\r\n{info}"
    with pytest.raises(ServerUnsupported, match=said):
        await take(api, pretender.url)
    assert not raw.keys()


@pytest.mark.parametrize("mode", ["redis_mode", "server_mode"])
async def test_a_sentinel_is_refused_with_the_url_of_its_service(api, pretender, raw, mode):
    pretender.info = f"{REDIS}\r\n{mode}:sentinel\r\nmaster0:name=main,status=ok,address=10.0.0.1:6379"
    place = pretender.url.removeprefix("redis://")
    with pytest.raises(ServerUnsupported, match=rf"at {place} is a Sentinel, .* redis\+sentinel://{place}/main$"):
        await take(api, f"{pretender.url}/1")
    assert not raw.keys()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("unknown command 'SELECT', with args beginning with: '1'", "if it is a Sentinel"),
        ("ERR SELECT is not allowed in cluster mode", "whole cluster: redis+cluster://host:port"),
        ("ERR unknown command `SENTINEL`, with args", "not a Sentinel; name it with redis://host:port"),
    ],
)
def test_what_refuses_a_handshake_is_named_as_what_it_is(error, said):
    refused = hello_refused(redis.ResponseError(error))
    assert isinstance(refused, ServerUnsupported)
    assert said in str(refused)
    assert hello_refused(redis.ResponseError("ERR DB index is out of range")) is None


@pytest.mark.parametrize("info", [REDIS, f"{REDIS}\r\nvalkey_version:9.1.2", f"{REDIS}\r\nrlec_version:7.22"])
async def test_a_known_engine_has_nothing_to_prove(api, pretender, info):
    pretender.info, pretender.is_isolated = info, False
    await take(api, pretender.url)
    assert not pretender.has_written.is_set()


@pytest.mark.parametrize("info", ["garnet_version:1.0.9", f"{REDIS}\r\nother_version:1", "os:Linux"])
async def test_an_engine_that_lets_others_write_while_a_script_runs_is_refused(api, pretender, info):
    pretender.info, pretender.is_isolated = info, False
    with pytest.raises(ServerUnsupported, match="lets others write while a script runs") as caught:
        await take(api, pretender.url)
    assert ("start it with --lua-transaction-mode" in str(caught.value)) == info.startswith("garnet")


@pytest.mark.parametrize("info", ["garnet_version:1.0.9", f"{REDIS}\r\nother_version:1"])
async def test_an_engine_that_runs_scripts_alone_proves_it_once(api, pretender, raw, info):
    pretender.info = info
    async with api.client(pretender.url) as client:
        async with client.lock("a").acquire(timeout=20):
            pass
        assert pretender.has_written.is_set()
        assert {one.topic for one in await client.check_server(timeout=20) if "tested on" in one.text} == {"server"}
        pretender.info, pretender.is_isolated = "mvcc_depth:0", False
        raw.client_kill_filter(_type="normal", skipme=True)
        async with client.lock("a").acquire(timeout=20):
            pass


async def test_an_engine_that_refuses_the_proof_is_refused(api, pretender):
    pretender.info, pretender.refuses = "other_version:1", b"-NOPERM this user has no permissions\r\n"
    with pytest.raises(ServerUnsupported, match=r"Other could not be asked whether .*no permissions"):
        await take(api, pretender.url)


async def test_a_user_who_may_not_ask_for_info_is_let_in(api, server, raw):
    raw.execute_command("ACL", "SETUSER", "mute", "reset", "on", ">x", "~*", "&*", "+@all", "-info")
    try:
        await take(api, server.url.replace("unix://", "unix://mute:x@"))
    finally:
        raw.execute_command("ACL", "DELUSER", "mute")


async def test_a_client_asks_for_info_once(api, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            for _ in range(2):
                async with client.lock("a").acquire(timeout=20):
                    pass
                proxy.cut()
        assert sum(map(command("INFO"), proxy.commands)) == 1


def test_the_script_of_the_proof_sees_no_write_of_others_on_a_real_server(server, raw):
    script, writes = isolation_proof("key")
    with redis.Redis.from_url(server.url) as one, redis.Redis.from_url(server.url) as other:
        first, second = one.connection_pool.make_connection(), other.connection_pool.make_connection()
        first.send_packed_command([script])
        second.send_packed_command(writes)
        assert first.read_response() == 1
        assert [second.read_response() for _ in writes] == [b"OK"] * len(writes)
    assert 0 < raw.pttl("key") <= 10_000
    assert len(set(writes)) == len(writes)


def test_the_script_of_the_proof_sees_a_write(raw):
    script, _ = isolation_proof("key")
    source = next(line for line in script.split(b"\r\n") if line.startswith(b"local")).decode()
    assert raw.eval(source.replace("do\n", "do redis.call('set', KEYS[1], look)\n"), 1, "key", 9) == 0


def test_a_server_is_called_by_its_name(raw):
    found = raw.info()
    name, version = (
        ("Valkey", found["valkey_version"]) if "valkey_version" in found else ("Redis", found["redis_version"])
    )
    assert product({key: str(value) for key, value in found.items()}) == f"{name} {version}"
    assert product({"redis_version": "7.2.4", "dragonfly_version": "df-v1.30.0"}) == "Dragonfly df-v1.30.0"
    assert identify({"upstash_version": "1.2"}).name == "Upstash"
    assert not identify({}).is_proven
    assert len({engine.sign for engine in ENGINES}) == len(ENGINES)


@pytest.mark.parametrize("library", [redis, redis.asyncio], ids=["sync", "asyncio"])
def test_a_client_of_several_databases_is_refused(library):
    module = pytest.importorskip(f"{library.__name__}.multidb.client")
    client = object.__new__(module.MultiDBClient)
    api = SYNC if library is redis else ASYNCIO
    with pytest.raises(ServerUnsupported, match="each would grant the same name"):
        api.client(client)
