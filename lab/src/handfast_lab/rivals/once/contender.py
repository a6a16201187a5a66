"""The interface between a library that does something once and what attacks it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["Lifetimes", "OnceContender", "RunLost", "Runner", "Work"]

Work = Callable[[], str]
"""What is to be done once. It sleeps, and returns another text in each run."""


class Lifetimes(NamedTuple):
    """In seconds."""

    keep: float
    """How long a result counts."""
    ttl: float
    """After which another one may run, if the one that runs has died."""
    refresh: float | None = None
    """After which a result is made anew, while others get the old one."""


class RunLost(Exception):
    """The run was lost, and its result was refused."""


class Runner(Protocol):
    """One process's access."""

    def run(self, key: str, work: Work) -> str:
        """Run it, or return the result of another run. Raises RunLost."""

    def run_many(self, key: str, work: Work, callers: int) -> list[str]:
        """Let so many threads or tasks do that at once."""


@dataclass(frozen=True)
class OnceContender:
    """One library and one API."""

    name: str
    distribution: str
    """Name of the distribution on the package index."""
    open: Callable[[str, Lifetimes], AbstractContextManager[Runner]]
    """Opens a client of that server."""
    refreshes: bool = True
    """Whether it can make a result anew while others get the old one."""

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
