"""Run many histories: every primitive with every API under every fault, for a time or up to a number.

Worker processes, each with its own servers, go through the combinations in turn, each time with another seed. Each
history ends in a `Verdict`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from handfast_lab.chaos.faults import FAULTS
from handfast_lab.chaos.history_run import Cell, HistoryRunner, Verdict
from handfast_lab.chaos.workers import LIMITER, ONCE
from handfast_lab.children import ChildProcess, Parent, ProcessFailed, ProcessGroup

__all__ = ["Campaign", "cells", "played", "run"]

RETRY_FOR = 60.0
"""Seconds that a process may take to stop its servers."""


class Campaign(NamedTuple):
    """What to run. The campaign ends when either bound is reached."""

    cells: Sequence[Cell]
    seed: int
    histories: float = inf
    seconds: float = inf
    processes: int = 2


def cells(primitives: Sequence[str], apis: Sequence[str], faults: Sequence[str]) -> list[Cell]:
    """Return all valid combinations."""
    every = itertools.starmap(Cell, itertools.product(primitives, apis, faults))
    return [
        cell
        for cell in every
        if cell.api in FAULTS[cell.fault].apis
        and not (cell.primitive == LIMITER and FAULTS[cell.fault].of_leases)
        and not (cell.primitive == ONCE and FAULTS[cell.fault].of_names)
    ]


def run(campaign: Campaign, progress: Callable[[Verdict], object]) -> None:
    """Run the campaign; call `progress` with each verdict."""
    numbers = itertools.count()
    until = monotonic() + campaign.seconds

    def assign(worker: ChildProcess) -> bool:
        """Let a worker run the next history, if there is one."""
        number = next(numbers)
        is_left = number < campaign.histories and monotonic() < until
        if is_left:
            worker.order("run", campaign.cells[number % len(campaign.cells)], campaign.seed + number)
        return is_left

    with ProcessGroup(preload=[HistoryRunner.__module__]) as group:
        workers = [group.start(_work) for _ in range(campaign.processes)]
        busy = {worker for worker in workers if assign(worker)}
        while busy:
            for worker, report in group.receive(RETRY_FOR):
                if report.word != "done":
                    raise ProcessFailed(f"a history failed: {report.value}")
                progress(report.value)
                if not assign(worker):
                    busy.discard(worker)
        for worker in workers:
            worker.order("end")
        for worker in workers:
            with contextlib.suppress(ProcessFailed):  # it has ended
                worker.receive(RETRY_FOR)


def played(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """Sum up what ran, by primitive, API and fault, and list the findings with their seeds."""
    sums: dict[Any, dict[str, Any]] = defaultdict(
        lambda: {"histories": 0, "operations": 0, "strikes": 0, "seconds": 0.0, "findings": []}
    )
    for verdict in verdicts:
        entry = sums[verdict.cell]
        entry["histories"] += 1
        entry["operations"] += verdict.operations
        entry["strikes"] += verdict.strikes
        entry["seconds"] = round(entry["seconds"] + verdict.seconds, 3)
        entry["findings"] += [{"seed": verdict.seed, "text": text} for text in verdict.findings]
    return [cell._asdict() | entry for cell, entry in sorted(sums.items())]


def _work(parent: Parent) -> None:
    """Run the histories that the parent orders."""
    logging.getLogger("handfast").setLevel(logging.CRITICAL)  # lost leases are expected here
    with HistoryRunner() as runner:
        parent.serve({"run": runner.run, "end": sys.exit}, answer=True)
