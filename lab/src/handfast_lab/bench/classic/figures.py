"""From what the clients counted to the rows of a table. Knows neither processes nor listings."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from handfast_lab.bench.classic.client import FIRST
from handfast_lab.bench.figures import Hold, Schedule, crowding

__all__ = ["Reading", "TableCase", "TableRow", "Tally", "read", "summarize"]


class TableCase(NamedTuple):
    """What is measured, and in which round."""

    table: str
    round: int
    clients: int
    contender: str


class Tally(NamedTuple):
    """What one client counted while it counted, and its holds, those of the warm-up among them."""

    tries: int
    successes: int
    retries: int
    acquired: array[float]
    released: array[float]


@dataclass(frozen=True, slots=True)
class Reading:
    """One contender at one client count in one round."""

    table: str
    round: int
    clients: int
    contender: str
    seconds: float
    tries: int
    successes: tuple[int, ...]
    """Of each client."""
    retries: int
    """WatchErrors that made a client start over."""
    breaches: int | None
    """How many holds began while as many others as there may be were certain; None where nothing is held."""
    trouble: tuple[str, ...]
    """What went wrong; such a reading has no figures to trust."""

    @property
    def where(self) -> str:
        """Which reading it is, in words."""
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"{self.table}, {self.contender}, {clients}, round {self.round + 1}"

    @property
    def total(self) -> int:
        """The successes of all clients together."""
        return sum(self.successes)


@dataclass(frozen=True, slots=True)
class TableRow:
    """What all rounds say of one contender at one client count. Totals are of all clients, in ``seconds``."""

    table: str
    clients: int
    contender: str
    rounds: int
    seconds: float
    tries: float
    successes: float
    """The median of the rounds."""
    fewest: int
    most: int
    retries: float
    fairness: float
    """The fewest successes of a client to the most: 1 is fair, 0 is a client that had none."""
    breaches: int | None
    """Of all rounds together."""
    to_first: float | None
    """The successes to those of the first form in the same round."""

    @property
    def rate(self) -> float:
        """Successes a second."""
        return self.successes / self.seconds

    @property
    def retries_each(self) -> float | None:
        """WatchErrors for each success; None without one."""
        return self.retries / self.successes if self.successes else None


def read(
    case: TableCase, schedule: Schedule, tallies: Sequence[Tally], trouble: Iterable[str], limit: int | None = None
) -> Reading:
    """Merge what all clients counted; see that no more than ``limit`` of them held it at once."""
    holds = (
        Hold(acquired, released, client)
        for client, tally in enumerate(tallies)
        for acquired, released in zip(tally.acquired, tally.released, strict=True)
    )
    return Reading(
        **case._asdict(),
        seconds=schedule.until - schedule.go,
        tries=sum(tally.tries for tally in tallies),
        successes=tuple(tally.successes for tally in tallies),
        retries=sum(tally.retries for tally in tallies),
        breaches=None if limit is None else crowding(holds, limit),
        trouble=tuple(trouble),
    )


def summarize(readings: Sequence[Reading]) -> list[TableRow]:
    """One row for each table, client count and contender that went well in a round, in the order of the readings."""
    sound = [one for one in readings if not one.trouble]
    firsts = {(one.table, one.round, one.clients): one.total for one in sound if one.contender == FIRST}
    groups: dict[tuple[str, int, str], list[Reading]] = {}
    for one in sound:
        groups.setdefault((one.table, one.clients, one.contender), []).append(one)
    return [_row(group, firsts) for group in groups.values()]


def _row(group: list[Reading], firsts: dict[tuple[str, int, int], int]) -> TableRow:
    one = group[0]
    totals = [reading.total for reading in group]
    bases = [(reading.total, firsts.get((reading.table, reading.round, reading.clients))) for reading in group]
    ratios = [total / base for total, base in bases if base]
    breaches = [reading.breaches for reading in group if reading.breaches is not None]
    return TableRow(
        table=one.table,
        clients=one.clients,
        contender=one.contender,
        rounds=len(group),
        seconds=one.seconds,
        tries=median(reading.tries for reading in group),
        successes=median(totals),
        fewest=min(totals),
        most=max(totals),
        retries=median(reading.retries for reading in group),
        fairness=median(min(reading.successes) / max(*reading.successes, 1) for reading in group),
        breaches=sum(breaches) if breaches else None,
        to_first=median(ratios) if ratios else None,
    )
