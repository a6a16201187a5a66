"""A cluster, by default of three primaries with a replica each: private servers, which end with this process at the latest."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NamedTuple, Self

import redis

from handfast._engine.slots import SLOTS
from handfast.errors import NoServer
from handfast.testing import ServerController

__all__ = ["HOST", "Cluster", "start_on_port"]

HOST = "127.0.0.1"

BUS = 10_000
"""Offset of a node's bus port from its port."""

NODE = "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"
"""Options of a node; the time is in milliseconds."""

WITHIN = 60.0
"""Seconds that one change of the cluster may take."""

LOOK = 0.02
"""Seconds between two looks."""


class _Share(NamedTuple):
    first: int
    last: int
    port: int

    def has(self, slot: int) -> bool:
        return self.first <= slot <= self.last


class Cluster:
    """So many primaries, and so many replicas of each."""

    def __init__(self, primaries: int = 3, replicas: int = 1) -> None:
        self._number = primaries
        self._replicas = replicas
        self._stack = contextlib.ExitStack()
        self._servers: dict[int, ServerController] = {}

    def __enter__(self) -> Self:
        with self._stack as stack:
            for _ in range(self._number * (1 + self._replicas)):
                port, server = start_on_port(*NODE)
                self._servers[port] = stack.enter_context(server)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """It names all nodes."""
        return f"redis+cluster://{','.join(f'{HOST}:{port}' for port in self._servers)}"

    @property
    def ports(self) -> tuple[int, ...]:
        """Of all nodes, the primaries of the beginning first."""
        return tuple(self._servers)

    def admin(self, slot: int) -> redis.Redis:
        """Return a client of the primary that has the slot. Raises RedisError while none has."""
        port = self._port_of(slot)
        if not port:
            raise redis.RedisError(f"no primary has slot {slot}, or several have")
        return self._servers[port].admin

    def move(self, slot: int, *, keys: int = 1, pause: float = 0.0) -> None:
        """Move a slot to another primary as operators do: so many keys at a time, with so many seconds between."""
        source, target = self._port_of(slot), self._other_than(slot)
        self._ask(target, "CLUSTER SETSLOT", slot, "IMPORTING", self._id(source))
        self._ask(source, "CLUSTER SETSLOT", slot, "MIGRATING", self._id(target))
        sleep(pause)
        while found := self._ask(source, "CLUSTER GETKEYSINSLOT", slot, keys):
            self._ask(source, "MIGRATE", HOST, target, "", 0, 5000, "REPLACE", "KEYS", *found)
            sleep(pause)
        for port in (target, source, *self._primaries() - {target, source}):
            self._ask(port, "CLUSTER SETSLOT", slot, "NODE", self._id(target))
        self._until(lambda: self._port_of(slot) == target)

    def move_at_once(self, slot: int) -> bool:
        """Move a slot in one step. Return False if the servers cannot."""
        source, target = self._port_of(slot), self._other_than(slot)
        try:
            self._ask(source, "CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self._id(target))
        except redis.ResponseError:
            return False
        self._until(lambda: self._port_of(slot) == target)
        return True

    def fail_over(self, slot: int) -> None:
        """Have the replica of a slot's primary take its place, without loss."""
        primary = self._port_of(slot)
        self._ask(self._replica_of(primary), "CLUSTER FAILOVER")
        self._until(lambda: self._port_of(slot) not in (primary, 0))
        self.until_ready()

    def kill(self, slot: int) -> None:
        """Kill the primary of a slot, wait until its replica has taken its place, and start it again as a replica."""
        primary = self._port_of(slot)
        self._servers[primary].kill()
        self._until(lambda: self._port_of(slot) != primary)
        self._servers[primary].restart()
        self.until_ready()

    def until_ready(self) -> None:
        """Wait until all slots are served, and all replicas are in step."""
        self._until(self._is_ready)

    def _ask(self, port: int, command: str, *args: Any) -> Any:
        admin: Any = self._servers[port].admin
        return admin.execute_command(*command.split(), *args)

    def _id(self, port: int) -> str:
        return str(self._ask(port, "CLUSTER MYID"))

    def _running(self) -> list[int]:
        return [port for port, server in self._servers.items() if server.running]

    def _primaries(self) -> set[int]:
        return {share.port for share in self._shares(self._running()[0])}

    def _shares(self, port: int) -> list[_Share]:
        """Return who has which slots, as one node sees it."""
        return [_Share(first, last, one[1]) for first, last, one, *_ in self._ask(port, "CLUSTER SLOTS")]

    def _port_of(self, slot: int) -> int:
        """Return the port of the primary that says itself that a slot is its own; 0 if none or several do."""
        own = [
            port for port in self._running() if any(one.port == port and one.has(slot) for one in self._shares(port))
        ]
        return own[0] if len(own) == 1 else 0

    def _other_than(self, slot: int) -> int:
        """Return a primary that does not have the slot."""
        return random.choice(sorted(self._primaries() - {self._port_of(slot)}))  # noqa: S311 -- test data

    def _replica_of(self, primary: int) -> int:
        return next(port for port in self._running() if self._state(port).get("master_port") == primary)

    def _state(self, port: int) -> dict[str, Any]:
        state: dict[str, Any] = self._servers[port].admin.info("replication")
        return state

    def _is_ready(self) -> bool:
        states = [self._state(port) for port in self._servers]
        in_step = sum(state["role"] == "slave" and state["master_link_status"] == "up" for state in states)
        views = {tuple(sorted(self._shares(port))) for port in self._servers}
        ok = all("cluster_state:ok" in self._ask(port, "CLUSTER INFO") for port in self._servers)
        return ok and in_step == len(states) - self._number and len(views) == 1

    def _join(self) -> None:
        """Make a cluster of the nodes, and divide the slots."""
        first, *others = self._servers
        for port in others:
            self._ask(first, "CLUSTER MEET", HOST, port)
        bounds = [SLOTS * number // self._number for number in range(self._number + 1)]
        primaries = [*self._servers][: self._number]
        for port, start, end in zip(primaries, bounds, bounds[1:], strict=False):
            self._ask(port, "CLUSTER ADDSLOTS", *range(start, end))
        self._until(
            lambda: all(self._ask(port, "CLUSTER NODES").count("connected") == len(self._servers) for port in others)
        )
        for port, primary in zip([*self._servers][self._number :], primaries * self._replicas, strict=True):
            self._ask(port, "CLUSTER REPLICATE", self._id(primary))
        self.until_ready()

    def _until(self, condition: Callable[[], bool]) -> None:
        until = monotonic() + WITHIN
        while True:
            with contextlib.suppress(redis.RedisError, StopIteration):
                if condition():
                    return
            if monotonic() > until:
                raise TimeoutError(f"the cluster took longer than {WITHIN:g} s")
            sleep(LOOK)


def start_on_port(*options: str) -> tuple[int, ServerController]:
    """Start a server on a port that is free, and whose bus port is."""
    for _ in range(20):
        port = random.randint(15_000, 32_000)  # noqa: S311 -- below the ports that the system gives out
        if _is_free(port) and _is_free(port + BUS):
            with contextlib.suppress(NoServer):  # another process took it
                return port, ServerController("--port", str(port), *options)
    raise NoServer("found no free port for a server")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
