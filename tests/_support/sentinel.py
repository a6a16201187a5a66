"""A primary, its replica, and a Sentinel that watches over them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import redis

from handfast.embedded import supervisor
from tests._support.helpers import eventually

__all__ = ["Watched", "free_port"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Watched:
    """A primary, its replica, and the Sentinel that watches over them; each ends with this process at the latest."""

    name, password = "mymaster", "s3cret"

    def __init__(self, binary):
        self._binary = binary
        self._leashes = []
        self._folder = Path(tempfile.mkdtemp(prefix="hf-"))
        self.primary, self.replica, self.sentinel = (free_port() for _ in range(3))

    def start(self):
        """Start all three, and wait until they know each other."""
        secret = ["--requirepass", self.password, "--masterauth", self.password]
        self._start("--port", self.primary, "--repl-diskless-sync-delay", 0, *secret)
        self._start("--port", self.replica, "--replicaof", "127.0.0.1", self.primary, *secret)
        with self.client(self.replica) as client:
            eventually(lambda: answers(client) and client.info("replication")["master_link_status"] == "up")
        words = [f"port {self.sentinel}", "bind 127.0.0.1", f"dir {self._folder}"]
        words += [f"sentinel monitor {self.name} 127.0.0.1 {self.primary} 1"]
        words += [f"sentinel down-after-milliseconds {self.name} 300", f"sentinel failover-timeout {self.name} 2000"]
        words += [f"sentinel auth-pass {self.name} {self.password}", f"requirepass {self.password}"]
        (self._folder / "conf").write_text("\n".join(words) + "\n")
        # A leash gives a server options of its own, but a Sentinel has only its file.
        program = self._folder / "sentinel"
        program.write_text(f"#!/bin/sh\nexec {self._binary} {self._folder}/conf --sentinel\n")
        program.chmod(0o700)
        self._start(binary=str(program))
        with self.client(self.sentinel) as client:
            eventually(lambda: answers(client) and client.sentinel_slaves(self.name))

    @property
    def url(self):
        """It names a Sentinel that is down, too."""
        sentinels = f"127.0.0.1:{free_port()},127.0.0.1:{self.sentinel}"
        options = f"sentinel_password={self.password}&socket_timeout=1"
        return f"redis+sentinel://:{self.password}@{sentinels}/{self.name}/1?{options}"

    def client(self, port):
        return redis.Redis(port=port, password=self.password, decode_responses=True)

    def kill_primary(self):
        self._leashes[0].end()

    def switch(self):
        """Make the replica the primary; the old one goes on. Return when the Sentinel names the new one."""
        with self.client(self.primary) as client:  # which sends nothing for up to a second after a replica is there
            client.set("last", "write", px=1000)
            assert client.wait(1, 10_000) == 1
        with self.client(self.sentinel) as client:
            eventually(lambda: begins(client, self.name))
            eventually(lambda: client.sentinel_get_master_addr_by_name(self.name)[1] == self.replica)

    def watching(self):
        """Return the connections that the Sentinel tells of a new primary."""
        with self.client(self.sentinel) as client:
            return [one["id"] for one in client.client_list() if one["sub"] != "0" and one["user"] == "default"]

    @contextlib.contextmanager
    def stopped(self):
        """Stop the Sentinel for a while: it answers nothing."""
        with self.client(self.sentinel) as client:
            pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

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


def begins(sentinel, name):
    """Begin a failover, and return whether it has begun: the Sentinel may not know the replica yet."""
    try:
        return sentinel.execute_command("SENTINEL", "FAILOVER", name)
    except redis.ResponseError:
        return False
