"""Act 3: a holder is killed, and the lock passes to the first waiter when the lease ends."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "A holder dies"


def act(stage: Stage) -> Iterator[Finding]:
    """Measure how long after the kill the first waiter acquires the lock."""
    settings = stage.settings
    holder, *waiters = stage.workers[:3]
    stage.screen.tell(
        f"A process holds a lock with a ttl of {settings.ttl:g} s, which is renewed for as long as the process lives. It is "
        "killed with SIGKILL, which no program can catch. It cannot release the lock, but its lease ends."
    )
    timeline = Timeline(2 * settings.arrival_gap + 0.7 * settings.pause + settings.ttl + 2 * settings.hold)
    with stage.screen.showing(timeline):
        stage.order(holder, "acquire", "killed", settings.ttl)
        for report in stage.reports("the first process to acquire the lock", 1, "acquired"):
            timeline.change(report.worker, "holds", report.at)
        lock = stage.handfast.lock("killed")
        for name in waiters:
            stage.enqueue(lock, name, settings.ttl)
            stage.order(name, "work", settings.hold)
            stage.order(name, "release")
            timeline.change(name, "waits")
            stage.pause(settings.arrival_gap)
        stage.pause(settings.pause * 0.7)
        stage.group.discard(stage.worker(holder))
        killed_at = monotonic()
        timeline.change(holder, "dead", killed_at)
        timeline.mark(holder, "killed")
        after = _take_over(stage, holder, len(waiters), timeline, killed_at)
        timeline.stop()
    stage.screen.tell(f"The first waiter acquired the lock {after:.1f} s after the kill.")
    stage.pause(settings.pause)
    seen = f"moved on after {after:.1f} s (ttl {settings.ttl:g} s)"
    yield Finding("the queue behind a dead holder", seen, held=after > 0)


def _take_over(stage: Stage, holder: str, waiting: int, timeline: Timeline, killed_at: float) -> float:
    """Follow the waiters until all have released; return the seconds from the kill to the first grant."""
    after = 0.0
    for report in stage.reports("the waiters to acquire the lock", waiting, "released"):
        if report.word == "acquired":
            timeline.change(report.worker, "holds", report.at)
            if not after:
                after = report.at - killed_at
                timeline.change(holder, "", report.at)
                timeline.remark(report.worker, f"acquired {after:.1f} s after the kill")
            else:
                timeline.remark(report.worker, "acquired next")
        elif report.word == "released":
            timeline.change(report.worker, "", report.at)
    return after
