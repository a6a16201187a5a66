"""The course of a benchmark: the order of the measurements, and the client processes.

A client that does not answer in time is killed and replaced; its measurement is reported as failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from handfast_lab.bench.figures import Case, Measurement, Schedule, measure
from handfast_lab.bench.worker import Job, work
from handfast_lab.bench.workload import Conn, Scene, Workload
from handfast_lab.children import ChildProcess, ProcessFailed, ProcessGroup

__all__ = ["BenchPlan", "ClientPool", "in_rounds", "in_turn", "run"]

WARM_UP = 0.2
"""Seconds for which all clients contend before anything is counted."""

PREPARATION = 0.2
"""Approximate seconds until the clients of a measurement are ready."""

HEAD_START = 0.05
"""Seconds between sending the schedule and its begin, so that all clients receive it in time."""

READY_TIMEOUT, GRACE = 20.0, 10.0
"""Seconds for a client to become ready, and to send its result after the end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to measure: each workload with every number of clients and all its contenders, in several rounds."""

    url: str
    workloads: Mapping[str, Workload]
    """By setting."""
    clients: tuple[int, ...]
    rounds: int
    seconds: float

    def __len__(self) -> int:
        return self.rounds * len(self.clients) * sum(len(workload.contenders) for workload in self.workloads.values())

    @property
    def duration(self) -> float:
        """Approximate duration in seconds."""
        return len(self) * (self.seconds + WARM_UP + PREPARATION)

    def order(self) -> Iterator[Case]:
        """Yield the measurements round by round.

        The contenders of a setting and a number of clients follow one another, so that a longer slowdown of the machine
        affects all of them. The first place rotates.
        """
        for number in range(self.rounds):
            for place, (setting, clients) in enumerate(product(self.workloads, self.clients)):
                for contender in in_turn(tuple(self.workloads[setting].contenders), number + place):
                    yield Case(number, clients, contender, setting)


def in_rounds(contenders: Iterable[str], rounds: int, clients: int) -> Iterator[Case]:
    """Yield one measurement for each contender in each round; the first place rotates."""
    for number in range(rounds):
        for contender in in_turn(tuple(contenders), number):
            yield Case(number, clients, contender)


def in_turn(contenders: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """Return the contenders rotated, so that each comes first in its turn."""
    first = turn % max(1, len(contenders))
    return contenders[first:] + contenders[:first]


def run(plan: BenchPlan) -> Iterator[Measurement]:
    """Yield one measurement after the other."""
    with ClientPool() as pool, redis.Redis.from_url(plan.url) as conn:
        for case in plan.order():
            yield _measure(plan, case, pool, conn)


def _measure(plan: BenchPlan, case: Case, pool: ClientPool, conn: Conn) -> Measurement:
    workload = plan.workloads[case.setting]
    name = f"bench-{os.getpid()}-{case.setting}-{case.contender}-{case.round}-{case.clients}"
    scene = Scene(plan.url, name, case.contender, case.clients)
    if refusal := workload.refusal(conn):
        return measure(case, Schedule(0, 0, plan.seconds), [], [refusal])
    workload.prepare(scene, conn)
    try:
        schedule, reports, trouble = pool.do(workload.jobs(scene), plan.seconds)
        wrong = trouble or workload.inspect(scene, conn)
        notes = [note for report in reports for note in report.notes]
        connections = reports[0].connections if reports else None
        return measure(case, schedule, notes, wrong, connections, limit=workload.limit)
    except BaseException:
        pool.dismiss()  # before the keys of its clients are deleted
        raise
    finally:
        workload.clear(scene, conn)


class ClientPool:
    """The client processes, reused from one measurement to the next."""

    def __init__(self) -> None:
        self._group = ProcessGroup()

    def do(self, jobs: Sequence[Job[T]], seconds: float) -> tuple[Schedule, list[T], list[str]]:
        """Let as many clients do one job each at the same time. Return the schedule, the results and the errors.

        Without errors the results are in the order of the jobs.
        """
        while len(self._group) < len(jobs):
            self._group.start(work)
        clients = [client for client, _ in zip(self._group, jobs, strict=False)]
        for client, job in zip(clients, jobs, strict=True):
            client.send(job)
        _, trouble = _reports(clients, "ready", monotonic() + READY_TIMEOUT, "was not ready")
        begin = monotonic() + HEAD_START
        schedule = Schedule(begin, begin + WARM_UP, begin + WARM_UP + seconds)
        results: list[T] = []
        if not trouble:
            for client in clients:
                client.send(schedule)
            results, trouble = _reports(clients, "result", schedule.until + GRACE, "gave no result")
        if trouble:
            for client in clients:
                self._group.discard(client)
        return schedule, results, trouble

    def dismiss(self) -> None:
        """End all clients at once."""
        self._group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.dismiss()


def _reports(clients: list[ChildProcess], word: str, until: float, complaint: str) -> tuple[list[Any], list[str]]:
    """Return the values of the expected reports, and the errors received instead."""
    values: list[Any] = []
    trouble: list[str] = []
    for client in clients:
        try:
            report = client.receive(until - monotonic())
        except ProcessFailed as failure:
            trouble.append(f"a client {complaint} and was killed: {failure}")
        else:
            (values if report.word == word else trouble).append(report.value)
    return values, trouble
