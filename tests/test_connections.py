"""Ways to the server: passwords, databases, TLS, and what else a user's client was told."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from holdfast import Holdfast
from holdfast.drivers.embedded import PrivateServer
from tests.support import eventually


@pytest.fixture(scope="module")
def guarded():
    """A server that wants a password."""
    with PrivateServer() as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "s3cret")
        yield server


def use(hf):
    """Wait, renew, hand over: everything that needs a session."""
    lock = hf.lock("a", ttl=1.0)
    with lock as lease:
        lease.extend(2.0)
        assert lock.try_acquire() is None
        assert lock.locked()
    assert not lock.locked()


def test_a_password_in_the_url_or_in_the_client(guarded):
    with Holdfast(f"unix://:s3cret@{guarded.socket}") as hf:
        use(hf)
    with redis.Redis(unix_socket_path=guarded.socket, password="s3cret") as client, Holdfast(client) as hf:
        use(hf)
    with Holdfast(guarded.url) as hf, pytest.raises(redis.AuthenticationError):
        use(hf)


def test_a_database_of_its_own(server, raw):
    with Holdfast(f"{server.url}?db=3") as hf:
        use(hf)
        assert not hf.lock("a").locked()
    assert not list(raw.scan_iter())
    with redis.Redis.from_url(f"{server.url}?db=3") as third:
        assert all(key.startswith(b"{hf:lock:a}") for key in third.scan_iter())
        third.flushdb()


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
def test_what_a_client_was_told_does_no_harm(server, raw, options):
    with redis.Redis(unix_socket_path=server.socket, **options) as client, Holdfast(client) as hf:
        use(hf)
        client.ping()


def test_options_that_no_client_knows_are_refused_at_once(server):
    with pytest.raises(ValueError, match="not understood"):
        Holdfast("redis://127.0.0.1:1/0?nonsense=1")


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"tls-port": port, "tls-cert-file": folder / "cert", "tls-key-file": folder / "key"}
    options |= {"tls-ca-cert-file": folder / "cert", "tls-auth-clients": "no", "bind": "127.0.0.1"}
    before, os.environ["HOLDFAST_SERVER"] = os.environ.get("HOLDFAST_SERVER"), binary
    try:
        with PrivateServer(*(str(word) for key, value in options.items() for word in (f"--{key}", value))):
            yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={folder / 'cert'}"
    finally:
        del os.environ["HOLDFAST_SERVER"]
        if before is not None:
            os.environ["HOLDFAST_SERVER"] = before


def test_tls(tls):
    with Holdfast(tls) as hf, Holdfast(tls) as other:
        use(hf)
        lease = hf.lock("a").acquire()
        with pytest.raises(TimeoutError):
            other.lock("a").acquire(timeout=0.1)
        with ThreadPoolExecutor(1) as threads:
            waiter = threads.submit(lambda: other.lock("a").acquire(timeout=20))
            eventually(lambda: hf.lock("a").status().waiting)
            assert lease.release() is True
            assert waiter.result(20).release() is True
        for _ in range(50):
            use(other)
