"""Ways to the server, in both APIs: passwords, databases, TLS, Sentinel, and what else a user's client was told."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import redis

from handfast import ServerRefused, embedded
from handfast.acl import rights_for
from handfast.embedded import PrivateServer, supervisor
from tests._support.apis import until_queued
from tests._support.helpers import eventually, settled


async def use(client, ttl=1.0):
    """Wait, extend, hand over: everything that needs a session."""
    lock = client.lock("a", ttl=ttl)
    async with lock as lease:
        await lease.extend(2.0)
        assert await lock.try_acquire() is None
        assert await lock.locked()
        async with asyncio.TaskGroup() as tasks:
            waiter = tasks.create_task(take(lock))
            await until_queued(lock)
            assert await lease.release() is True
        assert waiter.result() > lease.fence
    assert not await lock.locked()


async def take(lock):
    async with lock.acquire(timeout=20) as lease:
        return lease.fence


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("missing", ["pubsub|numsub", "subscribe"])
async def test_the_error_of_a_user_who_may_not_hear_of_grants_names_the_missing_right(api, server, raw, missing):
    rules = [rule for rule in rights_for(["lock"]).rules() if rule != f"+{missing}"]
    raw.execute_command("ACL", "SETUSER", "deaf", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://deaf:x@")) as client:
            with pytest.raises(ServerRefused, match=rf"{re.escape(f'+{missing}')}.*`handfast acl`"):
                await client.lock("a").acquire()
    finally:
        raw.execute_command("ACL", "DELUSER", "deaf")


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


@pytest.mark.parametrize("wrong", ["", ":guess@"])
async def test_a_password_that_is_wrong_or_missing_fails_at_once(api, guarded, wrong):
    async with api.client(f"unix://{wrong}{guarded.socket}") as client:
        for ask in (client.lock("a").acquire, client.lock("a").try_acquire, client.lock("a").status):
            with pytest.raises(redis.AuthenticationError, match=r"already authenticated|invalid username-password"):
                await ask()


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


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server that speaks TLS, where there is a build of one that can: URL and certificate."""
    binary = shutil.which("redis-server")
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("needs a redis-server built with TLS, and openssl")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes", "-x509"]
    subprocess.run(
        ["openssl", "req", "-newkey", "rsa:2048", "-keyout", folder / "key", "-out", folder / "cert", *subject],
        check=True,
        capture_output=True,
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
    async with api.client(tls) as client, api.client(tls) as other:
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


@pytest.fixture
def home(monkeypatch):
    """Where the shared server of this test alone lives."""
    base = tempfile.mkdtemp(prefix="hf-", dir="/tmp")
    monkeypatch.setattr(embedded, "PLACE", base)
    path = f"{base}/handfast-{os.getuid()}/s"
    yield path
    if supervisor.answers(path):
        os.kill(supervisor.server_pid(path), signal.SIGKILL)
    shutil.rmtree(base)


async def test_the_shared_server_is_started_and_started_again(api, home):
    async with api.embedded(namespace="mine") as client:
        await use(client)
        pid = supervisor.server_pid(home)
        os.kill(pid, signal.SIGKILL)
        await use(client)
        assert supervisor.server_pid(home) != pid


# --- Sentinel


class Watched:
    """A primary, its replica, and the Sentinel that watches over them; each ends with this process at the latest."""

    name = "mymaster"

    def __init__(self, binary):
        self._binary = binary
        self._leashes = []
        self._folder = Path(tempfile.mkdtemp(prefix="hf-"))
        self.primary, self.replica, self.sentinel = (free_port() for _ in range(3))

    def start(self):
        """Start all three, and wait until they know each other."""
        self._start("--port", self.primary, "--repl-diskless-sync-delay", 0)
        self._start("--port", self.replica, "--replicaof", f"127.0.0.1 {self.primary}")
        with redis.Redis(port=self.replica) as client:
            eventually(lambda: answers(client) and client.info("replication")["master_link_status"] == "up")
        words = [f"port {self.sentinel}", "bind 127.0.0.1", f"dir {self._folder}"]
        words += [f"sentinel monitor {self.name} 127.0.0.1 {self.primary} 1"]
        words += [f"sentinel down-after-milliseconds {self.name} 300", f"sentinel failover-timeout {self.name} 2000"]
        (self._folder / "conf").write_text("\n".join(words) + "\n")
        # A leash gives a server options of its own, but a Sentinel has only its file.
        program = self._folder / "sentinel"
        program.write_text(f"#!/bin/sh\nexec {self._binary} {self._folder}/conf --sentinel\n")
        program.chmod(0o700)
        self._start(binary=str(program))
        with redis.Redis(port=self.sentinel, decode_responses=True) as client:
            eventually(lambda: answers(client) and client.sentinel_slaves(self.name))

    def kill_primary(self):
        self._leashes[0].end()

    def close(self):
        for server in self._leashes:
            server.end()
        shutil.rmtree(self._folder)

    def _start(self, *options, binary=None):
        folder = tempfile.mkdtemp(prefix="hf-")
        words = [str(word) for word in ("--bind", "127.0.0.1", *options)]
        self._leashes.append(supervisor.SupervisedServer(binary or self._binary, folder, *words, remove_dir=True))


def answers(client):
    try:
        return client.ping()
    except redis.ConnectionError:
        return False


@pytest.fixture
def watched():
    """A primary that a Sentinel watches over."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs a redis-server")
    watched = Watched(binary)
    try:
        watched.start()
        yield watched
    finally:
        watched.close()


@pytest.mark.slow
async def test_a_sentinels_primary_is_found_and_after_a_failover_the_new_one(api, watched):
    async with (
        api.users_sentinel(watched.sentinel) as sentinel,
        api.client(sentinel.master_for(watched.name)) as client,  # no other reference keeps it
    ):
        gc.collect()
        await use(client)
        async with client.lock("a") as lease:
            pass
        watched.kill_primary()
        assert await take(client.lock("a")) > lease.fence
        await use(client, ttl=10)
        with redis.Redis(port=watched.replica, decode_responses=True) as behind:
            assert behind.role()[0] == "master"
            assert list(behind.scan_iter("{hf:lock:a}*"))
