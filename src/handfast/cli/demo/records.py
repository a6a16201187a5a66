"""What the demo tells and hears: frozen records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Finding", "Heard", "Plan", "exit_code"]


@dataclass(frozen=True, slots=True)
class Heard:
    """One line that a worker said: ``in 17``, ``step``, ``wrote 0``."""

    who: str
    verb: str
    number: int
    """0 where the verb needs none."""
    at: float
    """When it was heard, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the summary. ``held`` is None where nothing is promised and the line is there to compare with."""

    what: str
    seen: str
    held: bool | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How large and how slow the demo is. Times are in seconds."""

    processes: int
    pace: float
    """1 takes half a minute, 0.5 half of that."""

    @property
    def updates(self) -> int:
        """Increments that one process makes; about the same for all together, however many they are."""
        return max(10, 280 // self.processes)

    @property
    def moment(self) -> float:
        """What an increment takes between its read and its write."""
        return max(0.002, 0.024 * self.pace)

    @property
    def turn(self) -> float:
        """How long a process of the queue stays in."""
        return 0.4 * self.pace

    @property
    def step(self) -> float:
        """Between two arrivals in a line, so that the eye can follow."""
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
    def patience(self) -> float:
        """After which an act that does not come to its end is given up."""
        return 20.0 + 30.0 * self.pace


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing that is promised was broken, else 1."""
    return int(any(finding.held is False for finding in findings))
