"""Act 5: three processes share a rate, and one of them is killed while they wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from handfast.cli.demo.bars import Bar, Bars
from handfast.cli.demo.records import Finding, WorkerReport
from handfast.cli.demo.shared import LIMITER, RATE
from handfast.cli.demo.stage import Stage

__all__ = ["act"]

TITLE = "At most so many in a second"


class _Picture:
    """The calls within the last second, and those of each process."""

    def __init__(self, callers: Iterable[str], dying: str, calls: int) -> None:
        self.most = 0
        self.dying = Bar(f"process {dying}", calls)
        self._last = Bar(f"in the last {RATE.per:g} s", RATE.limit)
        self._callers = {name: Bar(f"process {name}", calls) for name in callers}
        self._all = {**self._callers, dying: self.dying}
        self.bars = Bars("calls", self._last, "by process", *self._all.values())

    @property
    def is_done(self) -> bool:
        return all(bar.value == bar.total for bar in self._callers.values())

    def draw(self, reports: Iterable[WorkerReport], used: int) -> None:
        for report in reports:
            self._all[report.worker].value += 1
        self.most = max(self.most, used)
        self._last.value = used
        self._last.remark = f"never above {self.most}"


def act(stage: Stage) -> Iterator[Finding]:
    """Find the most calls within a period, and whether the others go on without a dead waiter."""
    calls = stage.settings.calls
    *callers, dying = stage.workers[:3]
    stage.screen.tell(
        f"Three processes call a service that allows {RATE.limit} calls within {RATE.per:g} s, from all together. A limiter counts "
        "them on the server and lets them in one after the other. One of the processes is killed while all wait."
    )
    limiter = stage.handfast.limiter(LIMITER, RATE)
    picture = _Picture(callers, dying, calls)
    is_dead = False
    with stage.screen.showing(picture.bars):
        for name in (*callers, dying):
            stage.order(name, "call", calls)
        for reports in stage.frames("the processes to call"):
            status = limiter.status()
            picture.draw(reports, status.rates[0].used)
            if not is_dead and status.waiting > len(callers):
                stage.group.discard(stage.worker(dying))
                picture.dying.remark, is_dead = "[bold red]killed", True
            if picture.is_done:
                break
    stage.screen.tell(f"There were never more than [b]{picture.most}[/b], and the dead process held up no one.")
    stage.pause(stage.settings.pause / 2)
    yield Finding(f"most calls within {RATE.per:g} s", f"{picture.most} of {RATE.limit}", picture.most <= RATE.limit)
    yield Finding("calls beside a dead waiter", f"all {len(callers) * calls}", is_dead or None)
