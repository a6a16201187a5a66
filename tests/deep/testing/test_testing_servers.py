"""The server controller: a server that is killed, paused, emptied or delayed on command, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis

from handfast import NoServer
from handfast.testing import ServerController
from tests._support.helpers import eventually


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def own():
    """A server shared by the tests that do not change it."""
    with ServerController() as server:
        yield server


@pytest.fixture
def steady(own):
    own.admin.flushall()
    return own


def fill(server, count=300):
    pipe = server.admin.pipeline(transaction=False)
    for number in range(count):
        pipe.set(f"k{number}", "x" * 100, ex=1000)
    pipe.execute()


# --- process


def test_server_serves_and_leaves_nothing_after_close():
    threads = threading.active_count()
    with ServerController("--maxclients", "50") as server:
        pid, folder = server.pid, Path(server.socket).parent
        assert alive(pid)
        assert server.running
        assert server.admin.config_get("maxclients") == {"maxclients": "50"}
        assert folder.stat().st_mode & 0o077 == 0
        assert str(pid) in repr(server)
    server.close()
    assert not server.running
    assert not alive(pid)
    assert not folder.exists()
    assert threading.active_count() == threads
    with pytest.raises(RuntimeError, match="closed"):
        server.restart()


def test_restart_serves_empty_at_the_same_url():
    with ServerController() as server, redis.Redis.from_url(server.url) as client:
        client.set("k", "v")
        url, pid = server.url, server.pid
        server.kill()
        assert not server.running
        assert server.pid == 0
        assert not alive(pid)
        with pytest.raises(redis.ConnectionError):
            client.get("k")
        with pytest.raises(redis.ConnectionError):
            server.admin.get("k")
        server.restart()
        assert (server.url, server.admin.get("k"), client.get("k")) == (url, None, None)
        assert server.pid != pid


def test_persistent_server_keeps_or_drops_its_data():
    with ServerController(persistent=True) as server:
        for round_ in range(3):
            server.admin.rpush("all", round_)
            server.kill()
            server.restart(keep_data=True)
            assert server.admin.lrange("all", 0, -1) == [str(number) for number in range(round_ + 1)]
        server.kill()
        server.restart()
        assert server.admin.dbsize() == 0
        server.admin.set("k", "v")
        server.kill()
        server.restart(keep_data=True)
        assert server.admin.get("k") == "v", "the server is still persistent"


def test_server_that_ended_can_be_restarted():
    with ServerController() as server:
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.running)
        server.restart()
        assert server.admin.ping()


def test_misuse_is_refused(steady):
    with pytest.raises(RuntimeError, match=r"kill\(\) it before"):
        steady.restart()
    with pytest.raises(ValueError, match="persistent=True"):
        steady.restart(keep_data=True)
    for verb in (steady.freeze, steady.thaw, steady.promote, steady.catch_up):
        with pytest.raises(RuntimeError, match="is not a replica"):
            verb()
    with pytest.raises(ValueError, match="'normal' or 'pubsub'"):
        steady.kill_clients("replica")
    with pytest.raises(ValueError, match="more than 0"):
        steady.flushing_scripts(every=0).__enter__()
    with pytest.raises(ValueError, match="at least 1 byte"):
        steady.out_of_memory(limit=0).__enter__()
    with ServerController() as server:
        server.kill()
        for verb in (server.kill, server.pause, server.resume, server.replica):
            with pytest.raises(RuntimeError, match="does not run"):
                verb()


def test_program_that_is_not_a_server_is_refused(tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("#!/bin/sh\nexit 3\n")
    wrong.chmod(0o700)
    with pytest.raises(NoServer, match="ended as soon as it was started"):
        ServerController(binary=str(wrong))


def test_paused_server_executes_commands_after_resume(steady):
    with redis.Redis.from_url(steady.url, socket_timeout=0.05) as client:
        client.ping()
        with steady.paused():
            with pytest.raises(redis.TimeoutError):
                client.execute_command("SET", "k", "v")
            assert steady.running
        assert eventually(lambda: steady.admin.get("k")) == "v"


def test_paused_server_can_be_killed_and_closed():
    with ServerController() as server:
        with server.paused():
            server.kill()
        server.restart()
        server.pause()
        pid = server.pid
    assert not alive(pid)


ORPHANED = """
import sys
from handfast.testing import ServerController
server = ServerController()
print(server.pid, server.socket, flush=True)
sys.stdin.read()
"""


def test_server_ends_with_its_process_after_sigkill():
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHANED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pid, path = process.stdout.readline().split()
    assert alive(int(pid))
    process.kill()
    process.communicate()
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(path).parent.exists())


# --- its state


def test_flushing_scripts_flushes_repeatedly(steady):
    digest = steady.admin.script_load("return 1")
    with steady.flushing_scripts(every=0.001):
        eventually(lambda: steady.admin.script_exists(digest) == [False])
        assert steady.admin.script_load("return 1") == digest
        eventually(lambda: steady.admin.script_exists(digest) == [False])
    steady.admin.script_load("return 1")
    time.sleep(0.01)
    assert steady.admin.script_exists(digest) == [True]


def test_out_of_memory_refuses_writes_and_restores_the_limit(steady):
    fill(steady)
    with steady.out_of_memory():
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            steady.admin.set("more", "x")
        assert steady.admin.dbsize() == 300
        assert steady.admin.delete("k0") == 1
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            steady.admin.set("more", "x")
    assert steady.admin.set("more", "x") is True
    assert steady.admin.config_get("maxmemory") == {"maxmemory": "0"}


@pytest.mark.parametrize("policy", ["allkeys-random", "volatile-lru", "volatile-ttl"])
def test_out_of_memory_evicts_keys_with_another_policy(steady, policy):
    before = steady.admin.config_get("maxmemory*")
    fill(steady)
    with steady.out_of_memory(policy=policy):
        assert steady.admin.dbsize() < 300
        steady.admin.set("more", "x")
    assert steady.admin.config_get("maxmemory*") == before


def test_out_of_memory_takes_a_limit(steady):
    with steady.out_of_memory(limit=10**9):
        assert steady.admin.config_get("maxmemory") == {"maxmemory": "1000000000"}


@pytest.mark.parametrize("trouble", ["out_of_memory", "flushing_scripts"])
def test_server_may_be_killed_while_out_of_memory(trouble):
    with ServerController() as server:
        with getattr(server, trouble)():
            server.kill()
        server.restart()
        assert server.admin.set("k", "v")


def test_kill_clients_closes_connections_by_kind(steady):
    with redis.Redis.from_url(steady.url) as plain, redis.Redis.from_url(steady.url) as other:
        plain.ping()
        subscriber = other.pubsub()
        subscriber.subscribe("a")
        assert subscriber.get_message(timeout=5)["type"] == "subscribe"

        def connected():
            return [client["cmd"] for client in steady.admin.client_list() if client["cmd"] in {"ping", "subscribe"}]

        assert sorted(connected()) == ["ping", "subscribe"]
        assert steady.kill_clients("pubsub") == 1
        eventually(lambda: connected() == ["ping"])
        assert steady.kill_clients("normal") >= 1
        eventually(lambda: connected() == [])
        plain.ping()
        assert steady.kill_clients() >= 1
        eventually(lambda: connected() == [])
        assert steady.admin.ping()
        subscriber.close()


# --- its replicas


def test_replica_follows_freezes_thaws_and_is_promoted():
    with ServerController() as primary, primary.replica() as replica:
        primary.admin.set("k", "1")
        replica.catch_up()
        assert replica.admin.get("k") == "1"
        with pytest.raises(redis.ReadOnlyError):
            replica.admin.set("k", "mine")

        replica.freeze()
        primary.admin.set("k", "2")
        assert replica.admin.get("k") == "1"
        with pytest.raises(redis.ReadOnlyError):
            replica.admin.set("k", "mine")
        replica.thaw()
        assert replica.admin.get("k") == "2"

        replica.freeze()
        primary.admin.set("k", "3")
        primary.kill()
        replica.promote()
        assert replica.admin.get("k") == "2", "data that was not replicated is lost"
        assert replica.admin.set("k", "mine")
        with pytest.raises(RuntimeError, match="is not a replica"):
            replica.promote()


def test_replica_listens_on_loopback_and_is_closed_with_its_primary():
    with ServerController() as server:
        assert server.admin.config_get("port") == {"port": "0"}
        server.kill()
        server.restart()
        replica = server.replica()
        pid = replica.pid
        assert replica.admin.config_get("port") == {"port": "0"}
        for one in (server, replica):
            assert one.admin.config_get("bind") == {"bind": "127.0.0.1"}
    assert not alive(pid)
    assert not Path(replica.socket).parent.exists()
