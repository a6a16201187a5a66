"""The figures of the scoreboard: how they are stored and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Figure", "examples_of"]

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


def examples_of(wrong: list[str]) -> tuple[str, ...]:
    """Return the first few failures, each on one line."""
    return tuple(" ".join(text.split()) for text in wrong[:FEW])
