"""A cluster of three nodes on the loopback, for the tests of a module. Each node has a third of the slots, none a replica."""

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
"""How far above a node's port the one lies at which the nodes talk among themselves."""


class Cluster:
    """Runs for as long as the ``with`` block. ``nodes`` are plain clients, one for each node."""

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
        """Where a cluster client finds the first node, and by it the others."""
        return {"host": "127.0.0.1", "port": self.ports[0]}

    def calls(self):
        """How often each command was run since `forget_calls`, on each node; those of the counting itself left out."""
        return [
            {name.removeprefix("cmdstat_"): told["calls"] for name, told in node.info("commandstats").items()}
            for node in self.nodes
        ]

    def forget_calls(self):
        for node in self.nodes:
            node.config_resetstat()

    def flush(self):
        """Forget all keys and all scripts."""
        for node in self.nodes:
            node.flushall()
            node.script_flush()

    def number_of(self, key):
        """Which of the nodes has the slot of that key."""
        return self._slot(key) * NODES // SLOTS

    def node_of(self, key):
        return self.nodes[self.number_of(key)]

    @contextlib.contextmanager
    def moved(self, key, *, to):
        """Have the empty slot of a key served by the node of another key. Clients are not told."""
        old, new = self.node_of(key), self.node_of(to)
        self._give(self._slot(key), new, old)
        try:
            yield
        finally:
            self._give(self._slot(key), old, new)

    def _slot(self, key):
        return self.nodes[0].execute_command("CLUSTER KEYSLOT", key)

    def _give(self, slot, new, old):
        new.execute_command("CLUSTER BUMPEPOCH")  # or the third node would insist on what it knew
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
    """Whether the node sees all slots served, by nodes that it knows for good."""
    shares = node.execute_command("CLUSTER SLOTS")
    return len(shares) == NODES and b"cluster_state:ok" in told(node.execute_command("CLUSTER INFO"))


def told(info):
    """What a node says of its cluster: a text, or with newer clients what they have read in it."""
    return info if isinstance(info, bytes) else b"cluster_state:" + info["cluster_state"].encode()


def started():
    """One node, at a port that was free together with that of its bus."""
    for _ in range(20):
        port = random.randint(15_000, 32_000)  # below the ports that the system gives to clients
        if not (is_free(port) and is_free(port + BUS)):
            continue
        options = ["--bind", "127.0.0.1", "--port", str(port), "--cluster-enabled", "yes"]
        with contextlib.suppress(NoServer):  # somebody else was faster
            return PrivateServer(*options, "--cluster-node-timeout", "5000")
    raise AssertionError("no free port was found")


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
