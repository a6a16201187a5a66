"""Readers and writers of one thing: with a read-write lock, and with a plain lock for all of them.

Each client comes again and again, and while it is in it sleeps for a moment, as one does who asks some other service; so
readers that get in together can do that at the same time even on a single core. All of them always want in, the hardest
case there is for a lock that must let nobody starve: readers who were let in whenever only readers are in would never
leave a writer a gap. A wait is from the call of acquire to its return; its longest is that of all rounds.

A hold to write takes all permits and a hold to read takes one, here as in the engine, so the check for overlaps is that
of a semaphore: no hold may begin while those that are certain leave no room for it.
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

__all__ = ["CONTENDERS", "Row", "Sharing", "SharingPlan", "SideJob", "measure", "run", "summarize"]

RWLOCK, LOCK = "rwlock", "lock"


def _side(client: Handfast, name: str, *, writes: bool) -> AbstractContextManager[Any]:
    rwlock = client.rwlock(name)
    return rwlock.write() if writes else rwlock.read()


def _lock(client: Handfast, name: str, *, writes: bool) -> AbstractContextManager[Any]:  # noqa: ARG001 -- it is all the same to a lock
    return client.lock(name)


CONTENDERS: Mapping[str, Callable[..., AbstractContextManager[Any]]] = {RWLOCK: _side, LOCK: _lock}
"""By name, in the order of the table: what a reader or a writer enters."""


class SharingPlan(NamedTuple):
    """What to measure."""

    url: str
    readers: int
    writers: int
    work: float
    """Seconds that each is in."""
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
    """How many holds began while a writer's was certain, or were a writer's and began while any other was."""
    trouble: tuple[str, ...]
    """What went wrong; such a measurement has no figures to trust."""


@dataclass(frozen=True, slots=True)
class Row:
    """What all rounds say of one contender: medians, the spread of the reads, and the longest waits of all rounds."""

    contender: str
    reads: float
    """A second, of all readers together; so with the writes."""
    slowest: float
    fastest: float
    writes: float
    read_waits: Times
    write_waits: Times
    to_lock: float | None
    """Reads and writes together to those with a plain lock in the same round."""


class SideJob(NamedTuple):
    """Read, or write, again and again."""

    contender: str
    url: str
    name: str
    writes: bool
    work: float

    def do(self, start: Start) -> Turns:
        """Come until the time is over."""
        turns = Turns(array("d"), array("d"), array("d"))
        with Handfast(self.url) as client:
            side = CONTENDERS[self.contender](client, self.name, writes=self.writes)
            with side:  # once, so that connections are made and scripts loaded
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
    """Let them read and write, one measurement after the other; the contenders take turns at being first."""
    sides = [False] * plan.readers + [True] * plan.writers
    with ClientPool() as pool:
        for case in in_rounds(CONTENDERS, plan.rounds, len(sides)):
            name = f"bench-{os.getpid()}-{case.contender}-{case.round}"
            jobs = [SideJob(case.contender, plan.url, name, writes, plan.work) for writes in sides]
            yield measure(plan, case, *pool.do_each(jobs, plan.seconds))


def measure(
    plan: SharingPlan, case: Case, schedule: Schedule, turns: Sequence[Turns], trouble: Sequence[str]
) -> Sharing:
    """From what each client noted, the readers before the writers."""
    _, go, until = schedule
    readers, writers = turns[: plan.readers], turns[plan.readers :]
    everything = plan.readers + 1  # enough permits for every reader, and all of them for a writer
    reader = 1 if case.contender == RWLOCK else everything
    holds = [
        Hold(acquired, released, client, reader if client < plan.readers else everything)
        for client, mine in enumerate(turns)
        for acquired, released in zip(mine.acquired, mine.released, strict=True)
    ]

    def count(some: Sequence[Turns]) -> int:
        return sum(go <= acquired < until for mine in some for acquired in mine.acquired)

    def waits(what: str, some: Sequence[Turns]) -> Times:
        """Of those that began to wait while it counted, however long they then did."""
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


def summarize(found: Sequence[Sharing]) -> list[Row]:
    """One row for each contender that went well in a round."""
    sound = [one for one in found if not one.trouble]
    plain = {one.round: one.reads + one.writes for one in sound if one.contender == LOCK}
    rows = []
    for contender in CONTENDERS:
        mine = [one for one in sound if one.contender == contender]
        if mine:
            reads = [one.reads / one.seconds for one in mine]
            bases = [(one.reads + one.writes, plain.get(one.round)) for one in mine]
            rows.append(
                Row(
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
