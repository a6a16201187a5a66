"""What takes waiters out of a queue: their connections end, or the server loses its data, or another one takes its place."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from handfast._engine.keys import KeySet
from handfast._engine.slots import slot_of_key
from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.clusters import Cluster

__all__ = ["CUT", "DISTURBANCES", "Disturbed"]

CUT = "connections of waiters cut at a release"

EARLIER, LATER = 6, 3
"""Waiters whose connections are cut, and those that came after them."""

CLIENTS = 4
"""Clients of the other disturbances, which concern all of them. Two waiters of each queue in turn."""


@dataclass(frozen=True)
class Disturbed:
    """Servers that can be disturbed."""

    urls: tuple[str, ...]
    """One for each client."""
    waiters: tuple[int, ...]
    """The client of each waiter, in the order in which they queue."""
    admin: Callable[[str], Any]
    """Returns a client of redis-py to the server of a name."""
    disturb: Callable[[str], object]
    """Does it to the server of a name, and returns as soon as it has happened."""
    settle: Callable[[], object] = lambda: None
    """Waits until it may be done again."""


@contextlib.contextmanager
def _cut(_seed: int) -> Iterator[Disturbed]:
    with ServerController() as server, FaultProxy(server.url, record=False) as proxy:
        waiters = (0,) * EARLIER + (1,) * LATER
        yield Disturbed((proxy.url, server.url), waiters, lambda _: server.admin, lambda _: proxy.cut())


@contextlib.contextmanager
def _flush(_seed: int) -> Iterator[Disturbed]:
    with ServerController() as server:
        yield _all_of(server.url, lambda _: server.admin, lambda _: server.admin.flushall())


@contextlib.contextmanager
def _restart(_seed: int) -> Iterator[Disturbed]:
    def restart(_: str) -> None:
        server.kill()
        server.restart()

    with ServerController() as server:
        yield _all_of(server.url, lambda _: server.admin, restart)


@contextlib.contextmanager
def _move(seed: int) -> Iterator[Disturbed]:
    chance = random.Random(seed)  # noqa: S311 -- test data
    with Cluster(replicas=0) as cluster:
        pauses = 0.0, 0.005, 0.02
        yield _of_cluster(cluster, lambda slot: cluster.move(slot, pause=chance.choice(pauses)))


@contextlib.contextmanager
def _fail_over(_seed: int) -> Iterator[Disturbed]:
    with Cluster() as cluster:
        yield _of_cluster(cluster, cluster.promote_replica)


def _all_of(
    url: str, admin: Callable[[str], Any], disturb: Callable[[str], object], settle: Callable[[], object] = lambda: None
) -> Disturbed:
    """Return servers that are disturbed for all clients."""
    return Disturbed((url,) * CLIENTS, (*range(CLIENTS),) * 2, admin, disturb, settle)


def _of_cluster(cluster: Cluster, disturb: Callable[[int], object]) -> Disturbed:
    def slot_of(name: str) -> int:
        return slot_of_key(KeySet("hf", "lock", name).tag.encode())

    return _all_of(
        cluster.url,
        lambda name: cluster.admin(slot_of(name)),
        lambda name: disturb(slot_of(name)),
        cluster.until_ready,
    )


DISTURBANCES: dict[str, Callable[[int], AbstractContextManager[Disturbed]]] = {
    CUT: _cut,
    "slot of a queue moved at a release": _move,
    "planned failover at a release": _fail_over,
    "FLUSHALL at a release": _flush,
    "restart without data at a release": _restart,
}
"""By name. Each is called with the seed of its random choices, and starts servers of its own."""
