"""Run many histories: every primitive with every API under every fault, for a time or up to a number.

Worker processes, each with its own servers, go through the combinations in turn, each time with another seed. Each
history ends in a `Verdict`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, NamedTuple, cast

from handfast_lab.chaos.faults import FAULTS
from handfast_lab.chaos.history_run import Cell, HistoryRunner, Verdict

__all__ = ["Campaign", "cells", "played", "run"]

RETRY_FOR = 60.0
"""Seconds that a process may take to finish its current history."""


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
    return [cell for cell in every if cell.api in FAULTS[cell.fault].apis]


def run(campaign: Campaign, progress: Callable[[Verdict], object]) -> None:
    """Run the campaign; call `progress` with each verdict."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["handfast_lab.chaos.history_run"])
    numbers = itertools.count()
    until = monotonic() + campaign.seconds
    workers = dict(_started(context, campaign.processes))
    played = 0
    try:
        waiting = set(workers)
        for pipe in workers:
            _assign(pipe, campaign, next(numbers))
        while waiting:
            for ready in wait(list(waiting)):
                pipe = cast("Connection", ready)
                waiting.discard(pipe)
                progress(pipe.recv())
                played += 1
                if played + len(waiting) < campaign.histories and monotonic() < until:
                    _assign(pipe, campaign, next(numbers))
                    waiting.add(pipe)
    finally:
        for pipe, process in workers.items():
            pipe.close()
            process.join(RETRY_FOR)
            process.kill()
            process.join()


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


def _assign(pipe: Connection, campaign: Campaign, number: int) -> None:
    pipe.send((campaign.cells[number % len(campaign.cells)], campaign.seed + number))


def _started(context: multiprocessing.context.BaseContext, count: int) -> Iterator[tuple[Connection, BaseProcess]]:
    for _ in range(count):
        parent_end, child_end = context.Pipe()
        process = context.Process(target=_work, args=(child_end,))  # type: ignore[attr-defined]  # each has it
        process.start()
        child_end.close()
        yield parent_end, process


def _work(pipe: Connection) -> None:
    """Run the histories requested through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the parent alone
    logging.getLogger("handfast").setLevel(logging.CRITICAL)  # lost leases are expected here
    with HistoryRunner() as runner, contextlib.suppress(EOFError):
        while True:
            cell, seed = pipe.recv()
            pipe.send(runner.run(cell, seed))
