"""Ways to the server, in both APIs: passwords, databases, TLS, Sentinel, and what else a user's client was told."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest
import redis

import handfast
from handfast import ServerRefused, ServerUnsupported
from handfast._drivers.addresses import pool_of_url, seeds_of_url, sentinels_of
from handfast.acl import rights_for
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, script
from tests._support.apis import ASYNCIO, SYNC, take, until_queued, use
from tests._support.engine import Engine
from tests._support.helpers import BOUND_S, eventually_async, settled
from tests._support.sentinel import free_port

# --- an existing client


@pytest.mark.parametrize("decode", [True, False])
async def test_an_existing_client_serves_as_it_is(api, server, raw, decode):
    async with api.users_client(unix_socket_path=server.socket, decode_responses=decode) as mine:
        async with api.client(mine) as client:
            await use(client)
        assert await settled(mine.ping())


@pytest.mark.parametrize(
    "options",
    [
        {"protocol": 2},
        {"health_check_interval": 1, "client_name": "mine"},
        {"socket_timeout": 2, "max_connections": 1},
        {"encoding": "latin-1", "decode_responses": True},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_the_settings_of_a_client_do_no_harm(api, server, raw, options):
    async with api.users_client(unix_socket_path=server.socket, **options) as mine, api.client(mine) as client:
        await use(client)
        assert await settled(mine.ping())


async def test_the_client_name_is_kept(api, server, raw):
    async with api.users_client(unix_socket_path=server.socket, client_name="mine") as mine:
        async with api.client(mine) as client:
            await use(client)
            assert "mine" in {found["name"] for found in raw.client_list()}


async def test_a_connection_tells_the_server_whose_it_is(api, server, raw):
    async with api.client(server.url) as client:
        await use(client)
        names = {found.get("lib-name") for found in raw.client_list()}
    assert f"redis-py(handfast_v{handfast.__version__})" in names or raw.info()["redis_version"] < "7.2"


# --- URLs and clients of other kinds


@pytest.mark.parametrize("around", [" {}", "\n\t{}\n", "\ufeff{}", "\u00a0{} "])
async def test_blanks_around_a_url_do_not_count(api, server, raw, around):
    async with api.client(around.format(server.url)) as client:
        await use(client)


def test_blanks_around_the_commas_of_a_url_do_not_count():
    url = " redis+cluster://:pass word@here:1 , there:2,\u00a0 else:3/0 "
    assert seeds_of_url(url) == [("here", 1), ("there", 2), ("else", 3)]
    assert pool_of_url(url, redis).connection_kwargs["password"] == "pass word"
    sentinels = sentinels_of(pool_of_url("redis+sentinel://here:1 , there:2/mine", redis))
    assert [one.connection_pool.connection_kwargs["host"] for one in sentinels] == ["here", "there"]


async def test_a_client_of_valkey_py_serves_as_it_is(api, server, raw):
    library = pytest.importorskip("valkey")
    kind = library.Valkey if api is SYNC else library.asyncio.Valkey
    mine = kind(unix_socket_path=server.socket, decode_responses=True)
    async with api.client(mine) as client:
        await use(client)
    assert await settled(mine.ping())
    await settled(mine.close() if api is SYNC else mine.aclose())


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_urls_of_redis_and_of_valkey_mean_the_same(api, server, raw, scheme):
    port = free_port()
    raw.config_set("port", port)
    try:
        async with api.client(f"{scheme}://127.0.0.1:{port}/0") as client:
            await use(client)
    finally:
        raw.config_set("port", 0)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "http://:s3cret@here",
            r"'http://...@here' is wrong: its scheme must be one of redis, rediss, valkey, valkeys, unix, redis.sentinel",
        ),
        ("localhost:6379", "must begin with a scheme and two slashes, as in redis://localhost:6379$"),
        ("redis:/localhost", "'redis:/localhost' is wrong: .* as in redis://localhost$"),
        ("rediss//bob:s3cret@here:7199/0", "'...@here:7199/0' is wrong: .* as in rediss://here:7199/0$"),
        ("redis;//bob:s3cret@here", "'...@here' is wrong: .* as in redis://here$"),
        ("bob:s3cret@here:6379", "'...@here:6379' is wrong: .* as in redis://here:6379$"),
        ("redis:bob:s3cret@here", "as in redis://here$"),
        ("//bob:s3cret@here", "as in redis://here$"),
        ("s3cret@s3cret@here", "as in redis://here$"),
        ("unix:/bob:s3cret@/tmp/here", "as in unix:///path/to/socket$"),
        ("redis://bob:s3cret\u2100@here", "must be quoted"),
        ("redis://bob:s3cret[@here", "is wrong"),
        ("redis://:s3cret", "'redis://...' is wrong: it must name a host behind the password"),
        ("redis://here/0?password=s3cret@s3cret", "'redis://...' is wrong"),
        ("redis://bob:s3cret @he re", "'redis://...@he re' is wrong: it has a blank in it"),
        ("redis+sentinel://:s3cret@here:1, there:2/my master", "it has a blank in it"),
        ("redis://bob:s3\tcret@here", "control character"),
        ("redis+sentinel://here:26379", "must name Sentinels and a service"),
        ("redis+sentinel:///mymaster", "must name Sentinels and a service"),
        ("redis+cluster:///", "must name nodes"),
        ("redis+cluster://here:7000/1?db=2", "it names two databases"),
        ("redis+cluster://here:7000/one", "the database must be a number from 0 on, .* not 'one'"),
        ("redis+other://here", "its scheme must be"),
        ("unix+sentinel://here/mymaster", "its scheme must be"),
        ("redis://:s3cret@here:port", r"'redis://...@here:port' is wrong"),
        ("redis+sentinel://here:port/mymaster", "is wrong: Port could not be cast"),
        ("redis://here/RedisDatabase.LOCKS", "the database must be a number from 0 on, .* not 'RedisDatabase.LOCKS'"),
        ("redis://here/$REDIS_DB", "the database must be a number"),
        ("redis://here//2", "the database must be a number"),
        ("valkeys://here/0/1", "the database must be a number"),
        ("redis://here/-1", "the database must be a number"),
        ("redis://here?db=-1", "the database must be a number from 0 on"),
        ("redis://here?db=x", "the database must be a number from 0 on, .* not 'x'"),
        ("unix:///tmp/here?db=x", "the database must be a number from 0 on, .* not 'x'"),
        ("redis+cluster://here?db=x", "the database must be a number from 0 on, .* not 'x'"),
        ("redis+sentinel://here/mymaster?db=x", "the database must be a number from 0 on, .* not 'x'"),
        ("redis://here/1?db=2", "it names two databases"),
        ("redis+sentinel://here/mymaster/zero", "the database must be a number"),
        ("redis+sentinel://here/mymaster/0/1", "the database must be a number"),
        ("redis+sentinel://here/mymaster?db=-1", "the database must be a number from 0 on"),
        ("redis://:s3cr#s3cret@here", "must be quoted"),
        ("redis://:s3cr/s3cret@here", "must be quoted"),
        ("redis://:s3cr?s3cret@here", "must be quoted"),
        ("redis+sentinel://:s3cr/s3cret@here/mymaster", "must be quoted"),
        ("rediss://here?ssl_cert_reqs=CERT_SOMETIMES", "Invalid SSL Certificate Requirements"),
        ("redis://here?socket_timeout=-1", "socket_timeout must be a finite number of seconds from 0 on"),
        ("redis://here?socket_connect_timeout=nan", "socket_connect_timeout must be a finite number"),
        ("redis+cluster://here?socket_timeout=inf", "socket_timeout must be a finite number"),
    ],
)
def test_a_wrong_url_is_refused_at_once_and_shown_without_its_secrets(api, url, said):
    with pytest.raises(ValueError, match=said) as refused:
        api.client(url)
    assert "s3cret" not in str(refused.value)


async def test_a_sentinel_has_a_second_to_answer_and_all_together_have_the_callers_time(api):
    """One whose machine is gone does not refuse: the next one is asked soon."""

    def limits(within=inf):
        pools = connector._pools_of_sentinels(within)
        return [(pool.connection_kwargs["socket_timeout"], pool.make_connection().socket_timeout) for pool in pools]

    connector = api.client("redis+sentinel://one,two/mymaster")._driver._connector
    assert limits() == [(1, 1)] * 2
    assert limits(0.5) == [(0.25, 0.25)] * 2
    assert limits(60) == [(1, 1)] * 2
    connector = api.client("redis+sentinel://one,two/mymaster?socket_timeout=3")._driver._connector
    assert limits() == [(3, 3)] * 2
    assert limits(2) == [(1, 1)] * 2


async def test_the_sentinel_that_answered_last_is_asked_first_by_all(api):
    connector = api.client("redis+sentinel://one,two,three/mymaster")._driver._connector
    connector._answering = "two:26379"
    assert [one.address for one in connector.sentinels()] == [
        f"redis://{name}:26379/0" for name in ("two", "one", "three")
    ]


@pytest.mark.parametrize("reqs", ["CERT_NONE", "cert_optional", "CERT_REQUIRED", "none", "required"])
def test_a_url_of_celery_is_understood(api, reqs):
    """It has the names of Python's ssl."""
    kept = api.client(f"rediss://here?ssl_cert_reqs={reqs}")._driver._connector._settings["ssl_cert_reqs"]
    assert kept == reqs.lower().removeprefix("cert_")


