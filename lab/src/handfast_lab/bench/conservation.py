"""Check that permits of a semaphore are conserved while the processes that use it are killed again and again.

`kill_loop` runs these processes. Three things are checked.

- The server: `status` is read many times a second. At each of these instants at most `limit` permits may be held
  (`over`), and held and free permits must add up to the limit (`unaccounted`): the held permits come from the holders'
  own records, the free ones from the counter that the scripts maintain.
- The clients: each process records its certain holds, on the machine-wide monotonic clock, in a file that survives the
  process. A hold cut short by a kill counts up to the kill, or to the deadline known then if that is earlier. Certain
  holds must fit the limit too (`crowded`).
- The end state: when all processes have stopped and the last lease has expired, no holder may remain, all permits must
  be free, and one client must be able to acquire all of them at once. Entries of killed waiters remain in the queue
  until the next request; their number is reported.
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
"""Seconds between two samples of the server, and between two readings of the progress."""

SLOWEST, STOP_TIMEOUT = 100, 20.0
"""Operations per second below which the run is given up, and seconds allowed for all processes to stop."""

SLACK = 0.5
"""Seconds after the last ttl until the end state is checked."""


@dataclass(slots=True)
class Sampling:
    """The samples of the server."""

    samples: int = 0
    most_held: int = 0
    most_waiting: int = 0
    over: int = 0
    """Samples in which more permits than the limit were held."""
    unaccounted: int = 0
    """Samples in which held and free permits did not add up to the limit."""
    killed_holding: int = 0
    killed_waiting: int = 0

    def look(self, semaphore: Semaphore, dead: str = "") -> None:
        """Take one sample, just after the process with the label ``dead`` was killed."""
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
    """The result of a run."""

    seconds: float
    operations: int
    kills: int
    killed_holding: int
    """Kills of processes that held permits, which return when the lease expires."""
    killed_waiting: int
    """Kills of processes in the queue, whose entries must be skipped."""
    lost: int
    longest_wait: float
    """Seconds, from the call of acquire to its return."""
    samples: int
    most_held: int
    most_waiting: int
    over: int
    unaccounted: int
    crowded: int
    """Number of holds that began while other certain holds left too few permits for them."""
    dead_in_line: int
    """Entries of killed waiters that were still in the queue at the end."""
    trouble: tuple[str, ...]

    @property
    def violations(self) -> int:
        """How often permits were not conserved."""
        return self.over + self.unaccounted + self.crowded


def run(settings: KillLoopSettings, tell: Callable[[int], object] = lambda _: None) -> Conservation:
    """Run the processes until they have done enough operations, or have taken too long.

    ``tell`` is called now and then with the number of operations so far.
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
            trouble += kill_loop.stop(STOP_TIMEOUT)
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
    """Sample and kill until enough operations are done; return the errors."""
    give_up_at = monotonic() + STOP_TIMEOUT + settings.operations / SLOWEST
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
    return [f"there were only {kill_loop.done()} operations within {STOP_TIMEOUT + settings.operations / SLOWEST:g} s"]


def _rest(settings: KillLoopSettings, semaphore: Semaphore) -> tuple[int, list[str]]:
    """Return the number of killed waiters in the queue at the end, and the errors in the end state."""
    time.sleep(settings.ttl + SLACK)
    before = semaphore.status()
    wrong = []
    if before.holders or before.free != settings.limit:
        wrong.append(
            f"at rest {before.free} of {settings.limit} permits were free, and {len(before.holders)} leases existed"
        )
    try:
        everything = semaphore.try_acquire(permits=settings.limit)
        if everything is None or not everything.release():
            wrong.append("at rest no client could acquire all permits at once")
    except HandfastError as error:
        wrong.append(f"at rest no client could acquire all permits at once: {error}")
    after = semaphore.status()
    if after.holders or after.waiting or after.free != settings.limit:
        wrong.append(f"something was left in the end: {after}")
    return before.waiting, wrong
