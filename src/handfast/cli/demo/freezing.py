"""Act 4: a holder is frozen for longer than its lease lasts, wakes up and writes, and its fence keeps it out."""

from __future__ import annotations

from collections.abc import Iterator

from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Broken, Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "A holder freezes, and wakes up too late"


def act(stage: Stage) -> Iterator[Finding]:
    """Find out whether a write that comes after the lease was lost is refused."""
    plan, crew, shared = stage.plan, stage.crew, stage.shared
    sleeper, heir = crew.names[:2]
    stage.screen.tell(
        "A process is stopped in the middle of its work (SIGSTOP; think of a paused virtual machine). Its lease ends, "
        "the next one gets in. Then it wakes up, knows of nothing, and writes. Each grant has a larger number than the "
        "one before, its [i]fence[/i], and what they write to refuses smaller ones."
    )
    timeline = Timeline(plan.ttl + 2.6 * plan.pause)
    with stage.screen.showing(timeline):
        first = _get_in(stage, sleeper, timeline)
        stage.pause(plan.pause * 0.7)
        crew.freeze(sleeper)
        timeline.change(sleeper, "frozen")
        crew.tell(sleeper, f"write from-{sleeper}-too-late", "leave")  # read when it wakes up
        second = _get_in(stage, heir, timeline)
        stage.pause(plan.pause)
        crew.thaw(sleeper)
        timeline.change(sleeper, "")
        said = {word.verb: word for word in stage.listen("the late write", 1, "left") if word.who == sleeper}
        refused = not said["wrote"].number and shared.text() == f"from-{heir}"
        timeline.mark(sleeper, "late write refused" if refused else "late write ACCEPTED")
        stage.pause(plan.pause / 2)
        crew.tell(heir, "leave")
        kept = any(word.number for word in stage.listen("the heir to leave", 1, "left") if word.verb == "left")
        timeline.change(heir, "")
        timeline.stop()
    stage.screen.tell(
        f"The write with fence [b]{first}[/b] came after [b]{second}[/b]: {'refused' if refused else 'ACCEPTED'}."
    )
    stage.pause(plan.pause)
    yield Finding("a late write of a frozen holder", "refused by its fence" if refused else "ACCEPTED", refused)
    told = not said["left"].number
    seen = "passed on, and it was told so" if told and kept else "NOT told of its loss" if kept else "its heir LOST it"
    yield Finding("the lease of that holder", seen, told and kept)


def _get_in(stage: Stage, name: str, timeline: Timeline) -> int:
    """Wait until the process has the lock and has written once; its fence."""
    stage.crew.tell(name, f"enter frozen {stage.plan.ttl}", f"write from-{name}")
    timeline.change(name, "waits")
    fence = 0
    for word in stage.listen(f"process {name} to get in and write", 1, "wrote"):
        if word.verb == "in":
            fence = word.number
            timeline.change(name, "holds", word.at)
            timeline.remark(name, f"fence {fence}")
        elif not word.number:
            raise Broken(f"the first write of process {name} was refused")
    return fence