def test_a_wrong_kind_of_server_is_refused_with_the_kinds_that_work(api, server):
    mine = api.library.Redis(unix_socket_path=server.socket)
    other = (redis.asyncio if api is SYNC else redis).Redis(unix_socket_path=server.socket)
    for wrong, said in (
        (5, "must be a URL, a .*Redis, the same of valkey-py, a .*RedisCluster, or None, not 5"),
        (mine.pipeline(), "not a pipeline"),
        (other, "needs (Async)?Handfast"),
    ):
        with pytest.raises(TypeError, match=said):
            api.client(wrong)


def test_fakeredis_is_refused_with_what_to_use(api):
    fakeredis = pytest.importorskip("fakeredis")
    mine = fakeredis.FakeRedis() if api is SYNC else fakeredis.FakeAsyncRedis()
    with pytest.raises(ServerUnsupported, match="ServerController"):
        api.client(mine)


def test_unknown_options_are_refused_at_once(api):
    with pytest.raises(ValueError, match="settings are not valid"):
        api.client("redis://127.0.0.1:1/0?nonsense=1")


# --- passwords and databases


@pytest.fixture(scope="module")
def guarded():
    """A server that wants a password."""
    with PrivateServer() as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "s3cret")
        yield server


async def test_a_password_in_the_url_or_in_the_client(api, guarded):
    async with api.client(f"unix://:s3cret@{guarded.socket}") as client:
        await use(client)
    async with api.users_client(unix_socket_path=guarded.socket, password="s3cret") as mine:
        async with api.client(mine) as client:
            await use(client)


