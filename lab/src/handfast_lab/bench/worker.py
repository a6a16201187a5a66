"""One client process of a benchmark: it does the jobs that it receives and reports their results."""

from __future__ import annotations

import gc
import time
import traceback
from array import array
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from handfast.testing.processes import Parent
from handfast_lab.bench.contenders import LOCKS, SEMAPHORES, Contended
from handfast_lab.bench.figures import Notes, Schedule

__all__ = ["ContendJob", "Job", "Start", "contend", "wait_until", "work"]

Start = Callable[[], Schedule]
"""Called by a job when it is ready. Returns the schedule once all clients are ready."""

T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """Work for a client process. The job and its result are pickled."""

    def do(self, start: Start) -> T_co:
        """Prepare, call ``start``, and work until the schedule ends. Return the result."""


class ContendJob(NamedTuple):
    """Contend for one lock, or for one permit of a semaphore."""

    contender: str
    url: str
    name: str
    hold: float
    """Seconds in the critical section; 0 for none."""
    limit: int | None = None
    """Permits of the semaphore; None for a lock."""

    def do(self, start: Start) -> Notes:
        """Acquire and release until the end of the schedule."""
        contenders = LOCKS if self.limit is None else SEMAPHORES
        return contend(Contended(contenders[self.contender], self.url, self.name, self.limit), start, self.hold)


def work(parent: Parent) -> None:
    """Do jobs until the process is killed. For each, report ``ready`` and ``result``, or ``failed``."""

    def start() -> Schedule:
        parent.report("ready")
        schedule: Schedule = parent.receive()
        return schedule

    while True:
        job: Job[object] = parent.receive()
        try:
            result = job.do(start)
        except Exception:  # noqa: BLE001 -- the parent reports it
            parent.report("failed", traceback.format_exc())
        else:
            parent.report("result", result)


def contend(client: Contended, start: Start, hold: float) -> Notes:
    """Acquire and release until the schedule ends; then close the client."""
    try:
        client.acquire()  # once, to open connections and load scripts
        client.release()
        gc.collect()
        schedule = start()
        acquired, released = array("d"), array("d")
        wait_until(schedule.begin)
        tries = [
            _contend_until(client, end, hold, acquired, released)  # the warm-up, then the measured period
            for end in (schedule.go, schedule.until)
        ]
        return Notes(tries[1] - tries[0], acquired, released)
    finally:
        client.close()


def wait_until(moment: float) -> None:
    """Sleep until that moment of the machine-wide monotonic clock."""
    time.sleep(max(0, moment - monotonic()))


def _contend_until(client: Contended, end: float, hold: float, acquired: array[float], released: array[float]) -> int:
    """Acquire and release until ``end``.

    Return the tries so far, without those of an acquire that ended too late.
    """
    acquire, release = client.acquire, client.release
    note_acquired, note_released = acquired.append, released.append
    while monotonic() < end:
        acquire()
        note_acquired(monotonic())
        if hold:
            time.sleep(hold)
        note_released(monotonic())
        release()
    return client.tries - (bool(acquired) and acquired[-1] >= end)
