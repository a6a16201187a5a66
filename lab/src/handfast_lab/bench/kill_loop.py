"""Processes that acquire and release permits of one semaphore, each replaced when it is killed.

Each acquires a random number of permits, small numbers more often, and releases them at once or a little later,
sometimes much later than the ttl. At random times a random process is killed, holding or waiting, and replaced. The
permits of a killed process return when its lease expires, and the next waiter is granted.

A process records its operations in a file that survives it. The processes are forked from one that has imported
everything and opened nothing, so several new ones per second are possible.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from handfast import Handfast
from handfast_lab.bench.figures import Hold
from handfast_lab.children import ChildProcess, Parent, ProcessFailed, ProcessGroup

__all__ = ["KillLoop", "KillLoopSettings", "Log", "read_log"]

SHORT, LONG = 0.2, 0.001
"""The shares of holds that last up to two milliseconds, and up to two ttls; the other leases are released at once."""

KILL_EVERY = 0.3
"""Seconds between two kills, on average."""

RECORD = 4
"""Numbers per record: 32 bytes. A page holds a whole number of records, so a kill never leaves a partial one."""


class KillLoopSettings(NamedTuple):
    """The parameters of a run."""

    url: str
    name: str
    """Name of the semaphore, for exclusive use."""
    processes: int
    limit: int
    """Permits, at most 100, so that `status` lists all holders."""
    ttl: float
    operations: int


class Log(NamedTuple):
    """The records of one process."""

    holds: list[Hold]
    operations: int
    lost: int
    """Leases lost before their release."""
    longest_wait: float


class _Life(NamedTuple):
    """One process and its file of records."""

    process: ChildProcess
    log: Path


class KillLoop:
    """A fixed number of processes, each replaced when it is killed."""

    def __init__(self, settings: KillLoopSettings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._group = ProcessGroup(preload=[__name__])
        self._chance = random.Random()  # noqa: S311 -- a choice of processes, not a secret
        self._lives = 0
        self._done = 0
        self._alive: list[_Life] = []
        self._ended: list[tuple[_Life, float]] = []
        """The ended processes, each with the time just before its end."""
        self.kills = 0

    def fill(self) -> None:
        """Start the missing processes."""
        while len(self._alive) < self._settings.processes:
            log = self._folder / str(self._lives)
            log.touch()
            process = self._group.start(_live, self._settings, self._lives, log, name=log.name)
            self._lives += 1
            self._alive.append(_Life(process, log))

    def kill(self) -> str:
        """Kill a random process, holding or waiting, and start another. Return the label of the killed process."""
        life = self._chance.choice(self._alive)
        if life.process.has_reported:
            return ""  # it has failed, and `stop` reports the reason
        self._alive.remove(life)
        self._end(life)
        self.kills += 1
        self._done += _operations(life.log)
        self.fill()
        return life.log.name

    def next_kill(self) -> float:
        """Return the time of the next kill."""
        return monotonic() + self._chance.expovariate(1 / KILL_EVERY)

    def done(self) -> int:
        """Return the approximate number of operations so far."""
        return self._done + sum(_operations(life.log) for life in self._alive)

    def failed(self) -> bool:
        """Return whether a process has ended on its own, which they report only when they fail."""
        return any(life.process.has_reported for life in self._alive)

    def stop(self, timeout: float) -> list[str]:
        """Let all processes finish their operation and end; kill those left after ``timeout``. Return the errors."""
        until = monotonic() + timeout
        for life in self._alive:
            life.process.send("stop")
        trouble = []
        for life in self._alive:
            try:
                life.process.join(max(0, until - monotonic()))
            except ProcessFailed as failure:
                trouble.append(str(failure))
            self._end(life)
        self._alive.clear()
        return trouble

    def logs(self) -> list[Log]:
        """Return the records of all ended processes."""
        return [read_log(life.log, moment, number) for number, (life, moment) in enumerate(self._ended)]

    def dismiss(self) -> None:
        """Kill the remaining processes."""
        for life in self._alive:
            self._end(life)
        self._alive.clear()
        self._group.close()

    def _end(self, life: _Life) -> None:
        moment = monotonic()
        self._group.discard(life.process)
        self._ended.append((life, moment))


def _live(parent: Parent, settings: KillLoopSettings, number: int, log: Path) -> None:
    """Acquire and release until the parent sends "stop"."""
    chance = random.Random(number)  # noqa: S311 -- weights and pauses, not secrets
    with Handfast(settings.url, label=log.name) as client, log.open("ab", buffering=0) as notes:
        semaphore = client.semaphore(settings.name, settings.limit, ttl=settings.ttl)
        while not parent.has_sent:
            weight = min(chance.randint(1, settings.limit), chance.randint(1, settings.limit))  # so that several fit in
            asked = monotonic()
            lease = semaphore.acquire(permits=weight)
            acquired = monotonic()
            until = monotonic() + lease.remaining()
            notes.write(array("d", (asked, acquired, until, weight)).tobytes())
            drawn = chance.random()
            if drawn < LONG:
                time.sleep(chance.uniform(0, 2 * settings.ttl))
            elif drawn < LONG + SHORT:
                time.sleep(chance.uniform(0, 0.002))
            released = monotonic()
            notes.write(array("d", (released, not lease.lost, 0, 0)).tobytes())  # before another process can hold it
            lease.release()


def read_log(log: Path, end: float, client: int) -> Log:
    """Read the records of a process that ended no later than ``end``."""
    numbers = array("d", log.read_bytes())
    holds: list[Hold] = []
    operations, lost, longest = 0, 0, 0.0
    records = _records(numbers)
    for asked, acquired, until, weight in records:
        longest = max(longest, acquired - asked)
        given = next(records, None)
        released = min(until, end)
        if given is not None:
            operations += 1
            released, held, *_ = given
            lost += not held
            released = released if held else min(released, until)
        holds.append(Hold(acquired, max(acquired, released), client, int(weight)))
    return Log(holds, operations, lost, longest)


def _records(numbers: Sequence[float]) -> Iterator[Sequence[float]]:
    return (numbers[start : start + RECORD] for start in range(0, len(numbers), RECORD))


def _operations(log: Path) -> int:
    """Return the number of completed acquires and releases, from the size of the file."""
    return log.stat().st_size // (2 * RECORD * array("d").itemsize)
