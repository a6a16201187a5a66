"""A Redis Cluster of three primaries on the loopback interface, each with a third of the slots."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Self

import redis

from handfast.embedded import PrivateServer
from handfast.errors import NoServer
from tests._support.helpers import eventually

SLOTS = 16384
NODES = 3
BUS = 10_000
"""Offset of a node's cluster bus port from its client port."""


class Cluster:
    """Runs inside its ``with`` block. ``nodes`` are clients of redis-py, one for each node."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._servers = [stack.enter_context(started()) for _ in range(NODES)]
            self.nodes = [stack.enter_context(redis.Redis.from_url(server.url)) for server in self._servers]
            self.ports = [int(node.config_get("port")["port"]) for node in self.nodes]
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self._stack.close()

    @property
    def address(self):
        """Return the address of the first node, as options of a cluster client."""
        return {"host": "127.0.0.1", "port": self.ports[0]}

    def calls(self):
        """Return for each node how often each command was called since `forget_calls`."""
        return [
            {name.removeprefix("cmdstat_"): found["calls"] for name, found in node.info("commandstats").items()}
            for node in self.nodes
        ]

    def forget_calls(self):
        for node in self.nodes:
            node.config_resetstat()

    def flush(self):
        """Delete all keys and scripts."""
        for node in self.nodes:
            node.flushall()
            node.script_flush()

    def number_of(self, key):
        """Return the number of the node that serves the key's slot."""
        return self._slot(key) * NODES // SLOTS

    def node_of(self, key):
        return self.nodes[self.number_of(key)]

    @contextlib.contextmanager
    def moved(self, key, *, to):
        """Move the empty slot of a key to the node of another key. Clients learn it only from a redirection."""
        old, new = self.node_of(key), self.node_of(to)
        self._give(self._slot(key), new, old)
        try:
            yield
        finally:
            self._give(self._slot(key), old, new)

    def _slot(self, key):
        return self.nodes[0].execute_command("CLUSTER KEYSLOT", key)

    def _give(self, slot, new, old):
        new.execute_command("CLUSTER BUMPEPOCH")  # or the third node keeps its older view
        name = new.execute_command("CLUSTER MYID")
        for node in (new, old):
            node.execute_command("CLUSTER SETSLOT", slot, "NODE", name)

    def _join(self):
        bounds = [-(-SLOTS * number // NODES) for number in range(NODES + 1)]
        for number, node in enumerate(self.nodes):
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.execute_command("CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
        for port in self.ports[1:]:
            self.nodes[0].execute_command("CLUSTER MEET", "127.0.0.1", port)
        eventually(lambda: all(knows_all(node) for node in self.nodes), within=30)


def knows_all(node):
    """Return whether the node sees every slot served."""
    shares = node.execute_command("CLUSTER SLOTS")
    return len(shares) == NODES and b"cluster_state:ok" in state_of(node.execute_command("CLUSTER INFO"))


def state_of(info):
    """Return the reply to CLUSTER INFO as text; newer versions of redis-py parse it."""
    return info if isinstance(info, bytes) else b"cluster_state:" + info["cluster_state"].encode()


def started():
    """Start a node on a port that is free together with its bus port."""
    for _ in range(20):
        port = random.randint(15_000, 32_000)  # below the ephemeral ports
        if not (is_free(port) and is_free(port + BUS)):
            continue
        options = ["--bind", "127.0.0.1", "--port", str(port), "--cluster-enabled", "yes"]
        with contextlib.suppress(NoServer):  # another process took the port
            return PrivateServer(*options, "--cluster-node-timeout", "5000")
    raise AssertionError("found no free port")


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
