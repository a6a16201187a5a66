"""Act 1: processes increment a counter, first without a lock, then with it."""

from __future__ import annotations

from collections.abc import Iterator

from handfast.cli.demo.bars import Bar, Bars
from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Stage

__all__ = ["act"]

TITLE = "Lost updates"


def act(stage: Stage) -> Iterator[Finding]:
    """Count how many increments are lost."""
    settings = stage.settings
    total = settings.processes * settings.updates
    stage.screen.tell(
        f"{settings.processes} processes add 1 to the same counter, {settings.updates} times each: they read it, wait "
        f"{settings.think * 1000:.0f} ms and write it back. A write overwrites what other processes wrote since the read."
    )
    bars = {counter: (Bar("added", total), Bar("the counter says", total)) for counter in ("free", "locked")}
    with stage.screen.showing(Bars("without a lock", *bars["free"], "with the lock", *bars["locked"])):
        for counter, (added, says) in bars.items():
            _count(stage, counter, added, says)
            stage.pause(settings.pause)
    lost = {counter: added.value - says.value for counter, (added, says) in bars.items()}
    stage.screen.tell(
        f"[b]{lost['free']}[/b] of {total} updates were lost without the lock, [b]{lost['locked']}[/b] with it."
        + ("" if lost["free"] else " (None without it either: by luck, which is not a promise.)")
    )
    yield Finding("lost updates without a lock", f"{lost['free']} of {total}", None)
    yield Finding("lost updates with the lock", f"{lost['locked']} of {total}", lost["locked"] == 0)


def _count(stage: Stage, counter: str, added: Bar, says: Bar) -> None:
    settings = stage.settings
    for name in stage.workers[: settings.processes]:
        stage.order(name, "count", counter, settings.updates, settings.think)
    for reports in stage.frames("the processes to count"):
        added.value += sum(report.word == "counted" for report in reports)
        says.value = stage.shared.count(counter)
        if added.value == added.total:
            break
    says.remark = "none lost" if says.value == added.value else f"[bold red]{added.value - says.value} lost[/]"
