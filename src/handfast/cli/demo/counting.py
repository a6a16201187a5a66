"""Act 1: processes count together, first without a lock, then with it."""

from __future__ import annotations

from collections.abc import Iterator

from handfast.cli.demo.bars import Bar, Bars
from handfast.cli.demo.records import Finding
from handfast.cli.demo.stage import Stage

__all__ = ["act"]

TITLE = "Lost updates"


def act(stage: Stage) -> Iterator[Finding]:
    """Find out how many increments get lost."""
    plan = stage.plan
    total = plan.processes * plan.updates
    stage.screen.tell(
        f"{plan.processes} processes add 1 to the same counter, {plan.updates} times each: read it, think for "
        f"{plan.moment * 1000:.0f} ms, write it back. Whoever writes wipes out what others wrote since the read."
    )
    bars = {counter: (Bar("added", total), Bar("the counter says", total)) for counter in ("free", "locked")}
    with stage.screen.showing(Bars("without a lock", *bars["free"], "with the lock", *bars["locked"])):
        for counter, (added, says) in bars.items():
            _count(stage, counter, added, says)
            stage.pause(plan.pause)
    lost = {counter: added.value - says.value for counter, (added, says) in bars.items()}
    stage.screen.tell(
        f"[b]{lost['free']}[/b] of {total} updates were lost without the lock, [b]{lost['locked']}[/b] with it, taking turns."
        + ("" if lost["free"] else " (None without it either: a rare piece of luck, not a promise.)")
    )
    yield Finding("lost updates without a lock", f"{lost['free']} of {total}", None)
    yield Finding("lost updates with the lock", f"{lost['locked']} of {total}", lost["locked"] == 0)


def _count(stage: Stage, counter: str, added: Bar, says: Bar) -> None:
    plan = stage.plan
    for name in stage.crew.names[: plan.processes]:
        stage.crew.tell(name, f"count {counter} {plan.updates} {plan.moment}")
    for heard in stage.frames("the processes to count"):
        added.value += sum(word.verb == "step" for word in heard)
        says.value = stage.shared.count(counter)
        if added.value == added.total:
            break
    says.remark = "none lost" if says.value == added.value else f"[bold red]{added.value - says.value} lost[/]"
