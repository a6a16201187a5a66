"""What the plans of all primitives draw in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from handfast_lab.simulator.faults import KINDS, SETTINGS
from handfast_lab.simulator.orders import Plan

__all__ = ["Drawing"]

T = TypeVar("T")

OWN = 0.8
"""The share of plans that have a fault of their setting's own. It occurs as often as all those together that a server
has, too."""

LOSSES = frozenset({"restart", "flush", "failover", "evict"})


class Drawing(ABC):
    """Draws from a stream of random numbers."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        self._chance = chance
        self.setting = setting

    @abstractmethod
    def plan(self) -> Plan:
        """Return the plan."""

    def _one(self, options: Sequence[T]) -> T:
        return options[int(self._chance() * len(options))]

    def _seconds(self, most: float) -> float:
        """Return a time within so many seconds, short ones more often than long ones."""
        return most * self._chance() ** 3

    def _faults(self) -> tuple[tuple[str, ...], float]:
        """Return the kinds of faults, and at which share of the commands one occurs."""
        chance = self._chance
        if chance() >= 0.9:
            return (), 0.0
        share = self._one((0.1, 0.25, 0.5))
        known = SETTINGS[self.setting]
        kinds = tuple(kind for kind in KINDS if kind in known and chance() < (share / 2 if kind in LOSSES else share))
        kinds += tuple(kind for kind in known if kind not in KINDS and chance() < OWN) * max(1, len(kinds))
        return kinds, self._one((0.03, 0.1, 0.2, 0.5)) if kinds else 0.0
