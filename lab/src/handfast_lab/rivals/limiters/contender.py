"""The interface between a library of rate limiters and what measures or attacks it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from handfast_lab.checker.windows import Admitted

__all__ = ["Limiter", "LimiterContender", "MakeLimiter", "Rate"]


class Rate(NamedTuple):
    """At most ``limit`` within any ``per`` seconds."""

    limit: int
    per: float


class Limiter(Protocol):
    """One caller's access to one rate limiter."""

    def try_acquire(self, cost: int = 1) -> bool:
        """Return whether it is admitted now."""

    def acquire(self, cost: int, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds. Return whether it is admitted. Only where the contender ``waits``."""

    def used(self) -> int:
        """Return what the server counts in the window of the first rate."""


MakeLimiter = Callable[[str, Sequence[Rate]], Limiter]
"""Returns the limiter with that name and those rates."""


@dataclass(frozen=True)
class LimiterContender:
    """One library with one algorithm and one API."""

    name: str
    distribution: str
    """Name of the distribution on the package index."""
    open: Callable[[str], AbstractContextManager[MakeLimiter]]
    """Opens a client of that server, and returns what makes its limiters."""
    admission: Callable[[Sequence[str], Sequence[str], float], Admitted | None]
    """Returns the admission that a command within a script records, if it does. It gets the words of the call of the
    script and of the command, and when the server executed it.
    """
    waits: bool = True
    """Whether it has a call that waits until it is admitted."""
    is_exact: bool = True
    """Whether it promises that no window is above its limit. Others let a burst in besides, or estimate."""
    most_rates: int = 1
    """How many rates of one limiter it decides together."""
    shortest_period: float = 1.0
    """In seconds. Periods are multiples of it."""

    @property
    def is_ours(self) -> bool:
        """Whether it is Handfast."""
        return self.distribution == "handfast"

    @property
    def version(self) -> str | None:
        """The installed version; None if it is not installed."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None
