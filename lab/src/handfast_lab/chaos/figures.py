"""The figures of the scoreboard: how they are stored and compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from handfast_lab.bench.figures import quantile

__all__ = ["Figure", "Tally", "duration", "durations", "examples_of"]

FEW = 5
"""Number of failures kept as examples."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One result: how often something was tried, and how often it failed."""

    id: str
    """Row of the scoreboard, such as ``R4``."""
    what: str
    """What was tried, used as a label in the report: ``lost reply of acquire``."""
    contender: str
    """The library: ``handfast``, ``handfast (asyncio)`` or the name of a rival."""
    tried: int
    bad: int
    """Number of failures; the target is 0."""
    unit: str
    """What ``bad`` counts: ``orphans``, ``wrong errors``, ``inversions``."""
    measured: dict[str, float | str] = field(default_factory=dict)
    """Further measurements, by name with unit: ``{"longest stall, s": 0.31}``."""
    seed: int | None = None
    """Seed that reproduces the run."""
    examples: tuple[str, ...] = ()
    """The first few failures."""
    details: dict[str, int] = field(default_factory=dict)
    """Numbers that are stored but not reported, such as the distribution over parts of the trial."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as stored in the raw results."""
        return asdict(self)


@dataclass
class Tally:
    """The tries and violations of one figure, counted while a trial runs."""

    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)

    def check(self, is_right: bool, otherwise: str, *about: object) -> None:  # noqa: FBT001 -- the condition to count
        """Count one more try, and a violation if the condition does not hold."""
        self.tried += 1
        if not is_right:
            self.wrong.append(otherwise.format(*map(repr, about)))

    def count(self, what: str, by: float = 1) -> None:
        """Add to the measurement with this name."""
        self.measured[what] = self.measured.get(what, 0) + by

    def figure(self, row: str, what: str, contender: str, unit: str, *, seed: int | None = None) -> Figure:
        """Return the figure."""
        wrong = examples_of(self.wrong)
        return Figure(row, what, contender, self.tried, len(self.wrong), unit, self.measured, seed, wrong)


_SCALES = {"s": (1.0, 3), "ms": (1e3, 1), "µs": (1e6, 1)}


def duration(seconds: Iterable[float], share: float, unit: str) -> float:
    """Return a quantile of durations in seconds, in `unit` and rounded for a table; 0 if there are none."""
    scale, digits = _SCALES[unit]
    return round(scale * (quantile(sorted(seconds), share) or 0.0), digits)


def durations(seconds: Iterable[float], what: str, unit: str) -> dict[str, float | str]:
    """Return the median, the 99th percentile and the longest of some durations, named for a table."""
    known = list(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    return {f"{word} {what}, {unit}": duration(known, share, unit) for word, share in shares.items()}


def examples_of(wrong: list[str]) -> tuple[str, ...]:
    """Return the first few failures, each on one line."""
    return tuple(" ".join(text.split()) for text in wrong[:FEW])
