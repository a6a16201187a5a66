"""One client process of a benchmark: it does the jobs that it receives and reports their results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from time import monotonic
from typing import Protocol, TypeVar

from handfast_lab.bench.figures import Schedule
from handfast_lab.children import Parent

__all__ = ["Job", "Start", "wait_until", "work"]

Start = Callable[[], Schedule]
"""Called by a job when it is ready. Returns the schedule once all clients are ready."""

T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """Work for a client process. The job and its result are pickled."""

    def do(self, start: Start) -> T_co:
        """Prepare, call ``start``, and work until the schedule ends. Return the result."""


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


def wait_until(moment: float) -> None:
    """Sleep until that moment of the machine-wide monotonic clock."""
    time.sleep(max(0, moment - monotonic()))
