"""The records of the demo: its settings, what its workers report, what its acts find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["FULL_LENGTH", "DemoSettings", "Finding", "WorkerReport", "exit_code"]


FULL_LENGTH = 40.0
"""Seconds that the demo takes at pace 1."""


class WorkerReport(NamedTuple):
    """One report of a worker: ``acquired`` with its fence, ``counted``, ``wrote`` and whether it was accepted."""

    worker: str
    word: str
    value: Any
    at: float
    """When the worker sent it, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the summary. ``held`` is None where nothing is promised: the row is there for comparison."""

    what: str
    seen: str
    held: bool | None


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The size and the speed of the demo. Times are in seconds."""

    processes: int
    pace: float
    """1 takes `FULL_LENGTH`, 0.5 half of that."""

    @property
    def updates(self) -> int:
        """Increments per process; their total hardly depends on the number of processes."""
        return max(10, 280 // self.processes)

    @property
    def think(self) -> float:
        """Between the read and the write of an increment."""
        return max(0.002, 0.024 * self.pace)

    @property
    def hold(self) -> float:
        """How long a process of the queue holds the lock."""
        return 0.4 * self.pace

    @property
    def arrival_gap(self) -> float:
        """Between two arrivals in the queue, so that the eye can follow."""
        return 0.2 * self.pace

    @property
    def pause(self) -> float:
        """To read what has just been shown."""
        return 1.3 * self.pace

    @property
    def ttl(self) -> float:
        """Of the leases whose holders die or freeze; never so short that a busy machine loses a healthy one."""
        return max(2.0, round(2.0 * self.pace, 1))

    @property
    def calls(self) -> int:
        """Calls of each of three processes for which 5 in a second are allowed, so that all wait more than once."""
        return max(6, round(8 * self.pace))

    @property
    def timeout(self) -> float:
        """After which an act that does not come to its end is given up."""
        return 20.0 + 30.0 * self.pace


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 if every promise was kept, else 1."""
    return int(any(finding.held is False for finding in findings))
