"""The order of a benchmark: which measurement comes when, and the crew of processes that does each.

A client that does not answer in time is killed and replaced; its measurement is reported as failed. Whatever ends a
benchmark, no process of it is left: the crew is killed on the way out, and clients whose parent is gone end by
themselves, because their pipe is.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from handfast_lab.bench.figures import ONE, Case, Measurement, Schedule, measure
from handfast_lab.bench.worker import READY, Job, Work, work

__all__ = ["WARM_UP", "Crew", "Plan", "in_rounds", "in_turn", "run"]

WARM_UP = 0.2
"""Seconds that all clients contend before anything counts."""

HEAD_START = 0.05
"""Seconds between telling the clients when to begin and that moment: all are told by then."""

READY_TIMEOUT, GRACE = 20.0, 10.0
"""Seconds for a client to be ready, and to send its result after the end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

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
        """Round by round; the contenders take turns at being first."""
        for number in range(self.rounds):
            for place, (setting, clients) in enumerate(product(self.settings, self.clients)):
                for contender in in_turn(self.contenders, number + place):
                    yield Case(number, clients, contender, setting)


def in_rounds(contenders: Iterable[str], rounds: int, clients: int) -> Iterator[Case]:
    """Where there is one measurement for each contender in a round: the same turns."""
    for number in range(rounds):
        for contender in in_turn(tuple(contenders), number):
            yield Case(number, clients, contender)


def in_turn(contenders: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """The contenders in an order in which each of them comes first, when its turn has come."""
    first = turn % max(1, len(contenders))
    return contenders[first:] + contenders[:first]


def run(plan: Plan) -> Iterator[Measurement]:
    """Let processes contend, one measurement after the other."""
    with Crew() as crew:
        for case in plan.order():
            job = Job(case.contender, plan.url, f"bench-{case.contender}-{case.round}-{case.clients}", plan.hold)
            yield measure(case, *crew.do(job, case.clients, plan.seconds))


class _Client:
    """One process and our end of its pipe."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=work, args=(theirs,), daemon=True)
        # Inherited: a Ctrl-C in the terminal is for the parent alone, which then ends its clients.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
            theirs.close()

    def end(self) -> None:
        """Kill the process and wait until it is gone."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()


class Crew:
    """As many client processes as the largest measurement needs, kept from one to the next."""

    def __init__(self) -> None:
        self._clients: list[_Client] = []

    def do(self, job: Work[T], count: int, seconds: float) -> tuple[Schedule, list[T], list[str]]:
        """Let ``count`` clients do the job at the same time; when they did it, what came of it, and what went wrong."""
        return self.do_each([job] * count, seconds)

    def do_each(self, jobs: Sequence[Work[T]], seconds: float) -> tuple[Schedule, list[T], list[str]]:
        """The same with a job for each client. Where nothing went wrong the results are in the order of the jobs."""
        while len(self._clients) < len(jobs):
            self._clients.append(_Client())
        clients = self._clients[: len(jobs)]
        for client, job in zip(clients, jobs, strict=True):
            client.pipe.send(job)
        answers = self._answers(clients, monotonic() + READY_TIMEOUT, "was not ready in time")
        trouble = [answer for answer in answers if answer != READY]
        begin = monotonic() + HEAD_START
        schedule = Schedule(begin, begin + WARM_UP, begin + WARM_UP + seconds)
        if trouble:
            self._dismiss(clients)
            return schedule, [], [str(answer) for answer in trouble]
        for client in clients:
            client.pipe.send(schedule)
        answers = self._answers(clients, schedule.until + GRACE, "did not end in time")
        results = [answer for answer in answers if not isinstance(answer, str)]
        trouble = [answer for answer in answers if isinstance(answer, str)]
        if trouble:
            self._dismiss(clients)
        return schedule, results, trouble

    def dismiss(self) -> None:
        """End all clients at once, whatever they do."""
        self._dismiss(list(self._clients))

    def _answers(self, clients: list[_Client], until: float, complaint: str) -> list[Any]:
        return [_answer(client.pipe, until, complaint) for client in clients]

    def _dismiss(self, clients: list[_Client]) -> None:
        for client in clients:
            self._clients.remove(client)
            client.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.dismiss()


def _answer(pipe: Connection, until: float, complaint: str) -> Any:
    with contextlib.suppress(EOFError, OSError):
        if not pipe.poll(max(0, until - monotonic())):
            return f"a client {complaint} and was killed"
        return pipe.recv()
    return "a client ended by itself"
