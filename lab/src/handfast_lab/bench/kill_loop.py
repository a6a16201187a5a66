"""Processes that acquire and release permits of one semaphore, each replaced when it is killed.

Each acquires a random number of permits, rather few than many, and releases them at once or a little later, sometimes much
later than the ttl. At random moments one is killed, whether it waits or holds, and another one takes its place. The permits
of a dead one return when its lease ends, and the next waiter continues.

A process writes what it does to a file of its own, which outlives it. The processes are forked from one that has imported
everything and opened nothing, so several new ones a second are possible.
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
from handfast.testing.processes import ChildProcess, Parent, ProcessFailed, ProcessGroup
from handfast_lab.bench.figures import Hold

__all__ = ["KillLoop", "KillLoopSettings", "Log", "read_log"]

SHORT, LONG = 0.2, 0.001
"""The shares of holds that last up to two milliseconds, and up to two ttls; the others are given back at once."""

KILL_EVERY = 0.3
"""Seconds between two kills, on average."""

RECORD = 4
"""Numbers of a note: 32 bytes, of which a page holds a whole number, so that no kill leaves half of one."""


class KillLoopSettings(NamedTuple):
    """What to do."""

    url: str
    name: str
    """Of the semaphore: nobody else may use it."""
    processes: int
    limit: int
    """Permits, 100 at most: then `status` shows all holders."""
    ttl: float
    operations: int


class Log(NamedTuple):
    """What is known of one life."""

    holds: list[Hold]
    operations: int
    lost: int
    """How many leases were lost before they were given back."""
    longest_wait: float


class _Life(NamedTuple):
    """One process, and the file that it writes its notes to."""

    process: ChildProcess
    log: Path


class KillLoop:
    """So many processes, each replaced when it is killed."""

    def __init__(self, settings: KillLoopSettings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._group = ProcessGroup(preload=[__name__])
        self._chance = random.Random()  # noqa: S311 -- kills are no secrets
        self._lives = 0
        self._done = 0
        self._alive: list[_Life] = []
        self._ended: list[tuple[_Life, float]] = []
        """Those that have ended, each with the moment just before."""
        self.kills = 0

    def fill(self) -> None:
        """Start as many as are missing."""
        while len(self._alive) < self._settings.processes:
            log = self._folder / str(self._lives)
            log.touch()
            process = self._group.start(_live, self._settings, self._lives, log, name=log.name)
            self._lives += 1
            self._alive.append(_Life(process, log))

    def kill(self) -> str:
        """Kill one of them, whether it holds or waits, and start another. Return the label of the dead one."""
        life = self._chance.choice(self._alive)
        if life.process.has_reported:
            return ""  # it has failed, and `stop` says why
        self._alive.remove(life)
        self._end(life)
        self.kills += 1
        self._done += _operations(life.log)
        self.fill()
        return life.log.name

    def next_kill(self) -> float:
        """Return when the next one is to be killed."""
        return monotonic() + self._chance.expovariate(1 / KILL_EVERY)

    def done(self) -> int:
        """Return about how many operations there have been."""
        return self._done + sum(_operations(life.log) for life in self._alive)

    def failed(self) -> bool:
        """Return whether any of them has ended by itself, which they report only when they fail."""
        return any(life.process.has_reported for life in self._alive)

    def stop(self, timeout: float) -> list[str]:
        """Let all finish their operation and end. Kill those that have not after these seconds; return what went wrong."""
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
        """Return what is known of all that have ended."""
        return [read_log(life.log, moment, number) for number, (life, moment) in enumerate(self._ended)]

    def dismiss(self) -> None:
        """Kill all that are left."""
        for life in self._alive:
            self._end(life)
        self._alive.clear()
        self._group.close()

    def _end(self, life: _Life) -> None:
        moment = monotonic()
        self._group.discard(life.process)
        self._ended.append((life, moment))


def _live(parent: Parent, settings: KillLoopSettings, number: int, log: Path) -> None:
    """Acquire and release until the parent says stop."""
    chance = random.Random(number)  # noqa: S311 -- weights and pauses are no secrets
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
    """What a process noted that ended at that moment at the latest."""
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
    """How many permits were taken and given back, by the length of the notes."""
    return log.stat().st_size // (2 * RECORD * array("d").itemsize)
