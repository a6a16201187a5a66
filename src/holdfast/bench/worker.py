"""One client process: told what to do over a pipe, it contends and sends back its notes."""

from __future__ import annotations

import gc
import time
import traceback
from array import array
from multiprocessing.connection import Connection
from time import monotonic
from typing import NamedTuple

from holdfast.bench.contenders import CONTENDERS, Contender
from holdfast.bench.figures import Notes, Schedule

__all__ = ["Job", "work"]


class Job(NamedTuple):
    """What to contend with."""

    contender: str
    url: str
    name: str
    hold: float
    """Seconds in the critical section; 0 for none."""


def work(pipe: Connection) -> None:
    """Do jobs until the other end of the pipe is closed. Every job is answered: ready, then notes; or an error text."""
    while True:
        try:
            job = pipe.recv()
            try:
                _do(job, pipe)
            except (EOFError, BrokenPipeError):
                raise
            except Exception:  # noqa: BLE001 -- whatever it was, the parent reports it
                pipe.send(traceback.format_exc())
        except (EOFError, BrokenPipeError):
            return


def _do(job: Job, pipe: Connection) -> None:
    contender = CONTENDERS[job.contender](job.url, job.name)
    try:
        contender.acquire()  # once, so that connections are made and scripts loaded
        contender.release()
        gc.collect()
        pipe.send("ready")
        schedule: Schedule = pipe.recv()
        pipe.send(_contend(contender, schedule, job.hold))
    finally:
        contender.close()


def _contend(contender: Contender, schedule: Schedule, hold: float) -> Notes:
    acquired, released = array("d"), array("d")
    time.sleep(max(0, schedule.begin - monotonic()))
    tries = [
        _contend_until(contender, end, hold, acquired, released)  # the warm-up, and what counts
        for end in (schedule.go, schedule.until)
    ]
    return Notes(tries[1] - tries[0], acquired, released)


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
