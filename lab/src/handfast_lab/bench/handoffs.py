"""Count what a contended handoff costs: commands, messages, bytes and wake-ups.

Processes contend for one lock: each acquires it again as soon as it has released it. The contenders take turns in
several rounds. An observer reads the server's counters when the counted period begins and when it ends, and each client
those of its own process. The differences divided by the number of acquires are the result; of several rounds it is the
median.

Commands, messages and bytes depend only on what is sent. How often a process sleeps depends on the load of the machine
as well.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import redis

from handfast_lab.bench.contention import Contention
from handfast_lab.bench.runner import ClientPool, in_rounds
from handfast_lab.bench.worker import Job, Start, wait_until
from handfast_lab.bench.workload import Scene

__all__ = ["Handoff", "run", "summarize"]


@dataclass(frozen=True, slots=True)
class Handoff:
    """The costs of one acquire and its release, in one round or as the medians of several."""

    contender: str
    clients: int
    acquires: float
    """Number of acquires in the counted period."""
    commands: float
    reads: float
    bytes_received: float
    writes: float
    bytes_sent: float
    client_wakeups: float
    server_wakeups: float


class Count(NamedTuple):
    """What one client counted."""

    acquires: int
    wakeups: int


class Contend(NamedTuple):
    """Acquire and release, and count."""

    scene: Scene
    number: int

    def do(self, start: Start) -> Count:
        client = Contention([self.scene.contender]).client(self.scene, self.number)
        try:
            client.act()
            schedule = start()
            wait_until(schedule.begin)
            while monotonic() < schedule.go:
                client.act()
            acquires, wakeups = len(client.succeeded), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            while monotonic() < schedule.until:
                client.act()
            return Count(len(client.succeeded) - acquires, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - wakeups)
        finally:
            client.close()


class Observe(NamedTuple):
    """Read the server's counters at both ends of the counted period, and return the differences."""

    url: str

    def do(self, start: Start) -> dict[str, int]:
        with redis.Redis.from_url(self.url) as conn:
            process = int(conn.info("server")["process_id"])
            schedule = start()
            wait_until(schedule.go)
            before = _counters(conn, process)
            wait_until(schedule.until)
            return {name: value - before[name] for name, value in _counters(conn, process).items()}


def _counters(conn: Any, process: int) -> dict[str, int]:
    found = conn.info("stats")
    threads = Path(f"/proc/{process}/task").glob("*/status")
    wakeups = (
        line.split()[1] for file in threads for line in file.read_text().splitlines() if line.startswith(_WAKEUPS)
    )
    return {name: int(found[key]) for name, key in _COUNTERS.items()} | {"server_wakeups": sum(map(int, wakeups))}


_WAKEUPS = "voluntary_ctxt_switches:"
"""The beginning of the line of /proc that counts them."""

_COUNTERS = {
    "commands": "total_commands_processed",
    "reads": "total_reads_processed",
    "bytes_received": "total_net_input_bytes",
    "writes": "total_writes_processed",
    "bytes_sent": "total_net_output_bytes",
}


def run(url: str, contenders: Sequence[str], clients: int, rounds: int, seconds: float) -> Iterator[Handoff]:
    """Yield the figures of each contender in each round. Raises RuntimeError if a client fails."""
    with ClientPool() as pool, redis.Redis.from_url(url) as conn:
        for case in in_rounds(contenders, rounds, clients):
            scene = Scene(url, f"handoffs-{os.getpid()}-{case.contender}-{case.round}", case.contender, clients)
            jobs: list[Job[Any]] = [Observe(url), *(Contend(scene, number) for number in range(clients))]
            try:
                _, results, trouble = pool.do(jobs, seconds)
            finally:
                Contention([case.contender]).clear(scene, conn)
            if trouble:
                raise RuntimeError(f"{case.contender}: {trouble[0]}")
            counters, *counts = results
            acquires = sum(count.acquires for count in counts)
            totals = counters | {"client_wakeups": sum(count.wakeups for count in counts)}
            each = {name: total / acquires for name, total in totals.items()}
            yield Handoff(case.contender, clients, acquires, **each)


def summarize(found: Sequence[Handoff]) -> list[Handoff]:
    """Return the medians of each contender."""
    groups: dict[str, list[Handoff]] = {}
    for one in found:
        groups.setdefault(one.contender, []).append(one)
    return [_medians(group) for group in groups.values()]


def _medians(rounds: list[Handoff]) -> Handoff:
    numbers = {field.name: median(getattr(one, field.name) for one in rounds) for field in fields(Handoff)[2:]}
    return Handoff(rounds[0].contender, rounds[0].clients, **numbers)
