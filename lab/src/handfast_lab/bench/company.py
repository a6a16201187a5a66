"""Processes that take and give back permits of one semaphore, each replaced when it is killed.

Each of them takes a random number of permits, rather few than many, gives them back at once or a little later, sometimes
much later than the ttl, and begins again. At random moments one is killed by SIGKILL, waiting or holding as it may be, and
another one takes its place. Whatever a dead one held comes back when its lease ends, and whoever stood behind it in line
goes on.

What a process does it notes in a file of its own, which outlives it. They are forked from one process that has everything
imported and nothing begun: so there can be several new ones a second.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import time
import traceback
from array import array
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from handfast import Handfast
from handfast_lab.bench.figures import Hold

__all__ = ["Company", "Log", "Plan", "read_log"]

SHORT, LONG = 0.2, 0.001
"""The shares of holds that last up to two milliseconds, and up to two ttls; the others are given back at once."""

KILL_EVERY = 0.3
"""Seconds between two kills, on average."""

RECORD = 4
"""Numbers of a note: 32 bytes, of which a page holds a whole number, so that no kill leaves half of one."""


class Plan(NamedTuple):
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
    """One process, our end of its pipe, and where it notes what it does."""

    process: BaseProcess
    pipe: Connection
    log: Path


class Company:
    """So many processes, each replaced when it is killed."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._chance = random.Random()  # noqa: S311 -- kills are no secrets
        self._lives = 0
        self._done = 0
        self._alive: list[_Life] = []
        self._ended: list[tuple[_Life, float]] = []
        """Those that were killed, each with the moment just before, and those that have stopped."""
        self.kills = 0

    def fill(self) -> None:
        """Start as many as are missing."""
        while len(self._alive) < self._plan.processes:
            log = self._folder / str(self._lives)
            log.touch()
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_live, args=(self._plan, self._lives, log, theirs), daemon=True)
            process.start()
            theirs.close()
            self._lives += 1
            self._alive.append(_Life(process, ours, log))

    def kill(self) -> str:
        """Kill one of them, whatever it is at, and start another; the label of the dead one."""
        life = self._chance.choice(self._alive)
        if life.process.exitcode is not None:
            return ""  # it ended by itself, and that is a failure
        self._alive.remove(life)
        self._end(life)
        self.kills += 1
        self._done += _operations(life.log)
        self.fill()
        return life.log.name

    def next_kill(self) -> float:
        """When the next one is to be killed."""
        return monotonic() + self._chance.expovariate(1 / KILL_EVERY)

    def done(self) -> int:
        """About how many operations there have been."""
        return self._done + sum(_operations(life.log) for life in self._alive)

    def failed(self) -> bool:
        """Whether any of them has ended by itself."""
        return any(life.process.exitcode is not None for life in self._alive)

    def stop(self, patience: float) -> list[str]:
        """Let all finish what they are at, and end; who can't within these seconds is killed and complained of."""
        until = monotonic() + patience
        for life in self._alive:
            life.pipe.close()
        trouble = []
        for life in self._alive:
            life.process.join(max(0, until - monotonic()))
            if life.process.exitcode is None:
                trouble.append(f"a process was stuck for {patience:g} s and was killed")
            elif life.process.exitcode:
                trouble.append(_complaint(life))
            self._end(life)
        self._alive.clear()
        return trouble

    def logs(self) -> list[Log]:
        """What is known of all that have ended."""
        return [read_log(life.log, moment, number) for number, (life, moment) in enumerate(self._ended)]

    def dismiss(self) -> None:
        """Kill all that are left."""
        for life in self._alive:
            self._end(life)
        self._alive.clear()

    def _end(self, life: _Life) -> None:
        moment = monotonic()
        life.process.kill()
        life.process.join()
        life.process.close()
        life.pipe.close()
        self._ended.append((life, moment))


def _live(plan: Plan, number: int, log: Path, pipe: Connection) -> None:
    """Take and give back until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the parent alone
    chance = random.Random(number)  # noqa: S311 -- weights and pauses are no secrets
    try:
        with Handfast(plan.url, label=log.name) as client, log.open("ab", buffering=0) as notes:
            semaphore = client.semaphore(plan.name, plan.limit, ttl=plan.ttl)
            while not pipe.poll():
                weight = min(chance.randint(1, plan.limit), chance.randint(1, plan.limit))  # so that several fit in
                asked = monotonic()
                lease = semaphore.acquire(permits=weight)
                acquired = monotonic()
                until = monotonic() + lease.remaining()
                notes.write(array("d", (asked, acquired, until, weight)).tobytes())
                drawn = chance.random()
                if drawn < LONG:
                    time.sleep(chance.uniform(0, 2 * plan.ttl))
                elif drawn < LONG + SHORT:
                    time.sleep(chance.uniform(0, 0.002))
                released = monotonic()
                notes.write(array("d", (released, not lease.lost, 0, 0)).tobytes())  # before others can have it
                lease.release()
    except Exception:  # noqa: BLE001 -- whatever it was, the parent reports it
        log.with_suffix(".error").write_text(traceback.format_exc(), encoding="utf-8")
        raise SystemExit(1) from None


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


def _complaint(life: _Life) -> str:
    with contextlib.suppress(OSError):
        return life.log.with_suffix(".error").read_text(encoding="utf-8")
    return f"a process ended by itself, with {life.process.exitcode}"
