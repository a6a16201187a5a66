"""Measure rate limiters: the rate and the cost of a call, a queue of waiters, and the memory of an admission.

Every part is measured with one contender after the other, in several rounds, on one server:

- **Calls.** Processes ask one limiter without waiting, as often as they can, either under a limit that admits all of
  them or under one that is used up. An observer reads the CPU time of the server when the counted period begins and
  when it ends; divided by the calls it is the cost of a call on the server, also where clients and server share too few
  cores for the rate to tell.
- **Waiters.** Threads of one process come to one limiter at short intervals, and each waits until it is admitted.
  Counted are the time from the first admission to the last beyond the shortest that the rate allows, the pairs that
  were admitted in the opposite order of their arrival, and the calls of scripts per admission. A contender without a
  call that waits has no row.
- **Memory.** What the server stores of one limiter, divided by the admissions in its window.

Threads return from their waits when the scheduler lets them, so a few inversions of neighbours may be the machine's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import comb
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import redis

from handfast_lab.bench.crowd import inversions
from handfast_lab.bench.figures import Schedule, middle
from handfast_lab.bench.runner import ClientPool, in_rounds, in_turn
from handfast_lab.bench.worker import Start, wait_until
from handfast_lab.rivals.limiters import LIMITERS
from handfast_lab.rivals.limiters.contender import Rate

__all__ = [
    "BASE",
    "SETTINGS",
    "Asking",
    "AskingRow",
    "Line",
    "LineRow",
    "Memory",
    "ask",
    "line_up",
    "remember",
    "summarize_asking",
    "summarize_lines",
]

SETTINGS = {"admitted": Rate(1_000_000, 1.0), "refused": Rate(10, 3600.0)}
"""The rates under which processes ask: nearly all are admitted, or nearly all are refused."""

BASE = "throttled-py (GCRA)"
"""The contender with whose rate the others are compared. It remembers one number and no admissions."""

PACE = Rate(10, 1.0)
"""The rate for which threads wait."""

GAP_S = 0.005
"""Seconds between two threads that come to wait."""

PATIENCE_S = 10.0
"""Seconds that waiters may take beyond the shortest time."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Processes that ask without waiting: one contender in one setting, with one number of processes, in one round."""

    round: int
    contender: str
    setting: str
    clients: int
    seconds: float
    calls: int
    admitted: int
    server_us: float
    """CPU time of a call on the server, in microseconds."""

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


@dataclass(frozen=True, slots=True)
class AskingRow:
    """All rounds of one contender in one setting, with one number of processes: medians, and the spread of the rate."""

    contender: str
    setting: str
    clients: int
    rate: float
    slowest: float
    fastest: float
    to_base: float | None
    """The rate divided by that of `BASE` in the same round."""
    server_us: float


@dataclass(frozen=True, slots=True)
class Line:
    """Threads that wait: one contender in one round."""

    round: int
    contender: str
    waiters: int
    admitted: int
    over_s: float
    """Seconds from the first admission to the last, beyond the shortest time that the rate allows."""
    inversions: int
    calls: float
    """Calls of scripts per admission."""


