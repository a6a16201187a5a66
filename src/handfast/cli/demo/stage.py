"""What an act stands on, and the one way in which it waits: frame by frame, each of them short and all of them bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

from handfast._api.sync.client import Handfast
from handfast._api.sync.lock import Lock
from handfast.cli.demo.crew import Crew
from handfast.cli.demo.interruption import Interruption
from handfast.cli.demo.records import Heard, Plan
from handfast.cli.demo.screen import Screen
from handfast.cli.demo.shared import Shared

__all__ = ["Broken", "Stage"]

FRAME = 0.04
"""Seconds that a frame lasts."""


class Broken(Exception):
    """An act cannot go on: something that must happen did not, or something that must not did."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that an act may use."""

    plan: Plan
    screen: Screen
    crew: Crew
    shared: Shared
    handfast: Handfast
    interruption: Interruption

    def frames(self, what: str) -> Iterator[list[Heard]]:
        """What the workers said, one frame after the other, for as long as the caller wants to wait for ``what``.

        Raises Broken when the plan's patience is over, Interrupted, and CrewLost.
        """
        until = monotonic() + self.plan.patience
        while monotonic() < until:
            heard = self.crew.hear(FRAME)
            self.interruption.check()
            yield heard
            self.screen.refresh()
        raise Broken(f"gave up after {self.plan.patience:.0f} s of waiting for {what}")

    def listen(self, what: str, count: int, verb: str) -> Iterator[Heard]:
        """Every word that is heard, until ``count`` workers have said that verb."""
        for heard in self.frames(what):
            for word in heard:
                yield word
                count -= word.verb == verb
            if count <= 0:
                return

    def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for something that the workers do not tell."""
        for _ in self.frames(what):
            if happened():
                return

    def line_up(self, lock: Lock, name: str, *orders: str) -> None:
        """Give orders to a worker of which the first is to wait for that lock, and see it stand in line."""
        self.crew.tell(name, *orders)
        self.until(
            f"process {name} to stand in line", lambda: name in [waiter.label for waiter in lock.status().waiters]
        )

    def pause(self, seconds: float) -> None:
        """Let time pass, and pictures move."""
        end = monotonic() + seconds
        self.until("time to pass", lambda: monotonic() >= end)
