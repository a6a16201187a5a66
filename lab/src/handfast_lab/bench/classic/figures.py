"""Turn the counts of the clients into the rows of a table. Independent of processes and listings."""

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
    """The subject of one measurement, and its round."""

    table: str
    round: int
    clients: int
    contender: str


class Tally(NamedTuple):
    """The counts of one client during the measured period, and its holds including those of the warm-up."""

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
    """For each client."""
    retries: int
    """WatchErrors of all clients."""
    breaches: int | None
    """Number of holds that began while others already used the whole limit; None if nothing is held."""
    trouble: tuple[str, ...]
    """Errors; the figures of a reading with errors are not used."""

    @property
    def where(self) -> str:
        """Description of the reading."""
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"{self.table}, {self.contender}, {clients}, round {self.round + 1}"

    @property
    def total(self) -> int:
        """Successes of all clients together."""
        return sum(self.successes)


@dataclass(frozen=True, slots=True)
class TableRow:
    """All rounds of one contender at one client count. Totals are over all clients, in ``seconds``."""

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
    """The smallest number of successes of a client divided by the largest: 1 is fair, 0 means a client had none."""
    breaches: int | None
    """Sum over all rounds."""
    to_first: float | None
    """Successes divided by those of the first form in the same round."""

    @property
    def rate(self) -> float:
        """Successes per second."""
        return self.successes / self.seconds

    @property
    def retries_each(self) -> float | None:
        """WatchErrors per success; None without successes."""
        return self.retries / self.successes if self.successes else None


def read(
    case: TableCase, schedule: Schedule, tallies: Sequence[Tally], trouble: Iterable[str], limit: int | None = None
) -> Reading:
    """Merge the counts of all clients; check that at most ``limit`` clients held at once."""
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
    """Return a row for each table, client count and contender that has an error-free round, in their order."""
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
