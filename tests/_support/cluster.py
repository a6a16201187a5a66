"""A Redis Cluster of three primaries on the loopback interface, each with a third of the slots, with or without replicas."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import time
from typing import Self

import redis
from redis.crc import key_slot

from handfast.acl import rights_for
from handfast.embedded import PrivateServer
from handfast.errors import NoServer
from tests._support.helpers import eventually

SLOTS = 16384
NODES = 3
BUS = 10_000
"""Offset of a node's cluster bus port from its client port."""


class Cluster:
    """Runs inside its ``with`` block.

    ``nodes`` are clients of redis-py, one for each primary, and ``replicas`` one for that of each.
    """

    def __init__(self, *, with_replicas=False):
        self._number = NODES * 2 if with_replicas else NODES

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._servers = [stack.enter_context(started()) for _ in range(self._number)]
            clients = [stack.enter_context(redis.Redis.from_url(server.url)) for server in self._servers]
            self.nodes, self.replicas = clients[:NODES], clients[NODES:]
            self.ports = [int(node.config_get("port")["port"]) for node in clients]
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self._stack.close()

    @property
    def address(self):
        """Return the address of the first node, as options of a cluster client."""
        return {"host": "127.0.0.1", "port": self.ports[0]}

    @property
    def url(self):
        return f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in self.ports)}"

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
        self.give(self._slot(key), new, old)
        try:
            yield
        finally:
            self.give(self._slot(key), old, new)

    @contextlib.contextmanager
    def moving(self, key, *, to):
        """Begin to move the slot of a key to the node of another key: its keys stay where they are.

        Afterwards it is empty, and back.
        """
        slot, old, new = self._slot(key), self.node_of(key), self.node_of(to)
        new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", old.execute_command("CLUSTER MYID"))
        old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", new.execute_command("CLUSTER MYID"))
        try:
            yield
        finally:
            for node in (old, new):
                node.flushall()
                node.execute_command("CLUSTER SETSLOT", slot, "STABLE")
            self.give(slot, old, new)

    def views(self, key):
        """Return what each node knows of the slot of a key: its keys there, and what it tells of the cluster."""
        slot = self._slot(key)
        return [
            (node.execute_command("CLUSTER GETKEYSINSLOT", slot, 100), node.execute_command("CLUSTER NODES"))
            for node in self.nodes
        ]

    def move_keys(self, key, *, to, most=100):
        """Move so many keys of a slot that is moving, in their order. Return how many there were."""
        old, new = self.node_of(key), self.number_of(to)
        keys = sorted(old.execute_command("CLUSTER GETKEYSINSLOT", self._slot(key), 100))[:most]
        if keys:
            old.execute_command("MIGRATE", "127.0.0.1", self.ports[new], "", 0, 5000, "REPLACE", "KEYS", *keys)
        return len(keys)

    def end_move(self, key, *, to):
        """Move what is left, and let the slot be the other node's."""
        self.move_keys(key, to=to)
        self.give(self._slot(key), self.node_of(to), self.node_of(key))

    @contextlib.contextmanager
    def moves(self, key, *, to):
        """Move the slot of a key with all of its keys. Afterwards it is empty, and back."""
        with self.moving(key, to=to):
            self.end_move(key, to=to)
            yield

    def fail_over(self, number):
        """Let the replica of a primary take its place, without loss."""
        replica, primary = self.replicas[number], self.nodes[number]
        asked = []

        def is_over():
            """Ask for it, again every 3 s: servers that have not heard all of each other yet let the first one pass."""
            if replica.role()[0] != b"master" and time.monotonic() > sum(asked[-1:]) + 3:
                replica.execute_command("CLUSTER FAILOVER")
                asked.append(time.monotonic())
            return replica.role()[0] == b"master" and primary.role()[0] == b"slave"

        eventually(is_over, within=30)
        eventually(lambda: primary.info("replication")["master_link_status"] == "up", within=30)
        self.nodes[number], self.replicas[number] = replica, primary

    def replicate(self):
        """Wait until the replicas have what was written. One that has joined lately gets nothing for up to a second."""
        for number, node in enumerate(self.nodes):
            node.set(f"{{hf:mark:{name_at(number, kind='mark')}}}", "", px=1)  # WAIT is for what its connection wrote
            eventually(lambda: node.wait(1, 1000) == 1)  # noqa: B023 -- called at once

    def rules(self, *uses):
        """Return the rules of a user with the rights that `handfast acl` prints, of which older servers know some."""
        version = self.nodes[0].info("server")["redis_version"]
        tells_its_name = not "7.0" <= version < "7.2"  # Redis 6.2 knows no names of subcommands, and takes all
        return rights_for(uses, cluster=True, tells_its_name=tells_its_name, sharded=version >= "7.0").rules()

    def kill(self, number):
        """Kill a primary. Its replica takes its place some seconds later."""
        self._servers[number].close()

    def _slot(self, key):
        return self.nodes[0].execute_command("CLUSTER KEYSLOT", key)

    def give(self, slot, new, old):
        """Let a slot be that of a new node, and tell the old one."""

        def is_newer():
            """Raise the new node's epoch above that of the other, of which it may hear late.

            Else the third node keeps its older view.
            """
            new.execute_command("CLUSTER BUMPEPOCH")
            return int(field_of(new, "cluster_my_epoch")) > int(field_of(old, "cluster_my_epoch"))

        eventually(is_newer)
        name = new.execute_command("CLUSTER MYID")
        for node in (new, old):
            node.execute_command("CLUSTER SETSLOT", slot, "NODE", name)

    def _join(self):
        clients = [*self.nodes, *self.replicas]
        bounds = [-(-SLOTS * number // NODES) for number in range(NODES + 1)]
        for number, node in enumerate(self.nodes):
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.execute_command("CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
        for port in self.ports[1:]:
            self.nodes[0].execute_command("CLUSTER MEET", "127.0.0.1", port)
        eventually(lambda: all(knows_all(node) for node in clients), within=30)
        for primary, replica in zip(self.nodes, self.replicas, strict=False):
            replica.execute_command("CLUSTER REPLICATE", primary.execute_command("CLUSTER MYID"))
        for primary, replica in zip(self.nodes, self.replicas, strict=False):
            name = primary.execute_command("CLUSTER MYID").decode()
            # Until the primary knows it as its own, it takes no failover from it.
            eventually(lambda: primary.execute_command("CLUSTER REPLICAS", name), within=30)  # noqa: B023 -- called at once
            eventually(lambda: replica.info("replication")["master_link_status"] == "up", within=30)  # noqa: B023 -- as above


def name_at(number, *, kind="lock", namespace="hf", but=()):
    """Return a name whose slot the primary of that number has."""
    for word in (f"n{one}" for one in itertools.count()):
        if word not in but and key_slot(f"{namespace}:{kind}:{word}".encode()) * NODES // SLOTS == number:
            return word
    return None


def state_of(name):
    """Return the key of a lock's state."""
    return f"{{hf:lock:{name}}}:state"


def knows_all(node):
    """Return whether the node sees every slot served."""
    return len(node.execute_command("CLUSTER SLOTS")) == NODES and field_of(node, "cluster_state") == "ok"


def field_of(node, name):
    """Return a field of CLUSTER INFO; newer versions of redis-py parse it."""
    info = node.execute_command("CLUSTER INFO")
    if isinstance(info, bytes):
        info = dict(line.split(":", 1) for line in info.decode().splitlines())
    return info[name]


def started(*more):
    """Start a node, with these options more, on a port that is free together with its bus port."""
    for _ in range(20):
        port = random.randint(15_000, 32_000)  # below the ephemeral ports
        if not (is_free(port) and is_free(port + BUS)):
            continue
        options = ["--bind", "127.0.0.1", "--port", str(port), "--cluster-enabled", "yes"]
        with contextlib.suppress(NoServer):  # another process took the port
            return PrivateServer(*options, "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0", *more)
    raise AssertionError("found no free port")


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
