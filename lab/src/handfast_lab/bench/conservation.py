"""Permits are conserved, though processes that take and give back those of one semaphore are killed all the time.

What these processes do, says `kill_loop`. Three things are looked at.

- The server: many times a second `status` is asked. At each of these instants no more permits may be held than there
  are (`over`), and those held and those free must be as many as there are (`unaccounted`): the one number comes from
  the holders' own records, the other from the count that the scripts keep.
- The clients: each notes in a file of its own, which outlives it, when it had what for certain, on the machine-wide
  monotonic clock. A hold that ended with its process counts up to the kill, or to the deadline known by then. What is
  certain must fit into the limit as well (`crowded`).
- The rest: when all have stopped and the last lease has run out, nobody may still wait or hold, as many permits must be
  free as there are, and somebody must be able to take all of them at once. Waiters that died in line are there until
  somebody looks; how many there were at rest is told.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from handfast import Handfast, HandfastError, Semaphore
from handfast_lab.bench.figures import crowding
from handfast_lab.bench.kill_loop import KillLoop, KillLoopSettings

__all__ = ["Conservation", "Sampling", "run"]

SAMPLE_EVERY, COUNT_EVERY = 0.001, 0.1
"""Seconds between two looks at the server, and between two looks at how much has been done."""

SLOWEST, RETRY_FOR = 100, 20.0
"""Operations a second below which it is given up, and seconds for all to stop."""

SLACK = 0.5
"""Seconds after the last ttl until all must be at rest."""


@dataclass(slots=True)
class Sampling:
    """What was seen of the server."""

    samples: int = 0
    most_held: int = 0
    most_waiting: int = 0
    over: int = 0
    """How often more permits were held than there are."""
    unaccounted: int = 0
    """How often those held and those free were not as many as there are."""
    killed_holding: int = 0
    killed_waiting: int = 0

    def look(self, semaphore: Semaphore, dead: str = "") -> None:
        """Take one sample, just after the process with this label was killed."""
        status = semaphore.status()
        self.killed_holding += any(holder.label == dead for holder in status.holders)
        self.killed_waiting += any(waiter.label == dead for waiter in status.waiters)
        held = sum(holder.weight for holder in status.holders)
        self.samples += 1
        self.most_held = max(self.most_held, held)
        self.most_waiting = max(self.most_waiting, status.waiting)
        self.over += held > semaphore.limit
        self.unaccounted += held + status.free != semaphore.limit


@dataclass(frozen=True, slots=True)
class Conservation:
    """What came of it."""

    seconds: float
    operations: int
    kills: int
    killed_holding: int
    """That left permits to be given back by the end of a lease."""
    killed_waiting: int
    """That left a place in line to be skipped."""
    lost: int
    longest_wait: float
    """Seconds, from the call of acquire to its return."""
    samples: int
    most_held: int
    most_waiting: int
    over: int
    unaccounted: int
    crowded: int
    """How many holds began while those that were certain left too few permits for them."""
    dead_in_line: int
    """Waiters that had died and that nobody had looked at when all was at rest."""
    trouble: tuple[str, ...]

    @property
    def violations(self) -> int:
        """How often permits were not conserved."""
        return self.over + self.unaccounted + self.crowded


def run(settings: KillLoopSettings, tell: Callable[[int], object] = lambda _: None) -> Conservation:
    """Let them take and give until there were so many operations, or too much time has gone by.

    ``tell`` is told now and then how many there have been.
    """
    sampling = Sampling()
    with tempfile.TemporaryDirectory() as folder, Handfast(settings.url) as client:
        semaphore = client.semaphore(settings.name, settings.limit, ttl=settings.ttl)
        kill_loop = KillLoop(settings, Path(folder))
        try:
            begin = monotonic()
            kill_loop.fill()
            trouble = _watch(settings, kill_loop, semaphore, sampling, tell)
            seconds = monotonic() - begin
            trouble += kill_loop.stop(RETRY_FOR)
        finally:
            kill_loop.dismiss()
        dead_in_line, wrong = _rest(settings, semaphore)
        logs = kill_loop.logs()
    return Conservation(
        seconds=seconds,
        operations=sum(log.operations for log in logs),
        kills=kill_loop.kills,
        killed_holding=sampling.killed_holding,
        killed_waiting=sampling.killed_waiting,
        lost=sum(log.lost for log in logs),
        longest_wait=max((log.longest_wait for log in logs), default=0.0),
        samples=sampling.samples,
        most_held=sampling.most_held,
        most_waiting=sampling.most_waiting,
        over=sampling.over,
        unaccounted=sampling.unaccounted,
        crowded=crowding((hold for log in logs for hold in log.holds), settings.limit),
        dead_in_line=dead_in_line,
        trouble=(*trouble, *wrong),
    )


def _watch(
    settings: KillLoopSettings,
    kill_loop: KillLoop,
    semaphore: Semaphore,
    sampling: Sampling,
    tell: Callable[[int], object],
) -> list[str]:
    """Sample and kill until enough was done; what went wrong."""
    give_up_at = monotonic() + RETRY_FOR + settings.operations / SLOWEST
    next_kill, next_count = kill_loop.next_kill(), monotonic()
    while (now := monotonic()) < give_up_at:
        sampling.look(semaphore)
        if now >= next_kill:
            sampling.look(semaphore, kill_loop.kill())
            next_kill = kill_loop.next_kill()
        if now >= next_count:
            tell(kill_loop.done())
            if kill_loop.done() >= settings.operations or kill_loop.failed():
                return []
            next_count = now + COUNT_EVERY
        time.sleep(SAMPLE_EVERY)
    return [f"there were only {kill_loop.done()} operations within {RETRY_FOR + settings.operations / SLOWEST:g} s"]


def _rest(settings: KillLoopSettings, semaphore: Semaphore) -> tuple[int, list[str]]:
    """How many dead waiters stand in line when all is over, and what is not as it must be."""
    time.sleep(settings.ttl + SLACK)
    before = semaphore.status()
    wrong = []
    if before.holders or before.free != settings.limit:
        wrong.append(
            f"at rest {before.free} of {settings.limit} permits were free, and {len(before.holders)} leases there"
        )
    try:
        everything = semaphore.try_acquire(permits=settings.limit)
        if everything is None or not everything.release():
            wrong.append("at rest nobody could take all permits at once")
    except HandfastError as error:
        wrong.append(f"at rest nobody could take all permits at once: {error}")
    after = semaphore.status()
    if after.holders or after.waiting or after.free != settings.limit:
        wrong.append(f"something was left in the end: {after}")
    return before.waiting, wrong