@dataclass(frozen=True, slots=True)
class LineRow:
    """All rounds of one contender: medians, and the inversions of all rounds."""

    contender: str
    waiters: int
    over_s: float
    inversions: int
    pairs: int
    """Of how many."""
    calls: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one limiter on the server."""

    contender: str
    admissions: int
    bytes: int


class Asked(NamedTuple):
    """What one process counted."""

    calls: int
    admitted: int


class Ask(NamedTuple):
    """Ask as often as possible, and count."""

    url: str
    contender: str
    name: str
    rate: Rate

    def do(self, start: Start) -> Asked:
        with LIMITERS[self.contender].open(self.url) as make:
            limiter = make(self.name, [self.rate])
            limiter.try_acquire()  # loads the script
            schedule = start()
            wait_until(schedule.begin)
            while monotonic() < schedule.go:
                limiter.try_acquire()
            calls = admitted = 0
            while monotonic() < schedule.until:
                admitted += limiter.try_acquire()
                calls += 1
        return Asked(calls, admitted)


class Observe(NamedTuple):
    """Return the CPU time of the server in the counted period, in seconds."""

    url: str

    def do(self, start: Start) -> float:
        with redis.Redis.from_url(self.url) as conn:
            conn.ping()
            schedule = start()
            wait_until(schedule.go)
            before = _cpu(conn)
            wait_until(schedule.until)
            return _cpu(conn) - before


class LineUp(NamedTuple):
    """Let threads wait, one after the other; return when each was admitted, in the order of their arrival."""

    url: str
    contender: str
    name: str
    waiters: int

    def do(self, start: Start) -> list[float]:
        with LIMITERS[self.contender].open(self.url) as make:
            limiter = make(self.name, [PACE])
            admitted = [0.0] * self.waiters
            until = start().until

            def wait(number: int) -> None:
                if limiter.acquire(1, until - monotonic()):
                    admitted[number] = monotonic()

            threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(self.waiters)]
            for thread in threads:
                thread.start()
                time.sleep(GAP_S)
            for thread in threads:
                thread.join(max(0.0, until + PATIENCE_S - monotonic()))
        return admitted


def ask(url: str, contenders: Sequence[str], clients: Sequence[int], rounds: int, seconds: float) -> Iterator[Asking]:
    """Yield the figures of each contender in each setting and round. Raises RuntimeError if a process fails."""
    with ClientPool() as pool, redis.Redis.from_url(url) as conn:
        for number, (setting, count) in product(range(rounds), product(SETTINGS, clients)):
            for contender in in_turn(tuple(contenders), number):
                name = f"bench-{os.getpid()}-{number}-{setting}-{count}"
                jobs = [Ask(url, contender, name, SETTINGS[setting])] * count
                try:
                    cpu, *asked = _results(contender, pool.do([Observe(url), *jobs], seconds))
                finally:
                    _clear(conn, name)
                calls, admitted = map(sum, zip(*asked, strict=True))
                yield Asking(number, contender, setting, count, seconds, calls, admitted, 1e6 * cpu / calls)


def line_up(url: str, contenders: Sequence[str], waiters: int, rounds: int) -> Iterator[Line]:
    """Yield the figures of each contender that waits, in each round. Raises RuntimeError if its process fails."""
    shortest = (waiters / PACE.limit - 1) * PACE.per
    with ClientPool() as pool, redis.Redis.from_url(url) as conn:
        for case in in_rounds(contenders, rounds, waiters):
            name = f"bench-{os.getpid()}-{case.round}"
            before = _script_calls(conn)
            try:
                job = LineUp(url, case.contender, name, waiters)
                (times,) = _results(case.contender, pool.do([job], waiters * GAP_S + shortest + PATIENCE_S))
            finally:
                calls = _script_calls(conn) - before
                _clear(conn, name)
            order = sorted((moment, number) for number, moment in enumerate(times) if moment)
            over = order[-1][0] - order[0][0] - shortest if order else 0.0
            found = inversions(number for _, number in order)
            yield Line(case.round, case.contender, waiters, len(order), over, found, calls / max(1, len(order)))


def remember(url: str, contenders: Sequence[str], counts: Sequence[int]) -> Iterator[Memory]:
    """Yield what the server stores after so many admissions within one window."""
    with redis.Redis.from_url(url) as conn:
        for contender, count in product(contenders, counts):
            name = f"bench-{os.getpid()}-memory"
            with LIMITERS[contender].open(url) as make:
                limiter = make(name, [Rate(count, 3600.0)])
                admitted = sum(limiter.try_acquire() for _ in range(count))
            if admitted != count:
                raise RuntimeError(f"{contender}: only {admitted} of {count} were admitted")
            stored = sum(int(conn.memory_usage(key, samples=0) or 0) for key in _keys(conn, name))
            _clear(conn, name)
            yield Memory(contender, count, stored)


def summarize_asking(found: Sequence[Asking]) -> list[AskingRow]:
    """Return a row for each setting, number of processes and contender, in the order of the measurements."""
    bases = {(one.round, one.setting, one.clients): one.rate for one in found if one.contender == BASE}
    groups: dict[tuple[str, int, str], list[Asking]] = {}
    for one in found:
        groups.setdefault((one.setting, one.clients, one.contender), []).append(one)
    return [
        AskingRow(
            contender,
            setting,
            clients,
            median(one.rate for one in group),
            min(one.rate for one in group),
            max(one.rate for one in group),
            middle(one.rate / base for one in group if (base := bases.get((one.round, setting, clients)))),
            median(one.server_us for one in group),
        )
        for (setting, clients, contender), group in groups.items()
    ]


def summarize_lines(found: Sequence[Line]) -> list[LineRow]:
    """Return a row for each contender."""
    groups: dict[str, list[Line]] = {}
    for one in found:
        groups.setdefault(one.contender, []).append(one)
    return [
        LineRow(
            contender,
            group[0].waiters,
            median(one.over_s for one in group),
            sum(one.inversions for one in group),
            sum(comb(one.admitted, 2) for one in group),
            median(one.calls for one in group),
        )
        for contender, group in groups.items()
    ]


def _results(contender: str, done: tuple[Schedule, list[Any], list[str]]) -> list[Any]:
    _, results, trouble = done
    if trouble:
        raise RuntimeError(f"{contender}: {trouble[0]}")
    return results


def _cpu(conn: redis.Redis) -> float:
    found: Any = conn.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def _script_calls(conn: redis.Redis) -> int:
    found: Any = conn.info("commandstats")
    return sum(int(found.get(f"cmdstat_{command}", {}).get("calls", 0)) for command in ("eval", "evalsha"))


def _keys(conn: redis.Redis, name: str) -> list[Any]:
    return list(conn.scan_iter(match=f"*{name}*", count=1000))


def _clear(conn: redis.Redis, name: str) -> None:
    for key in _keys(conn, name):
        conn.unlink(key)