@pytest.mark.parametrize(
    ("wrong", "said"), [("", "the server wants a password"), (":guess@", "invalid username-password")]
)
async def test_a_password_that_is_wrong_or_missing_fails_at_once(api, guarded, wrong, said):
    async with api.client(f"unix://{wrong}{guarded.socket}") as client:
        for ask in (client.lock("a").acquire, client.lock("a").try_acquire, client.lock("a").status):
            with pytest.raises(redis.AuthenticationError, match=f"cannot use unix://{guarded.socket}.db=0: {said}"):
                await ask()


@pytest.mark.parametrize(
    ("variable", "passed"),
    [("HANDFAST_URL", False), ("REDIS_URL", False), ("HANDFAST_URL", True), ("REDIS_URL", True), (None, True)],
)
async def test_an_error_names_the_server_and_where_its_address_is_from(api, monkeypatch, variable, passed):
    url = "redis://web:s3cret@127.0.0.1:1/3"
    monkeypatch.setenv("HANDFAST_URL", "")
    monkeypatch.delenv("REDIS_URL", raising=False)
    if variable:
        monkeypatch.setenv(variable, url)
    found_in = rf" \(the URL in \${variable}\)" if variable else ""
    async with api.client(url if passed else None) as client:
        lock = client.lock("a")
        for ask in (lock.acquire, lock.try_acquire, lock.status, lock.locked, client.limiter("l", "1/s").acquire):
            with pytest.raises(
                redis.ConnectionError, match=f"^cannot use redis://web@127.0.0.1:1/3{found_in}: "
            ) as caught:
                await ask()
            assert "s3cret" not in str(caught.value)
            assert str(caught.value).count("cannot use") == 1


