"""From notes to figures: what one measurement says, and what all rounds say together.

Knows neither processes nor locks, so it can be tested with planted notes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median
from typing import NamedTuple, Self

__all__ = [
    "CLASSIC",
    "DISTINCT",
    "FLOOR",
    "ONE",
    "REDIS",
    "Case",
    "Hold",
    "Measurement",
    "Notes",
    "Row",
    "Schedule",
    "Times",
    "Turns",
    "crowding",
    "measure",
    "middle",
    "quantile",
    "summarize",
    "without_row",
]

CLASSIC, REDIS, FLOOR = "classic-lua", "redis-py", "floor"
"""The contenders that the others are compared with."""

ONE, DISTINCT = "one", "distinct"
"""The settings: all clients want the same lock, or each a lock of its own."""


class Schedule(NamedTuple):
    """Moments on the machine-wide monotonic clock: contend from ``begin``, count from ``go`` until ``until``."""

    begin: float
    go: float
    until: float


class Notes(NamedTuple):
    """What one client saw: its holds, those of the warm-up among them, and its tries while it counted."""

    tries: int
    acquired: array[float]
    """When each acquire had returned."""
    released: array[float]
    """When each release was about to be called."""


class Turns(NamedTuple):
    """What one client saw that also noted when it began to wait: one item of each for every hold."""

    asked: array[float]
    acquired: array[float]
    released: array[float]


class Hold(NamedTuple):
    """One certain hold: so many permits were this client's from the one moment to the other, in seconds."""

    acquired: float
    released: float
    client: int
    weight: int = 1


class Case(NamedTuple):
    """What is measured, and in which round."""

    round: int
    clients: int
    contender: str
    setting: str = ONE


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contender at one client count in one round."""

    round: int
    clients: int
    contender: str
    seconds: float
    tries: int
    acquires: tuple[int, ...]
    """Of each client."""
    handoffs: int
    """How often the lock went from one client to another."""
    handoff_p50_us: float | None
    handoff_p99_us: float | None
    violations: int
    """How many holds began while those of others, all certain, left no room for them."""
    trouble: tuple[str, ...]
    """What went wrong; such a measurement has no figures to trust."""
    setting: str = ONE
    connections: int | None = None
    """How many the server saw of the contender while it was measured, where they were counted."""

    @property
    def where(self) -> str:
        """Which measurement it is, in words."""
        clients = f"{self.clients} clients" + (" of distinct locks" if self.setting == DISTINCT else "")
        return f"{self.contender}, {clients}, round {self.round + 1}"

    @property
    def rate(self) -> float:
        """Acquires a second, of all clients together."""
        return sum(self.acquires) / self.seconds

    @property
    def fairness(self) -> float:
        """The fewest acquires of a client to the most: 1 is fair, 0 is a client that got none."""
        return min(self.acquires) / max(self.acquires) if any(self.acquires) else 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, again and again, in microseconds."""

    what: str
    calls: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, what: str, times: Iterable[float]) -> Self:
        """From so many microseconds each time."""
        ordered = sorted(times)
        p50, p99, longest = (quantile(ordered, share) or 0.0 for share in (0.5, 0.99, 1.0))
        return cls(what, len(ordered), p50, p99, longest)

    @classmethod
    def of_rounds(cls, rounds: Sequence[Self]) -> Self:
        """Medians of several rounds, but the longest of all."""
        p50, p99 = median(one.p50 for one in rounds), median(one.p99 for one in rounds)
        return cls(rounds[0].what, sum(one.calls for one in rounds), p50, p99, max(one.longest for one in rounds))


@dataclass(frozen=True, slots=True)
class Row:
    """What all rounds say of one contender at one client count: medians, and the spread of the rate."""

    contender: str
    clients: int
    tries: float
    rate: float
    slowest: float
    fastest: float
    fairness: float
    handoff_p50_us: float | None
    handoff_p99_us: float | None
    to_floor: float | None
    """The rate to that of the wire floor in the same round."""
    to_classic: float | None
    """The same to the classic Lua form."""
    to_redis: float | None = None
    """The same to the lock of redis-py."""
    setting: str = ONE
    connections: float | None = None
    violations: int = 0
    """Of all rounds together."""


def measure(
    case: Case,
    schedule: Schedule,
    notes: Sequence[Notes],
    trouble: Sequence[str],
    connections: int | None = None,
    *,
    limit: int = 1,
) -> Measurement:
    """Merge the notes of all clients and take from them what falls into the time that counts.

    Where each has a lock of its own there is nothing to hand over, and holds may overlap. Where several may hold it at
    once, nobody can tell from outside whose permit went to whom.
    """
    _, go, until = schedule
    holds = sorted(
        Hold(acquired, released, client)
        for client, note in enumerate(notes)
        for acquired, released in zip(note.acquired, note.released, strict=True)
    )
    counted = [0] * len(notes)
    for hold in holds:
        counted[hold.client] += go <= hold.acquired < until
    shared = holds if case.setting == ONE else []
    gaps = sorted(
        (after.acquired - before.released) * 1e6
        for before, after in pairwise(shared if limit == 1 else [])
        if after.client != before.client and go <= after.acquired < until
    )
    return Measurement(
        **case._asdict(),
        seconds=until - go,
        tries=sum(note.tries for note in notes),
        acquires=tuple(counted),
        handoffs=len(gaps),
        handoff_p50_us=quantile(gaps, 0.5),
        handoff_p99_us=quantile(gaps, 0.99),
        violations=crowding(shared, limit),
        trouble=tuple(trouble),
        connections=connections,
    )


def crowding(holds: Iterable[Hold], limit: int = 1) -> int:
    """How many holds began while those that were certain had so many of ``limit`` permits that too few were left."""
    found = out = 0
    ends: list[tuple[float, int]] = []
    for hold in sorted(holds):
        while ends and ends[0][0] <= hold.acquired:
            out -= heappop(ends)[1]
        out += hold.weight
        found += out > limit
        heappush(ends, (hold.released, hold.weight))
    return found


def without_row(measurements: Sequence[Measurement]) -> list[Case]:
    """What has no row in `summarize`, because it went well in no round."""
    well = {(one.clients, one.contender, one.setting) for one in measurements if not one.trouble}
    measured = dict.fromkeys((one.clients, one.contender, one.setting) for one in measurements)
    return [Case(0, *which) for which in measured if which not in well]


def summarize(measurements: Sequence[Measurement]) -> list[Row]:
    """One row for each setting, client count and contender, in the order of the measurements' own first round."""
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
        to_classic=ratio(CLASSIC),
        to_redis=ratio(REDIS),
        setting=group[0].setting,
        connections=middle(one.connections for one in group),
        violations=sum(one.violations for one in group),
    )


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share of them does not exceed; None of none."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
