"""Act 4: a holder is frozen until its lease has ended, then writes, and the resource refuses its fence."""

from __future__ import annotations

from collections.abc import Iterator

from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import ActFailed, Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "A holder freezes, and wakes up too late"


def act(stage: Stage) -> Iterator[Finding]:
    """Find out whether a write after the loss of the lease is refused."""
    settings, shared = stage.settings, stage.shared
    sleeper, successor = stage.workers[:2]
    stage.screen.tell(
        "A process is stopped while it works (SIGSTOP, like a paused virtual machine). Its lease ends and the next process "
        "acquires the lock. Then the first one continues, unaware, and writes. Each grant has a larger number than the one "
        "before, its [i]fence[/i], and the resource that they write to refuses smaller fences."
    )
    timeline = Timeline(settings.ttl + 2.6 * settings.pause)
    with stage.screen.showing(timeline):
        first = _acquire_and_write(stage, sleeper, timeline)
        stage.pause(settings.pause * 0.7)
        stage.worker(sleeper).freeze()
        timeline.change(sleeper, "frozen")
        stage.order(sleeper, "write", f"from-{sleeper}-too-late")  # read when it wakes up
        stage.order(sleeper, "release")
        second = _acquire_and_write(stage, successor, timeline)
        stage.pause(settings.pause)
        stage.worker(sleeper).thaw()
        timeline.change(sleeper, "")
        late = {
            report.word: report.value
            for report in stage.reports("the late write", 1, "released")
            if report.worker == sleeper
        }
        refused = not late["wrote"] and shared.text() == f"from-{successor}"
        timeline.mark(sleeper, "late write refused" if refused else "late write ACCEPTED")
        stage.pause(settings.pause / 2)
        stage.order(successor, "release")
        kept = any(
            report.value for report in stage.reports("the last release", 1, "released") if report.word == "released"
        )
        timeline.change(successor, "")
        timeline.stop()
    stage.screen.tell(
        f"The write with fence [b]{first}[/b] came after [b]{second}[/b]: {'refused' if refused else 'ACCEPTED'}."
    )
    stage.pause(settings.pause)
    yield Finding("late write of a frozen holder", "refused by its fence" if refused else "ACCEPTED", refused)
    noticed = not late["released"]
    if noticed and kept:
        seen = "passed on, holder informed"
    else:
        seen = "holder NOT informed of its loss" if kept else "the next holder LOST it"
    yield Finding("lease of that holder", seen, noticed and kept)


def _acquire_and_write(stage: Stage, name: str, timeline: Timeline) -> int:
    """Wait until the process holds the lock and has written once; return its fence."""
    stage.order(name, "acquire", "frozen", stage.settings.ttl)
    stage.order(name, "write", f"from-{name}")
    timeline.change(name, "waits")
    fence = 0
    for report in stage.reports(f"process {name} to acquire the lock and write", 1, "wrote"):
        if report.word == "acquired":
            fence = report.value
            timeline.change(name, "holds", report.at)
            timeline.remark(name, f"fence {fence}")
        elif not report.value:
            raise ActFailed(f"the first write of process {name} was refused")
    return fence
