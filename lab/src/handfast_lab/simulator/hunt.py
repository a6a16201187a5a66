"""Run many seeds on several processors: counts, findings, and the command that reproduces each finding."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from handfast_lab.simulator.plans import VERSION, kind_of
from handfast_lab.simulator.server import SimulatedServer
from handfast_lab.simulator.simulation import Simulation

__all__ = ["ENGINE", "Tally", "hunt", "replay"]

ENGINE = "luajit21"
"""The Lua for many seeds: twice as fast as `REAL`; a test checks that both give the same runs."""

REAL = "lua51"
"""The Lua of servers, used to show a single seed."""

CHUNK = 250
"""Seeds that a process takes at a time."""


class _Job(NamedTuple):
    first: int
    last: int
    scripts: dict[str, str] | None
    engine: str
    every: int
    setting: str
    kind: str


@dataclass
class Tally:
    """The outcome of many seeds."""

    setting: str = "server"
    """What there was of servers: see `handfast_lab.simulator.faults.SETTINGS`."""
    schedules: int = 0
    calls: int = 0
    """Number of script calls."""
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    histories: int = 0
    """Number of histories checked as a whole."""
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    findings: dict[int, list[str]] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add another outcome to this one."""
        self.schedules += other.schedules
        self.calls += other.calls
        self.virtual_seconds += other.virtual_seconds
        self.histories += other.histories
        self.operations += other.operations
        self.faults.update(other.faults)
        self.findings |= other.findings

    def lines(self) -> Iterator[str]:
        """Return it as text, line by line."""
        rate = self.schedules / self.seconds if self.seconds else 0
        yield (
            f"{self.schedules:,} schedules ({rate:,.0f} a second), {self.calls:,} scripts, {sum(self.faults.values()):,} faults "
            f"of {len(self.faults)} kinds, {self.virtual_seconds / 86400:,.1f} days; {self.histories:,} histories checked"
        )
        for kind, count in sorted(self.faults.items()):
            yield f"    {count:>10,}  {kind}"
        for seed, findings in sorted(self.findings.items()):
            yield reproducer(seed, findings[0], self.setting)
        yield f"{len(self.findings)} seeds with findings (plans of version {VERSION})"


def reproducer(seed: int, finding: str, setting: str = "server") -> str:
    """Return the command that reproduces a finding."""
    option = "" if setting == "server" else f" --setting '{setting}'"
    return f"python -m handfast_lab.simulator {seed}{option}  # {finding}"


def replay(
    seed: int, *, log: Callable[[str], None], scripts: dict[str, str] | None = None, setting: str = "server"
) -> list[str]:
    """Run one seed, log all that happens, and return the findings."""
    return Simulation(seed, SimulatedServer(scripts, engine=REAL), setting=setting, log=log, every=1).run().findings


def hunt(
    first: int,
    last: int,
    *,
    processes: int = 1,
    scripts: dict[str, str] | None = None,
    engine: str = ENGINE,
    every: int = 8,
    setting: str = "server",
    kind: str = "",
    found: Callable[[str], None] = lambda _: None,
    tell: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Run the seeds from ``first`` to ``last`` - 1; with a ``kind`` only those whose plans are of it.

    Calls ``found`` with each finding at once, and ``tell`` with the progress.
    """
    jobs = [
        _Job(start, min(last, start + CHUNK), scripts, engine, every, setting, kind)
        for start in range(first, last, CHUNK)
    ]
    total, began = Tally(setting=setting), time.perf_counter()
    for tally in _run(jobs, processes):
        total.add(tally)
        for seed, findings in tally.findings.items():
            found(reproducer(seed, findings[0], setting))
        tell(total)
    total.seconds = time.perf_counter() - began
    return total


def _run(jobs: list[_Job], processes: int) -> Iterator[Tally]:
    if processes == 1:
        yield from map(_work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_work, jobs)


_servers: dict[str, tuple[dict[str, str] | None, SimulatedServer]] = {}


def _work(job: _Job) -> Tally:
    scripts, server = _servers.get(job.engine, (None, None))
    if server is None or scripts != job.scripts:
        server = SimulatedServer(job.scripts, engine=job.engine)
        _servers[job.engine] = job.scripts, server
    tally = Tally()
    seeds = range(job.first, job.last)
    for seed in (seed for seed in seeds if job.kind in ("", kind_of(seed))):
        _try(seed, server, job, tally)
    return tally


def _try(seed: int, server: SimulatedServer, job: _Job, tally: Tally) -> None:
    tally.schedules += 1
    try:
        result = Simulation(seed, server, setting=job.setting, every=job.every).run()
    except Exception as error:  # noqa: BLE001 -- any exception is a finding of this seed
        where = traceback.extract_tb(error.__traceback__)[-1]
        tally.findings[seed] = [f"{type(error).__name__} in {where.name}: {error}"]
        return
    tally.calls += result.calls
    tally.virtual_seconds += result.seconds
    tally.histories += bool(result.history)
    tally.operations += len(result.history)
    tally.faults.update(result.faults)
    if result.findings:
        tally.findings[seed] = result.findings
