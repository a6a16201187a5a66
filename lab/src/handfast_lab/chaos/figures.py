"""The numbers of the scoreboard, as they are kept and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Figure", "examples_of"]

FEW = 5
"""Examples of what went wrong that are kept: enough to begin looking."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: how often something was tried, and how often what must not happen did."""

    id: str
    """Its row of the scoreboard, such as ``R4``."""
    what: str
    """What was tried, as the column is headed: ``lost reply of acquire``."""
    contender: str
    """Who: ``handfast`` or ``handfast (asyncio)`` or a rival's name."""
    tried: int
    bad: int
    """How often what must not happen did: 0 is the bar."""
    unit: str
    """What ``bad`` counts: ``orphans``, ``wrong errors``, ``inversions``."""
    measured: dict[str, float | str] = field(default_factory=dict)
    """Other numbers that belong to it, by what they are, with their unit: ``{"longest stall, s": 0.31}``."""
    seed: int | None = None
    """With which it can be run again."""
    examples: tuple[str, ...] = ()
    """The first few of what went wrong."""
    details: dict[str, int] = field(default_factory=dict)
    """Numbers that are kept and not told: how they are spread over parts of what was tried."""

    def as_dict(self) -> dict[str, Any]:
        """As it goes into the raw results."""
        return asdict(self)


def examples_of(wrong: list[str]) -> tuple[str, ...]:
    """The first few, each of them in one line."""
    return tuple(" ".join(text.split()) for text in wrong[:FEW])
