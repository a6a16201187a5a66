"""Act 6: processes want the same result, and the one that makes it is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from handfast.cli.demo.records import Finding
from handfast.cli.demo.shared import REPORT
from handfast.cli.demo.stage import Stage
from handfast.cli.demo.timeline import Timeline

__all__ = ["act"]

TITLE = "One makes it, all have it"


class _Course:
    """Who has begun to make it, who has made it, and what each process has got."""

    def __init__(self, stage: Stage, timeline: Timeline) -> None:
        self.begun: list[str] = []
        self.made: list[str] = []
        self.got: dict[str, str] = {}
        self._stage = stage
        self._timeline = timeline

    def follow(self, what: str, condition: Callable[[], bool]) -> None:
        """Draw what the processes report until the condition holds."""
        for reports in self._stage.frames(what):
            for report in reports:
                self._draw(report.worker, report.word, report.value, report.at)
            if condition():
                return

    def _draw(self, worker: str, word: str, value: str, at: float) -> None:
        match word:
            case "runs":
                self.begun.append(worker)
                self._timeline.change(worker, "runs", at)
            case "made":
                self.made.append(worker)
                self._timeline.remark(worker, "made it")
            case "got":
                self.got[worker] = value
                self._timeline.change(worker, "", at)
                if worker not in self.made:
                    self._timeline.remark(worker, f"got {value!r}")


def act(stage: Stage) -> Iterator[Finding]:
    """Find out whether one process makes the result, after the death of another one, and all get the same."""
    settings = stage.settings
    dying, first, second, late = stage.workers[:4]
    stage.screen.tell(
        "Processes want the same report. [i]once[/i] lets the first one make it, while the others wait for it. The first one is "
        "killed. The next one makes it, and the others get what it has made, also one that comes later."
    )
    timeline = Timeline(3 * settings.arrival_gap + settings.ttl + 2 * settings.hold)
    course = _Course(stage, timeline)
    with stage.screen.showing(timeline):
        stage.order(dying, "make", settings.ttl, settings.timeout)
        course.follow("the first process to begin", lambda: dying in course.begun)
        for name in (first, second):
            _let_wait(stage, name)
            timeline.change(name, "waits")
            stage.pause(settings.arrival_gap)
        stage.group.discard(stage.worker(dying))
        timeline.change(dying, "dead")
        timeline.mark(dying, "killed")
        course.follow("another process to begin", lambda: len(course.begun) > 1)
        timeline.change(dying, "")
        course.follow("the waiters to get the report", lambda: course.got.keys() >= {first, second})
        stage.order(late, "make", settings.ttl, settings.hold)
        course.follow("the last process to find the report", lambda: late in course.got)
        timeline.stop()
    made, got = ", ".join(course.made), ", ".join(sorted(course.got))
    stage.screen.tell(f"It was made once, by process [b]{made}[/b]; {got} have the same.")
    stage.pause(settings.pause / 2)
    is_one = len(course.made) == len(set(course.got.values())) == 1
    yield Finding("results beside a dead process", f"made by {made}, had by {got}", is_one)


def _let_wait(stage: Stage, name: str) -> None:
    """Order a process to make what another one makes, and wait until it is in the queue."""
    once = stage.handfast.once(REPORT)
    waiting = once.status().waiting
    stage.order(name, "make", stage.settings.ttl, stage.settings.hold)
    stage.until(f"process {name} to wait", lambda: once.status().waiting > waiting)
