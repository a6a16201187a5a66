"""One client process: told what to do over a pipe, it does it and sends back what came of it."""

from __future__ import annotations

import gc
import time
import traceback
from array import array
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from handfast_lab.bench.contenders import CONTENDERS, Contender
from handfast_lab.bench.figures import Notes, Schedule

__all__ = ["READY", "Job", "Start", "Work", "contend", "wait_until", "work"]

READY = "ready"

Start = Callable[[], Schedule]
"""Called by a job when it is ready; it returns when all others are, with the moments of what follows."""

T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """What a client process can be told to do. It travels through a pipe, and so does what comes of it."""

    def do(self, start: Start) -> T_co:
        """Make ready, call ``start``, and do it. What comes of it is no text: a text is a complaint."""


class Job(NamedTuple):
    """Contend for one lock."""

    contender: str
    url: str
    name: str
    hold: float
    """Seconds in the critical section; 0 for none."""

    def do(self, start: Start) -> Notes:
        """Acquire and release; what was seen of it."""
        return contend(CONTENDERS[self.contender](self.url, self.name), start, self.hold)


def work(pipe: Connection) -> None:
    """Do jobs until the other end of the pipe is closed. Every job is answered: ready, then its result; or a text."""

    def start() -> Schedule:
        pipe.send(READY)
        try:
            schedule: Schedule = pipe.recv()
        except EOFError:
            raise SystemExit from None  # the parent is gone, and no contender's error handling is to think otherwise
        return schedule

    while True:
        try:
            job: Work[Any] = pipe.recv()
            try:
                answer = job.do(start)
            except Exception:  # noqa: BLE001 -- whatever it was, the parent reports it
                answer = traceback.format_exc()
            pipe.send(answer)
        except (EOFError, BrokenPipeError):
            return


def contend(contender: Contender, start: Start, hold: float) -> Notes:
    """Acquire and release until the time is over; then it is closed."""
    try:
        contender.acquire()  # once, so that connections are made and scripts loaded
        contender.release()
        gc.collect()
        schedule = start()
        acquired, released = array("d"), array("d")
        wait_until(schedule.begin)
        tries = [
            _contend_until(contender, end, hold, acquired, released)  # the warm-up, and what counts
            for end in (schedule.go, schedule.until)
        ]
        return Notes(tries[1] - tries[0], acquired, released)
    finally:
        contender.close()


def wait_until(moment: float) -> None:
    """Sleep until that moment of the machine-wide monotonic clock."""
    time.sleep(max(0, moment - monotonic()))


def _contend_until(
    contender: Contender, end: float, hold: float, acquired: array[float], released: array[float]
) -> int:
    """Acquire and release until then; how many tries that took in all, the last one not counted if it came too late."""
    acquire, release = contender.acquire, contender.release
    note_acquired, note_released = acquired.append, released.append
    while monotonic() < end:
        acquire()
        note_acquired(monotonic())
        if hold:
            time.sleep(hold)
        note_released(monotonic())
        release()
    return contender.tries - (bool(acquired) and acquired[-1] >= end)
