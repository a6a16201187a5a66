"""The declaration of a benchmark: what one measurement prepares, lets clients do, and checks afterwards.

A `ProcessWorkload` is measured by client processes that each repeat one operation (a `MeasuredClient`). Other workloads
provide their own jobs. `handfast_lab.bench.runner` determines the order of the measurements and performs them.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias

from handfast_lab.bench.figures import Notes
from handfast_lab.bench.worker import Job, Start, wait_until

__all__ = [
    "Closing",
    "Conn",
    "MeasuredClient",
    "ProcessWorkload",
    "Report",
    "Scene",
    "Workload",
    "repeat",
]

Conn: TypeAlias = Any
"""A ``redis.Redis``; redis-py types its replies as possibly asynchronous."""


class Scene(NamedTuple):
    """The setting of one measurement."""

    url: str
    name: str
    """Name of the lock, guild and so on; unique to the measurement."""
    contender: str
    clients: int


class Report(NamedTuple):
    """The result of one job."""

    notes: list[Notes]
    connections: int | None = None
    """Connections that the server had of the contender; None if not counted."""


class Workload(ABC):
    """What is measured."""

    contenders: Collection[str] = ()
    """In the order of the table."""
    limit: int | None = 1
    """Largest number of simultaneous holders, which is checked; None if nothing is shared."""

    @abstractmethod
    def jobs(self, scene: Scene) -> Sequence[Job[Report]]:
        """Return the job of each process."""

    def refusal(self, conn: Conn) -> str:  # noqa: ARG002 -- most workloads accept any server
        """Return why this server cannot be used, or an empty string."""
        return ""

    def prepare(self, scene: Scene, conn: Conn) -> None:  # noqa: B027 -- not every workload needs data
        """Create the data that the clients need."""

    def inspect(self, scene: Scene, conn: Conn) -> list[str]:  # noqa: ARG002 -- not every workload has something to check
        """Return descriptions of the errors in the data that the clients left."""
        return []

    def clear(self, scene: Scene, conn: Conn) -> None:  # noqa: B027 -- not every workload leaves data
        """Delete all data of the measurement."""


class Closing(Protocol):
    """What a client works with, which can at least be closed. Its ``retries`` are counted if it has any."""

    def close(self) -> object:
        """Close the connections."""


class MeasuredClient(ABC):
    """One client. It is created in its own process, which then calls `act` until the end."""

    def __init__(self, client: Closing) -> None:
        self._client = client
        self._tries = 0
        self.succeeded, self.released = array("d"), array("d")
        """See `Notes`."""

    @property
    def tries(self) -> int:
        """Number of requests so far."""
        return self._tries

    @property
    def retries(self) -> int:
        """Number of WatchErrors so far."""
        return int(getattr(self._client, "retries", 0))

    @abstractmethod
    def act(self) -> None:
        """Do the operation once; append the time to `succeeded` if it succeeded."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class ProcessWorkload(Workload):
    """Each client is a process that repeats one operation."""

    @abstractmethod
    def client(self, scene: Scene, number: int) -> MeasuredClient:
        """Create the client with this number, counted from 0."""

    def jobs(self, scene: Scene) -> Sequence[Job[Report]]:
        return [ClientJob(self, scene, number) for number in range(scene.clients)]


class ClientJob(NamedTuple):
    """Repeat the operation of one client."""

    workload: ProcessWorkload
    scene: Scene
    number: int

    def do(self, start: Start) -> Report:
        """Create the client, and let it act until the end of the schedule."""
        return Report([repeat(self.workload.client(self.scene, self.number), start)])


def repeat(client: MeasuredClient, start: Start) -> Notes:
    """Act once, to open connections and load scripts, and then until the schedule ends; close the client."""
    try:
        client.act()
        gc.collect()
        schedule = start()
        wait_until(schedule.begin)
        _act_until(client, schedule.go)
        before, retries = _tries(client, schedule.go), client.retries
        _act_until(client, schedule.until)
        tries = _tries(client, schedule.until) - before
        return Notes(tries, client.succeeded, client.released, client.retries - retries)
    finally:
        client.close()


def _act_until(client: MeasuredClient, end: float) -> None:
    while monotonic() < end:
        client.act()


def _tries(client: MeasuredClient, end: float) -> int:
    """Return the tries so far, without that of an operation that succeeded too late."""
    done = client.succeeded
    return client.tries - (bool(done) and done[-1] >= end)
