"""Act 2: processes queue for a lock, and each release hands it to the next one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from handfast._api.sync.lock import Lock
from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import ActFailed, Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "First come, first served"

LONGEST_QUEUE = 10
"""Processes that fit on a screen."""

TTL = 30.0
"""Seconds."""


class _Orders:
    """The two orders, one above the other."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.acquired: list[str] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text()
        yield Text.assemble("  queued      ", ("  ".join(self.queued), "bold"))
        yield Text.assemble("  acquired    ", ("  ".join(self.acquired), "bold green"))


def act(stage: Stage) -> Iterator[Finding]:
    """Compare the order of the queue with the order of the grants."""
    settings = stage.settings
    names = stage.workers[:LONGEST_QUEUE]
    random.shuffle(names)
    stage.screen.tell(
        f"The demo holds a lock; {len(names)} processes request it in a random order and wait in the queue. Then the demo "
        "releases it. Each release hands the lock to the first waiter: no process polls, and none overtakes."
    )
    orders = _Orders()
    timeline = Timeline(len(names) * (settings.arrival_gap + settings.hold + 0.1) + settings.pause / 2)
    with stage.screen.showing(Group(timeline, orders)):
        lock = stage.handfast.lock("door")
        lease = lock.try_acquire()
        if lease is None:
            raise ActFailed("a lock with a new name was not free")
        with lease:
            _enqueue(stage, lock, names, timeline, orders)
            stage.pause(settings.pause / 2)
        for report in stage.reports("every process to acquire and release", len(names), "released"):
            if report.word == "acquired":
                orders.acquired.append(report.worker)
                timeline.change(report.worker, "holds", report.at)
                timeline.remark(report.worker, f"acquired as number {len(orders.acquired)}")
            elif report.word == "released":
                timeline.change(report.worker, "", report.at)
        orders.acquired = stage.shared.signatures()
        timeline.stop()
    same = orders.queued == orders.acquired
    stage.screen.tell("They acquired it in the order of the queue." if same else "[bold red]The two orders differ.[/]")
    stage.pause(settings.pause)
    queued = "as they queued" if same else f"queued {' '.join(orders.queued)}"
    yield Finding("order of the grants", f"{' '.join(orders.acquired)}, {queued}", same)


def _enqueue(stage: Stage, lock: Lock, names: list[str], timeline: Timeline, orders: _Orders) -> None:
    """Let one come after the other: the next one when the server has the one before in the queue."""
    for name in names:
        stage.enqueue(lock, name, TTL)
        stage.order(name, "sign", name)
        stage.order(name, "work", stage.settings.hold)
        stage.order(name, "release")
        orders.queued = [waiter.label for waiter in lock.status().waiters]
        timeline.change(name, "waits")
        stage.pause(stage.settings.arrival_gap)
