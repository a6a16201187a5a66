"""Act 2: processes stand in line, and the lock goes down the line."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from handfast._api.sync.lock import Lock
from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Broken, Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "First come, first served"

LONGEST_LINE = 10
"""Processes that fit on a screen."""


class _Rows:
    """Two orders, one above the other."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.got_in: list[str] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text()
        yield Text.assemble("  queued      ", ("  ".join(self.queued), "bold"))
        yield Text.assemble("  got in      ", ("  ".join(self.got_in), "bold green"))


def act(stage: Stage) -> Iterator[Finding]:
    """Find out whether the order of the line is the order of getting in."""
    plan = stage.plan
    line = stage.crew.names[:LONGEST_LINE]
    random.shuffle(line)
    stage.screen.tell(
        f"The demo holds a lock; {len(line)} processes come for it in a random order and stand in line. Then the demo "
        "lets go. Each release hands the lock to the next in line: nobody polls, and nobody pushes in."
    )
    rows = _Rows()
    timeline = Timeline(len(line) * (plan.step + plan.turn + 0.1) + plan.pause / 2)
    with stage.screen.showing(Group(timeline, rows)):
        lock = stage.handfast.lock("door")
        lease = lock.try_acquire()
        if lease is None:
            raise Broken("a lock that nobody knew before was not free")
        with lease:
            _line_up(stage, lock, line, timeline, rows)
            stage.pause(plan.pause / 2)
        for word in stage.listen("everybody to get in and out", len(line), "left"):
            if word.verb == "in":
                rows.got_in.append(word.who)
                timeline.change(word.who, "holds", word.at)
                timeline.remark(word.who, f"got in as number {len(rows.got_in)}")
            elif word.verb == "left":
                timeline.change(word.who, "", word.at)
        rows.got_in = stage.shared.signatures()
        timeline.stop()
    same = rows.queued == rows.got_in
    stage.screen.tell("They got in exactly as they queued." if same else "[bold red]The two orders differ.[/]")
    stage.pause(plan.pause)
    queued = "as they queued" if same else f"queued {' '.join(rows.queued)}"
    yield Finding("who got in, in which order", f"{' '.join(rows.got_in)}, {queued}", same)


def _line_up(stage: Stage, lock: Lock, line: list[str], timeline: Timeline, rows: _Rows) -> None:
    """Let one come after the other: the next only when the server says that the one before stands in line."""
    for name in line:
        stage.line_up(lock, name, "enter door 30", f"sign {name}", f"work {stage.plan.turn}", "leave")
        rows.queued = [waiter.label for waiter in lock.status().waiters]
        timeline.change(name, "waits")
        stage.pause(stage.plan.step)
