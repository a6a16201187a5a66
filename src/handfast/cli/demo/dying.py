"""Act 3: a holder is killed, and the line moves on when its lease ends."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "A holder dies"


def act(stage: Stage) -> Iterator[Finding]:
    """Find out whether those who wait behind a dead holder get in."""
    plan, crew = stage.plan, stage.crew
    holder, *waiters = crew.names[:3]
    stage.screen.tell(
        f"A process holds a lock with a ttl of {plan.ttl:g} s, renewed for as long as it lives. It is killed with "
        "SIGKILL, which no program can catch. Nobody releases its lock, but its lease ends."
    )
    timeline = Timeline(2 * plan.step + 0.7 * plan.pause + plan.ttl + 2 * plan.turn)
    with stage.screen.showing(timeline):
        crew.tell(holder, f"enter killed {plan.ttl}")
        for word in stage.listen("the first process to get in", 1, "in"):
            timeline.change(word.who, "holds", word.at)
        lock = stage.handfast.lock("killed")
        for name in waiters:
            stage.line_up(lock, name, f"enter killed {plan.ttl}", f"work {plan.turn}", "leave")
            timeline.change(name, "waits")
            stage.pause(plan.step)
        stage.pause(plan.pause * 0.7)
        crew.kill(holder)
        killed_at = monotonic()
        timeline.change(holder, "dead", killed_at)
        timeline.mark(holder, "killed")
        after = _move_on(stage, holder, len(waiters), timeline, killed_at)
        timeline.stop()
    stage.screen.tell(f"The line moved on {after:.1f} s after the kill.")
    stage.pause(plan.pause)
    seen = f"moved on after {after:.1f} s (ttl {plan.ttl:g} s)"
    yield Finding("the line behind a dead holder", seen, held=after > 0)


def _move_on(stage: Stage, holder: str, waiting: int, timeline: Timeline, killed_at: float) -> float:
    """Watch everybody get in and out; how long after the kill the first got in."""
    after = 0.0
    for word in stage.listen("the line to move on", waiting, "left"):
        if word.verb == "in":
            timeline.change(word.who, "holds", word.at)
            if not after:
                after = word.at - killed_at
                timeline.change(holder, "", word.at)
                timeline.remark(word.who, f"got in {after:.1f} s after the kill")
            else:
                timeline.remark(word.who, "got in next")
        elif word.verb == "left":
            timeline.change(word.who, "", word.at)
    return after
