"""What every act uses: the workers, the screen, the shared data, and a wait that is bounded and redraws the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from handfast._api.sync.client import Handfast
from handfast._api.sync.lock import Lock
from handfast.cli.demo.interruption import Interruption
from handfast.cli.demo.records import DemoSettings, WorkerReport
from handfast.cli.demo.screen import Screen
from handfast.cli.demo.shared import Shared
from handfast.testing import ChildProcess, ProcessGroup

__all__ = ["ActFailed", "Stage"]

FRAME = 0.04
"""Seconds between two redraws."""


class ActFailed(Exception):
    """An act cannot go on: a step that must happen did not, or one that must not happen did."""


@dataclass(frozen=True, slots=True)
class Stage:
    settings: DemoSettings
    screen: Screen
    group: ProcessGroup
    shared: Shared
    handfast: Handfast
    interruption: Interruption

    @property
    def workers(self) -> list[str]:
        """The names of the workers that were not killed."""
        return [child.name for child in self.group]

    def worker(self, name: str) -> ChildProcess:
        return next(child for child in self.group if child.name == name)

    def order(self, name: str, order: str, *args: Any) -> None:
        """Send an order to a worker, which carries out its orders one after the other."""
        self.worker(name).order(order, *args)

    def frames(self, what: str) -> Iterator[list[WorkerReport]]:
        """Yield the reports of each frame for as long as the caller waits for ``what``.

        Raises ActFailed after the timeout of the settings, Interrupted, and ProcessFailed.
        """
        until = monotonic() + self.settings.timeout
        while monotonic() < until:
            reports = self._reports(FRAME)
            self.interruption.check()
            yield reports
            self.screen.refresh()
        raise ActFailed(f"gave up after {self.settings.timeout:.0f} s of waiting for {what}")

    def reports(self, what: str, count: int, word: str) -> Iterator[WorkerReport]:
        """Yield every report until ``count`` of them had that word."""
        for reports in self.frames(what):
            for report in reports:
                yield report
                count -= report.word == word
            if count <= 0:
                return

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition that the workers do not report."""
        for _ in self.frames(what):
            if condition():
                return

    def enqueue(self, lock: Lock, name: str, ttl: float) -> None:
        """Order a worker to acquire a held lock, and wait until the server has it in the queue."""
        self.order(name, "acquire", lock.name, ttl)
        self.until(f"process {name} to queue", lambda: name in [waiter.label for waiter in lock.status().waiters])

    def pause(self, seconds: float) -> None:
        """Let time pass while the screen is redrawn."""
        end = monotonic() + seconds
        self.until("time to pass", lambda: monotonic() >= end)

    def _reports(self, seconds: float) -> list[WorkerReport]:
        reports: list[WorkerReport] = []
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            for child, (word, at, value) in self.group.receive(left):
                if word == "failed":
                    raise ActFailed(f"process {child.name} failed: {value}")
                reports.append(WorkerReport(child.name, word, value, at))
        return sorted(reports, key=lambda report: report.at)
