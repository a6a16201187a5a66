"""Compute the figures of one measurement from the clients' records, and those of all rounds together.

Independent of processes and locks, so tests can pass records of their own.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median
from typing import NamedTuple

__all__ = [
    "DISTINCT",
    "FIRST",
    "FLOOR",
    "LUA",
    "ONE",
    "REDIS",
    "Case",
    "Hold",
    "Measurement",
    "Notes",
    "Row",
    "Schedule",
    "crowding",
    "measure",
    "middle",
    "quantile",
    "summarize",
    "without_row",
]

FIRST, LUA, REDIS, FLOOR = "classic-first", "classic-lua", "redis-py", "floor"
"""The contenders with which the others are compared."""

ONE, DISTINCT = "one", "distinct"
"""The settings: all clients share one lock, or each has its own."""


class Schedule(NamedTuple):
    """Times on the machine-wide monotonic clock: contend from ``begin``, count from ``go`` until ``until``."""

    begin: float
    go: float
    until: float


class Notes(NamedTuple):
    """The records of one client, on the machine-wide monotonic clock; those of the warm-up are included."""

    tries: int
    """Number of requests in the measured period; likewise the retries."""
    succeeded: array[float]
    """When each success was certain: when an acquire returned."""
    released: array[float]
    """When each release was called; empty if the operation holds nothing."""
    retries: int = 0


class Hold(NamedTuple):
    """One certain hold: this client held a permit from ``acquired`` to ``released``, in seconds."""

    acquired: float
    released: float
    client: int


class Case(NamedTuple):
    """The subject of one measurement, and its round."""

    round: int
    clients: int
    contender: str
    setting: str = ONE
    """What is measured, if a benchmark has several workloads."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contender at one client count in one round."""

    round: int
    clients: int
    contender: str
    seconds: float
    tries: int
    successes: tuple[int, ...]
    """For each client: its acquires, or its other operations that succeeded."""
    handoffs: int
    """How often the lock passed from one client to another."""
    handoff_p50_us: float | None
    handoff_p99_us: float | None
    violations: int | None
    """Number of holds that began while other certain holds left too few permits for them; None if nothing is shared."""
    trouble: tuple[str, ...]
    """Errors; the figures of a measurement with errors are not used."""
    setting: str = ONE
    connections: int | None = None
    """Connections that the server had of the contender during the measurement; None if not counted."""
    retries: int = 0
    """WatchErrors of all clients."""

    @property
    def where(self) -> str:
        """Description of the measurement."""
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        where = f"{self.contender}, {clients}, round {self.round + 1}"
        return where if self.setting == ONE else f"{self.setting}, {where}"

    @property
    def rate(self) -> float:
        """Successes per second, of all clients together."""
        return sum(self.successes) / self.seconds

    @property
    def fairness(self) -> float:
        """The smallest number of successes of a client divided by the largest: 1 is fair, 0: a client had none."""
        return min(self.successes) / max(self.successes) if any(self.successes) else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """All rounds of one contender at one client count: medians, and the spread of the rate."""

    contender: str
    clients: int
    tries: float
    """Per second; likewise the retries."""
    rate: float
    slowest: float
    fastest: float
    fairness: float
    handoff_p50_us: float | None
    handoff_p99_us: float | None
    to_floor: float | None
    """The rate divided by that of the floor in the same round."""
    to_classic: float | None
    """The same for the classic Lua form."""
    to_redis: float | None = None
    """The same for redis-py's lock."""
    setting: str = ONE
    connections: float | None = None
    violations: int = 0
    """Sum over all rounds."""
    to_first: float | None = None
    """The same for the listings' first form."""
    retries: float = 0.0
    rounds: int = 1
    seconds: float = 1.0
    """Duration of each measurement."""


def measure(
    case: Case,
    schedule: Schedule,
    notes: Sequence[Notes],
    trouble: Sequence[str],
    connections: int | None = None,
    *,
    limit: int | None = 1,
) -> Measurement:
    """Merge the records of all clients and evaluate the measured period.

    ``limit`` is the largest number of simultaneous holders, None if the clients share nothing. There are handoff
    figures only with a limit of 1, because clients cannot observe which permit of several passed to which client.
    """
    _, go, until = schedule
    holds = sorted(
        Hold(acquired, released, client)
        for client, note in enumerate(notes)
        for acquired, released in zip(note.succeeded, note.released, strict=bool(note.released))
    )
    gaps = sorted(
        (after.acquired - before.released) * 1e6
        for before, after in pairwise(holds if limit == 1 else [])
        if after.client != before.client and go <= after.acquired < until
    )
    return Measurement(
        **case._asdict(),
        seconds=until - go,
        tries=sum(note.tries for note in notes),
        successes=tuple(sum(go <= moment < until for moment in note.succeeded) for note in notes),
        handoffs=len(gaps),
        handoff_p50_us=quantile(gaps, 0.5),
        handoff_p99_us=quantile(gaps, 0.99),
        violations=None if limit is None else crowding(holds, limit),
        trouble=tuple(trouble),
        connections=connections,
        retries=sum(note.retries for note in notes),
    )


def crowding(holds: Iterable[Hold], limit: int = 1) -> int:
    """Return the number of holds that began while others certainly held all of ``limit`` permits."""
    found = 0
    ends: list[float] = []
    for hold in sorted(holds):
        while ends and ends[0] <= hold.acquired:
            heappop(ends)
        heappush(ends, hold.released)
        found += len(ends) > limit
    return found


def without_row(measurements: Sequence[Measurement]) -> list[Case]:
    """Return the cases that have no row in `summarize`, because every round of them failed."""
    well = {(one.clients, one.contender, one.setting) for one in measurements if not one.trouble}
    measured = dict.fromkeys((one.clients, one.contender, one.setting) for one in measurements)
    return [Case(0, *which) for which in measured if which not in well]


def summarize(measurements: Sequence[Measurement]) -> list[Row]:
    """Return a row for each setting, client count and contender, in the order of the measurements."""
    sound = [one for one in measurements if not one.trouble]
    rates = {(one.contender, one.setting, one.clients, one.round): one.rate for one in sound}
    groups: dict[tuple[str, int, str], list[Measurement]] = {}
    for one in sound:
        groups.setdefault((one.setting, one.clients, one.contender), []).append(one)
    return [_row(group, rates) for group in groups.values()]


def _row(group: list[Measurement], rates: dict[tuple[str, str, int, int], float]) -> Row:
    def ratio(other: str) -> float | None:
        bases = [(one.rate, rates.get((other, one.setting, one.clients, one.round))) for one in group]
        return middle(rate / base for rate, base in bases if base)

    speeds = [one.rate for one in group]
    return Row(
        contender=group[0].contender,
        clients=group[0].clients,
        tries=median(one.tries / one.seconds for one in group),
        rate=median(speeds),
        slowest=min(speeds),
        fastest=max(speeds),
        fairness=median(one.fairness for one in group),
        handoff_p50_us=middle(one.handoff_p50_us for one in group),
        handoff_p99_us=middle(one.handoff_p99_us for one in group),
        to_floor=ratio(FLOOR),
        to_classic=ratio(LUA),
        to_redis=ratio(REDIS),
        setting=group[0].setting,
        connections=middle(one.connections for one in group),
        violations=sum(one.violations or 0 for one in group),
        to_first=ratio(FIRST),
        retries=median(one.retries / one.seconds for one in group),
        rounds=len(group),
        seconds=group[0].seconds,
    )


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed; None for no values."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
