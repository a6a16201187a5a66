"""Measure how one caller makes a result while the others wait for it, one library after the other, on one server.

Callers in several processes ask for one key at the same moment. Counted are the runs, the time from the end of the
first run to the last answer, and what the server did for each caller: all its commands, those within scripts too, and
its CPU time. Then one process finds the result again and again. What the server has stored of the key is its memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import redis

from handfast_lab.bench.runner import ClientPool, in_rounds
from handfast_lab.bench.worker import Start, wait_until
from handfast_lab.rivals.once import RUNNERS
from handfast_lab.rivals.once.contender import Lifetimes

__all__ = ["Plan", "Stampede", "StampedeRow", "measure", "summarize"]

RESULT = "x" * 100
"""What is made: 100 bytes."""

LIFETIMES = Lifetimes(keep=600.0, ttl=30.0)
"""Of the result and of the run."""

PATIENCE_S = 60.0
"""Seconds that answers may take beyond the run. Waiters that poll a lock get it one after the other."""


class Plan(NamedTuple):
    """So many callers in so many processes, and how long the run takes and the result is found, in seconds."""

    callers: int
    processes: int
    work_s: float
    find_s: float


@dataclass(frozen=True, slots=True)
class Stampede:
    """The callers of one contender in one round."""

    round: int
    contender: str
    callers: int
    runs: int
    answered: int
    last_ms: float
    """From the end of the first run to the last answer."""
    commands: float
    """Commands of the server for each caller."""
    server_us: float
    """CPU time of the server for each caller, in microseconds."""
    found: float
    """Results that one process finds in a second."""
    bytes: int
    """What the server has stored of the key at last."""


@dataclass(frozen=True, slots=True)
class StampedeRow:
    """All rounds of one contender: medians, and of the runs the least and the most."""

    contender: str
    fewest: int
    most: int
    last_ms: float
    commands: float
    server_us: float
    found: float
    bytes: int


class Asked(NamedTuple):
    """When the runs of a process ended, how many of its callers had the result, and when the last of them had it."""

    ended: list[float]
    answered: int
    last_at: float


class Ask(NamedTuple):
    """Let the callers of one process ask."""

    url: str
    contender: str
    name: str
    callers: int
    work_s: float

    def do(self, start: Start) -> Asked:
        ended: list[float] = []

        def work() -> str:
            time.sleep(self.work_s)
            ended.append(monotonic())
            return RESULT

        with RUNNERS[self.contender].open(self.url, LIFETIMES) as runner:
            runner.run(f"{self.name.rpartition('-')[0]}-warm", lambda: RESULT)  # connects, and loads scripts
            wait_until(start().go)
            answers = runner.run_many(self.name, work, self.callers)
            return Asked(ended, answers.count(RESULT), monotonic())


class Find(NamedTuple):
    """Find the result as often as possible. Return how often in a second."""

    url: str
    contender: str
    name: str

    def do(self, start: Start) -> float:
        with RUNNERS[self.contender].open(self.url, LIFETIMES) as runner:
            runner.run(self.name, lambda: RESULT)
            schedule, count = start(), 0
            wait_until(schedule.go)
            while monotonic() < schedule.until:
                runner.run(self.name, lambda: RESULT)
                count += 1
            return count / (schedule.until - schedule.go)


def measure(url: str, contenders: Sequence[str], plan: Plan, rounds: int) -> Iterator[Stampede]:
    """Yield the figures of each contender in each round. Raises RuntimeError if a process fails."""
    each = plan.callers // plan.processes
    with ClientPool() as pool, redis.Redis.from_url(url) as conn:
        for case in in_rounds(contenders, rounds, plan.processes):
            name = f"bench-{os.getpid()}-{case.round}"
            try:
                job = Ask(url, case.contender, name, each, plan.work_s)
                conn.config_resetstat()
                before = _cpu(conn)
                asked: list[Asked] = _results(case.contender, pool.do([job] * plan.processes, plan.work_s + PATIENCE_S))
                commands, cpu = _commands(conn), _cpu(conn) - before
                (found,) = _results(case.contender, pool.do([Find(url, case.contender, name)], plan.find_s))
                stored = sum(int(conn.memory_usage(key, samples=0) or 0) for key in _keys(conn, name))
            finally:
                for key in _keys(conn, f"bench-{os.getpid()}"):
                    conn.unlink(key)
            ended = [moment for one in asked for moment in one.ended]
            last_ms = 1000 * (max(one.last_at for one in asked) - min(ended))
            callers, answered = each * plan.processes, sum(one.answered for one in asked)
            yield Stampede(
                *(case.round, case.contender, callers, len(ended), answered),
                *(last_ms, commands / callers, 1e6 * cpu / callers, found, stored),
            )


def summarize(found: Sequence[Stampede]) -> list[StampedeRow]:
    """Return a row for each contender, in the order of the measurements."""
    groups: dict[str, list[Stampede]] = {}
    for one in found:
        groups.setdefault(one.contender, []).append(one)
    return [
        StampedeRow(
            contender,
            min(one.runs for one in group),
            max(one.runs for one in group),
            median(one.last_ms for one in group),
            median(one.commands for one in group),
            median(one.server_us for one in group),
            median(one.found for one in group),
            round(median(one.bytes for one in group)),
        )
        for contender, group in groups.items()
    ]


def _results(contender: str, done: tuple[object, list[Any], list[str]]) -> list[Any]:
    _, results, trouble = done
    if trouble:
        raise RuntimeError(f"{contender}: {trouble[0]}")
    return results


def _commands(conn: redis.Redis) -> int:
    found: Any = conn.info("commandstats")
    own = {"cmdstat_config|resetstat", "cmdstat_info"}
    return sum(int(stats["calls"]) for command, stats in found.items() if command not in own)


def _cpu(conn: redis.Redis) -> float:
    found: Any = conn.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def _keys(conn: redis.Redis, name: str) -> list[Any]:
    return list(conn.scan_iter(match=f"*{name}*", count=1000))
