"""The course of a benchmark: the order of the measurements, and the client processes.

A client that does not answer in time is killed and replaced; its measurement is reported as failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from handfast.testing.processes import ChildProcess, ProcessFailed, ProcessGroup
from handfast_lab.bench.figures import ONE, Case, Measurement, Schedule, measure
from handfast_lab.bench.worker import ContendJob, Job, work

__all__ = ["WARM_UP", "BenchPlan", "ClientPool", "forget", "in_rounds", "in_turn", "run"]

WARM_UP = 0.2
"""Seconds for which all clients contend before anything is counted."""

HEAD_START = 0.05
"""Seconds between sending the schedule and its begin, so that all clients receive it in time."""

READY_TIMEOUT, GRACE = 20.0, 10.0
"""Seconds for a client to become ready, and to send its result after the end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The cases to measure: every contender with every number of clients in every setting, in several rounds."""

    url: str
    contenders: tuple[str, ...]
    clients: tuple[int, ...]
    rounds: int
    seconds: float
    hold: float = 0.0
    settings: tuple[str, ...] = (ONE,)

    def __len__(self) -> int:
        return len(self.contenders) * len(self.clients) * len(self.settings) * self.rounds

    def order(self) -> Iterator[Case]:
        """Yield the measurements round by round; the first place rotates among the contenders."""
        for number in range(self.rounds):
            for place, (setting, clients) in enumerate(product(self.settings, self.clients)):
                for contender in in_turn(self.contenders, number + place):
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


def run(plan: BenchPlan, limit: int | None = None) -> Iterator[Measurement]:
    """Yield the measurements of a lock, or with ``limit`` of a semaphore, that processes contend for."""
    with ClientPool() as pool, redis.Redis.from_url(plan.url) as conn:
        for case in plan.order():
            kind = "" if limit is None else "semaphore-"
            name = f"bench-{kind}{case.contender}-{case.round}-{case.clients}"
            job = ContendJob(case.contender, plan.url, name, plan.hold, limit)
            try:
                yield measure(case, *pool.do(job, case.clients, plan.seconds), limit=limit or 1)
            except BaseException:
                pool.dismiss()  # before their keys are deleted
                raise
            finally:
                if limit is not None:
                    forget(conn, name)


def forget(conn: redis.Redis, name: str) -> None:
    """Delete the keys that listings and rivals leave for a semaphore, some of them without a TTL."""
    listings = [f"{name}{part}" for part in ("", ":owner", ":counter")]
    conn.delete(*listings, f"lock:{name}", *(f"semaphore:{name}:{part}" for part in ("owners", "fencing", "queue")))


class ClientPool:
    """The client processes, reused from one measurement to the next."""

    def __init__(self) -> None:
        self._group = ProcessGroup()

    def do(self, job: Job[T], count: int, seconds: float) -> tuple[Schedule, list[T], list[str]]:
        """Let ``count`` clients do the job at the same time. Return the schedule, the results and the errors."""
        return self.do_each([job] * count, seconds)

    def do_each(self, jobs: Sequence[Job[T]], seconds: float) -> tuple[Schedule, list[T], list[str]]:
        """The same with one job per client. Without errors the results are in the order of the jobs."""
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
