"""Readers and writers of one resource: with a read-write lock, and with a plain lock for all of them.

Each client acquires again and again, and sleeps while it holds, like a client that calls another service; concurrent
readers therefore gain even on a single core. All clients always want the lock, the hardest case for starvation: if
readers were always granted alongside other readers, a writer would never be. A wait lasts from the call of acquire to
its return; its longest is taken over all rounds.

A writer holds all permits and a reader one, here as in the engine, so the overlap check is that of a semaphore: a hold
must not begin while other certain holds leave too few permits for it.
"""

from __future__ import annotations

import gc
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

from handfast import Handfast
from handfast_lab.bench.figures import Case, Hold, Schedule, Times, Turns, crowding, middle
from handfast_lab.bench.runner import ClientPool, in_rounds
from handfast_lab.bench.worker import Start, wait_until

__all__ = ["CONTENDERS", "RWLockRow", "Sharing", "SharingPlan", "SideJob", "measure", "run", "summarize"]

RWLOCK, LOCK = "rwlock", "lock"


def _side(client: Handfast, name: str, *, writes: bool) -> AbstractContextManager[Any]:
    rwlock = client.rwlock(name)
    return rwlock.write() if writes else rwlock.read()


def _lock(client: Handfast, name: str, *, writes: bool) -> AbstractContextManager[Any]:  # noqa: ARG001 -- a lock does not distinguish
    return client.lock(name)


CONTENDERS: Mapping[str, Callable[..., AbstractContextManager[Any]]] = {RWLOCK: _side, LOCK: _lock}
"""By name, in the order of the table. Each returns the context manager of a reader or a writer."""


class SharingPlan(NamedTuple):
    """The parameters of the benchmark."""

    url: str
    readers: int
    writers: int
    work: float
    """Seconds of each hold."""
    rounds: int
    seconds: float

    def __len__(self) -> int:
        return self.rounds * len(CONTENDERS)


@dataclass(frozen=True, slots=True)
class Sharing:
    """One contender in one round."""

    round: int
    contender: str
    readers: int
    writers: int
    seconds: float
    reads: int
    writes: int
    read_waits: Times
    write_waits: Times
    overlaps: int
    """Number of holds that began during a writer's certain hold, or holds of a writer that began during any other."""
    trouble: tuple[str, ...]
    """Errors; the figures of a measurement with errors are not used."""


@dataclass(frozen=True, slots=True)
class RWLockRow:
    """All rounds of one contender: medians, the spread of the reads, and the longest waits of all rounds."""

    contender: str
    reads: float
    """Per second, of all readers together; likewise the writes."""
    slowest: float
    fastest: float
    writes: float
    read_waits: Times
    write_waits: Times
    to_lock: float | None
    """Reads and writes together, divided by those with a plain lock in the same round."""


class SideJob(NamedTuple):
    """Read, or write, repeatedly."""

    contender: str
    url: str
    name: str
    writes: bool
    work: float

    def do(self, start: Start) -> Turns:
        """Acquire and release until the end."""
        turns = Turns(array("d"), array("d"), array("d"))
        with Handfast(self.url) as client:
            side = CONTENDERS[self.contender](client, self.name, writes=self.writes)
            with side:  # once, to open connections and load scripts
                pass
            gc.collect()
            schedule = start()
            wait_until(schedule.begin)
            while (asked := monotonic()) < schedule.until:
                with side:
                    acquired = monotonic()
                    if self.work:
                        time.sleep(self.work)
                    released = monotonic()
                turns.asked.append(asked)
                turns.acquired.append(acquired)
                turns.released.append(released)
        return turns


def run(plan: SharingPlan) -> Iterator[Sharing]:
    """Yield one measurement after the other; the first place rotates among the contenders."""
    sides = [False] * plan.readers + [True] * plan.writers
    with ClientPool() as pool:
        for case in in_rounds(CONTENDERS, plan.rounds, len(sides)):
            name = f"bench-{os.getpid()}-{case.contender}-{case.round}"
            jobs = [SideJob(case.contender, plan.url, name, writes, plan.work) for writes in sides]
            yield measure(plan, case, *pool.do(jobs, plan.seconds))


def measure(
    plan: SharingPlan, case: Case, schedule: Schedule, turns: Sequence[Turns], trouble: Sequence[str]
) -> Sharing:
    """Evaluate the records of all clients, readers first."""
    _, go, until = schedule
    readers, writers = turns[: plan.readers], turns[plan.readers :]
    everything = plan.readers + 1  # one permit for every reader, all of them for a writer
    reader = 1 if case.contender == RWLOCK else everything
    holds = [
        Hold(acquired, released, client, reader if client < plan.readers else everything)
        for client, mine in enumerate(turns)
        for acquired, released in zip(mine.acquired, mine.released, strict=True)
    ]

    def count(some: Sequence[Turns]) -> int:
        return sum(go <= acquired < until for mine in some for acquired in mine.acquired)

    def waits(what: str, some: Sequence[Turns]) -> Times:
        """Summarize the waits that began in the measured period, however long they lasted."""
        pairs = (pair for mine in some for pair in zip(mine.asked, mine.acquired, strict=True))
        return Times.of(what, [(acquired - asked) * 1e6 for asked, acquired in pairs if go <= asked < until])

    return Sharing(
        round=case.round,
        contender=case.contender,
        readers=plan.readers,
        writers=plan.writers,
        seconds=until - go,
        reads=count(readers),
        writes=count(writers),
        read_waits=waits("read", readers),
        write_waits=waits("write", writers),
        overlaps=crowding(holds, everything),
        trouble=tuple(trouble),
    )


def summarize(found: Sequence[Sharing]) -> list[RWLockRow]:
    """Return one row for each contender with an error-free round."""
    sound = [one for one in found if not one.trouble]
    plain = {one.round: one.reads + one.writes for one in sound if one.contender == LOCK}
    rows = []
    for contender in CONTENDERS:
        mine = [one for one in sound if one.contender == contender]
        if mine:
            reads = [one.reads / one.seconds for one in mine]
            bases = [(one.reads + one.writes, plain.get(one.round)) for one in mine]
            rows.append(
                RWLockRow(
                    contender=contender,
                    reads=median(reads),
                    slowest=min(reads),
                    fastest=max(reads),
                    writes=median(one.writes / one.seconds for one in mine),
                    read_waits=Times.of_rounds([one.read_waits for one in mine]),
                    write_waits=Times.of_rounds([one.write_waits for one in mine]),
                    to_lock=middle(total / base for total, base in bases if base),
                )
            )
    return rows