async def test_an_error_of_a_server_that_is_gone_names_it(api):
    with PrivateServer() as server:
        async with api.client(server.url) as client:
            await client.lock("a").locked()
            server.close()
            for ask in (client.lock("a").locked, client.lock("a").status, client.check_server):
                with pytest.raises(redis.ConnectionError, match=f"^cannot use unix://{server.socket}"):
                    await ask()


async def test_what_was_never_sent_needs_no_cleanup(api, server, raw, caplog):
    """The session is refused when it is opened, so nothing was asked of the server."""
    rules = [rule for rule in rights_for(["lock", "limiter"]).rules() if rule != "+subscribe"]
    raw.execute_command("ACL", "SETUSER", "deaf", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://deaf:x@")) as client:
            limiter = client.limiter("l", "1/s")
            for ask in (client.lock("a").acquire, client.lock("a").try_acquire, limiter.acquire, limiter.try_acquire):
                with pytest.raises(ServerRefused, match=r"\+subscribe"):
                    await ask()
            with pytest.raises(ServerRefused, match=r"\+subscribe"):
                await client.check_server()
    finally:
        raw.execute_command("ACL", "DELUSER", "deaf")
    with PrivateServer("--port", str(port := free_port()), "--bind", "127.0.0.1"):
        async with api.client(f"redis+cluster://127.0.0.1:{port}") as client:
            with pytest.raises(ServerUnsupported, match="not part of a cluster"):
                await client.lock("a").acquire()
    assert not [record for record in caplog.records if record.name == "handfast.cleanup"]


async def test_what_may_have_run_is_undone_though_the_next_connection_is_refused(api, server, raw):
    """The reply to the acquire is lost, and the user may not subscribe any more when the client connects again."""
    raw.execute_command("ACL", "SETUSER", "deaf", "reset", "on", ">x", *rights_for(["lock"]).rules())
    try:
        with FaultProxy(server.url) as proxy:
            async with api.client(proxy.url.replace("unix://", "unix://deaf:x@")) as client:
                await client.lock("b").locked()
                proxy.before(
                    script("permit_acquire"), lambda _: raw.execute_command("ACL", "SETUSER", "deaf", "-subscribe")
                )
                proxy.lose_reply(script("permit_acquire"))
                asking = asyncio.ensure_future(client.lock("a", ttl=600).acquire())
                await eventually_async(
                    lambda: [c.name for c in proxy.commands].count("SUBSCRIBE") > 2
                )  # the second was refused
                assert Engine(raw, "a").holders()
                raw.execute_command("ACL", "SETUSER", "deaf", "+subscribe")
                with pytest.raises(ServerRefused, match=r"\+subscribe"):
                    await asking
                await eventually_async(lambda: not Engine(raw, "a").holders())
    finally:
        raw.execute_command("ACL", "DELUSER", "deaf")


# --- credentials that change


class Provider(redis.CredentialProvider):
    """Gives the password of a user, or what else a test has it do, once: the next connection gets the password again."""

    def __init__(self, raw, server):
        self._raw, self._path = raw, server.socket
        self.asked, self.instead = 0, []
        self.rotate(cut=False)

    def get_credentials(self):
        self.asked += 1
        if self.instead:
            given = self.instead.pop(0)
            if isinstance(given, Exception):
                raise given
            return given
        return "worker", self.password

    async def get_credentials_async(self):
        return self.get_credentials()

    def rotate(self, *, cut=True):
        """Give the user a new password, and cut its connections off, as services do when a token has ended."""
        self.password = f"p{secrets.token_hex(8)}"
        self._raw.execute_command(
            "ACL", "SETUSER", "worker", "reset", "on", f">{self.password}", "~*", "&*", "+@all", "-@admin"
        )
        if cut:
            self._raw.execute_command("CLIENT", "KILL", "USER", "worker")


@pytest.fixture
def provider(raw, server):
    yield Provider(raw, server)
    raw.execute_command("ACL", "DELUSER", "worker")


WRONG = {
    "an old token": lambda: ("worker", "ended"),
    "an error of its own": lambda: LookupError("the metadata service is gone"),
    "an error of its network": lambda: OSError(101, "Network is unreachable"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_credentials_that_are_refused_once_throw_no_one_out(api, server, raw, provider, wrong):
    """The holder keeps its lease, the waiter its place: a token of fifteen minutes may end at any moment."""
    async with api.users_client(unix_socket_path=server.socket, credential_provider=provider) as mine:
        async with api.client(mine, retry_for=BOUND_S) as client:
            lease = await client.lock("a").acquire()
            waiter = asyncio.create_task(take(client.lock("a")))
            await until_queued(client.lock("a"))
            [before] = Engine(raw).queue()
            asked = provider.asked
            provider.instead += [WRONG[wrong]() for _ in range(3)]
            provider.rotate()
            async with client.lock("b").acquire(timeout=20):
                pass
            await eventually_async(lambda: provider.asked > asked + 3)
            await until_queued(client.lock("a"))
            assert Engine(raw).queue() == [before]
            assert await lease.release() is True
            assert await waiter > lease.fence


@pytest.mark.parametrize("wrong", WRONG)
async def test_credentials_that_were_never_let_in_fail_at_once(api, server, provider, wrong):
    async with api.users_client(unix_socket_path=server.socket, credential_provider=provider) as mine:
        async with api.client(mine, retry_for=3600) as client:
            provider.instead += [WRONG[wrong]() for _ in range(2)]
            # redis-py's asyncio connection calls each OSError one of its own network.
            kind = redis.ConnectionError if wrong == "an error of its network" else redis.AuthenticationError
            with pytest.raises(kind, match=None if wrong == "an old token" else WRONG[wrong]().args[-1]):
                await client.lock("a").acquire()


async def test_credentials_that_stay_refused_take_as_long_as_the_caller_allows(api, server, provider):
    async with api.users_client(unix_socket_path=server.socket, credential_provider=provider) as mine:
        async with api.client(mine, retry_for=0.1) as client:
            await use(client)
            provider.instead += [("worker", "ended")] * 1000
            provider.rotate()
            with pytest.raises(redis.AuthenticationError):
                await client.lock("a").acquire()
            provider.instead.clear()
            await use(client)


@pytest.fixture
async def full_executor():
    """The default executor of the loop has one thread, and a job that does not end."""
    executor, over = ThreadPoolExecutor(1), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(executor)
    job = loop.run_in_executor(None, over.wait)
    yield job
    over.set()
    await job


class Blocking(redis.CredentialProvider):
    """A provider that has no form for asyncio, and says so when it is asked in the thread of the loop."""

    def __init__(self):
        self.loops_thread, self.asked = threading.get_ident(), 0

    def get_credentials(self):
        assert threading.get_ident() != self.loops_thread
        self.asked += 1
        return "slow", "secret"


async def test_names_are_resolved_apart_from_the_programs_own_jobs(server, raw, full_executor):
    port = free_port()
    raw.config_set("port", port)
    try:
        async with ASYNCIO.client(f"redis://localhost:{port}") as client:
            await use(client)
            raw.client_kill_filter(_type="pubsub")
            async with client.lock("b").acquire(timeout=20):
                assert not full_executor.done()
    finally:
        raw.config_set("port", 0)
    with pytest.raises(redis.ConnectionError, match=r"nowhere\.invalid"):
        async with ASYNCIO.client("redis://nowhere.invalid") as client:
            await use(client)


@pytest.mark.skipif(
    not hasattr(redis.CredentialProvider, "get_credentials_async"), reason="this redis-py calls it in the loop's thread"
)
async def test_a_provider_without_a_form_for_asyncio_blocks_no_loop(server, raw, full_executor):
    provider = Blocking()
    raw.execute_command("ACL", "SETUSER", "slow", "reset", "on", ">secret", "~*", "&*", "+@all")
    try:
        async with ASYNCIO.users_client(unix_socket_path=server.socket, credential_provider=provider) as mine:
            async with ASYNCIO.client(mine) as client:
                await use(client)
        assert provider.asked
        assert not full_executor.done()
    finally:
        raw.execute_command("ACL", "DELUSER", "slow")


async def test_what_the_users_own_code_raises_while_it_connects_is_a_broken_connection(api, server, raw):
    failures = []

    class Own(api.library.UnixDomainSocketConnection):
        def _connect(self):
            if failures:
                raise failures.pop()
            return super()._connect()

    async with api.users_client(
        connection_pool=api.library.ConnectionPool(connection_class=Own, path=server.socket)
    ) as mine:
        async with api.client(mine) as client:
            failures.append(LookupError("no session"))
            with pytest.raises(redis.ConnectionError, match="could not be set up: LookupError: no session"):
                await client.lock("a").acquire()
            await use(client)


async def test_a_database_of_its_own(api, server, raw):
    async with api.client(f"{server.url}?db=3") as client:
        await use(client)
        assert not await client.lock("a").locked()
    assert not list(raw.scan_iter())
    with redis.Redis.from_url(f"{server.url}?db=3") as third:
        found = list(third.scan_iter())
        third.flushdb()
    assert found
    assert all(key.startswith(b"{hf:lock:a}") for key in found)


# --- TLS


@pytest.mark.parametrize(("scheme", "advised"), [("redis", "rediss://"), ("redis+cluster", "rediss+cluster://")])
async def test_a_plain_url_of_a_port_that_hangs_up_like_one_with_tls_gets_a_hint(api, scheme, advised):
    """A server with TLS takes HELLO for a broken handshake, and resets the connection."""

    async def hang_up(_, writer):
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1") as peer:
        url = f"{scheme}://127.0.0.1:{peer.sockets[0].getsockname()[1]}"
        async with api.client(url) as client:
            with pytest.raises(
                redis.ConnectionError, match=f"if the server speaks TLS, its URL begins with {re.escape(advised)}"
            ):
                await client.lock("a").try_acquire()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "rediss://127.0.0.1:1"])
async def test_a_refused_connection_gets_no_hint_at_tls(api, url):
    async with api.client(url) as client:
        with pytest.raises(redis.ConnectionError) as refused:
            await client.lock("a").try_acquire()
    assert "TLS" not in str(refused.value)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server that speaks TLS, where there is a build of one that can: URL and certificate."""
    binary = shutil.which("redis-server")
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("needs a redis-server built with TLS, and openssl")
    folder = tmp_path_factory.mktemp("tls")
    subject = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-days",
        "2",
        "-nodes",
        "-x509",
    ]
    subprocess.run(
        ["openssl", "req", "-newkey", "rsa:2048", "-keyout", folder / "key", "-out", folder / "cert", *subject],
        check=True,
        capture_output=True,
        timeout=30,
    )
    port = free_port()
    options = {"tls-port": port, "tls-cert-file": folder / "cert", "tls-key-file": folder / "key"}
    options |= {"tls-ca-cert-file": folder / "cert", "tls-auth-clients": "no", "bind": "127.0.0.1"}
    before, os.environ["HANDFAST_SERVER"] = os.environ.get("HANDFAST_SERVER"), binary
    try:
        with PrivateServer(*(str(word) for key, value in options.items() for word in (f"--{key}", value))):
            yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={folder / 'cert'}"
    finally:
        del os.environ["HANDFAST_SERVER"]
        if before is not None:
            os.environ["HANDFAST_SERVER"] = before


async def test_tls(api, tls):
    by_name = tls.replace("127.0.0.1", "localhost") + "&ssl_check_hostname=true"
    async with api.client(tls) as client, api.client(by_name) as other:
        await use(client)
        lease = await client.lock("a").acquire()
        with pytest.raises(TimeoutError):
            await other.lock("a").acquire(timeout=0.1)
        async with asyncio.TaskGroup() as tasks:
            waiter = tasks.create_task(take(other.lock("a")))
            await until_queued(client.lock("a"))
            assert await lease.release() is True
        assert waiter.result() > lease.fence
        for _ in range(20):
            await use(other)


async def test_a_certificate_that_is_not_trusted_is_an_error_of_the_network(api, tls):
    async with api.client(tls.partition("?")[0]) as client:
        with pytest.raises(redis.ConnectionError, match=r"(?i)certificate"):
            await client.lock("a").acquire(timeout=5)


# --- embedded


async def test_sentinels_that_name_no_primary_are_shown_by_their_addresses(api):
    ports = free_port(), free_port()
    sentinels = ",".join(f"127.0.0.1:{port}" for port in ports)
    async with api.client(f"redis+sentinel://:secret@{sentinels}/mymaster") as client:
        with pytest.raises(redis.ConnectionError, match="'mymaster'") as failed:
            await client.lock("a").try_acquire()
    message = str(failed.value)
    assert all(f"127.0.0.1:{port}" in message for port in ports)
    assert len(message) < 400
    assert not re.search("secret|password|ConnectionPool", message)
