"""The seven acts: each announces an attempt, shows it, and returns the findings."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import inf
from time import monotonic

from handfast.cli.demo.stage import Bars, Board, Finding, Stage, Timeline
from handfast.cli.demo.worker import RATE

__all__ = ["ACTS", "ITEMS"]

ITEMS = "abcdefghijkl"
"""What processes share."""


def counting(stage: Stage) -> list[Finding]:
    """Lost updates."""
    times, names = max(10, 280 // stage.processes), [*stage.workers][: stage.processes]
    total, think = times * len(names), max(0.002, 0.024 * stage.pace)
    stage.tell(
        f"{len(names)} processes add 1 to the same counter, {times} times each: they read it, wait {think * 1000:.0f} ms and "
        "write it back. A write overwrites what other processes wrote since the read."
    )
    bars, lost = Bars(), {}
    with stage.showing(bars):
        for counter, how in (("free", "without a lock"), ("locked", "with the lock")):
            added = 0
            for name in names:
                stage.order(name, "count", counter, times, think)
            for _ in stage.reports("the processes to count", lambda: added == total):  # noqa: B023 -- used at once
                added += _.word == "counted"
                says = int(stage.value(counter) or 0)
                remark = f"[bold red]{added - says} lost[/]" if added > says else "none lost"
                bars[f"added {how}"] = added, total, ""
                bars["  the counter says" + " " * (counter == "locked")] = says, total, remark * (added == total)
            lost[counter] = added - says
            stage.pause()
    stage.tell(
        f"[b]{lost['free']}[/b] of {total} updates were lost without the lock, [b]{lost['locked']}[/b] with it."
        + ("" if lost["free"] else " (None without it either: by luck, which is not a promise.)")
    )
    return [
        Finding("lost updates without a lock", f"{lost['free']} of {total}", None),
        Finding("lost updates with the lock", f"{lost['locked']} of {total}", lost["locked"] == 0),
    ]


def queueing(stage: Stage) -> list[Finding]:
    """First come, first served."""
    names = random.sample([*stage.workers], min(10, len(stage.workers)))
    stage.tell(
        f"The demo holds a lock; {len(names)} processes request it in a random order and wait in the queue. Then the demo "
        "releases it. Each release hands the lock to the first waiter: no process polls, and none overtakes."
    )
    with stage.showing(Timeline((len(names) * 0.7 + 0.7) * stage.pace)):
        with (lock := stage.hf.lock("door")):
            for name in names:
                stage.enqueue(lock, name)
                stage.order(name, "work", 0.4 * stage.pace)
                stage.order(name, "release")
            queued = [waiter.label for waiter in lock.status().waiters]
        grants = [report for report in stage.words("released", len(names)) if report.word == "acquired"]
        acquired = [report.worker for report in sorted(grants, key=lambda report: report.value)]  # by their fences
        for place, name in enumerate(acquired, 1):
            stage.timeline.remarks[name] = f"acquired as number {place}"
    stage.tell(f"queued      [b]{'  '.join(queued)}[/]\nacquired    [bold green]{'  '.join(acquired)}[/]")
    stage.pause()
    seen = "as they queued" if queued == acquired else f"queued {' '.join(queued)}"
    return [Finding("order of the grants", f"{' '.join(acquired)}, {seen}", queued == acquired)]


def dying(stage: Stage) -> list[Finding]:
    """A holder dies."""
    holder, *waiters = [*stage.workers][:3]
    stage.tell(
        f"A process holds a lock with a ttl of {stage.ttl:g} s, which is renewed for as long as the process lives. It is "
        "killed with SIGKILL, which no program can catch. It cannot release the lock, but its lease ends."
    )
    with stage.showing(Timeline(stage.ttl + 2 * stage.pace)):
        stage.order(holder, "acquire", "killed", stage.ttl)
        stage.words("acquired")
        for name in waiters:
            stage.enqueue(stage.hf.lock("killed"), name)
            stage.order(name, "work", 0.4 * stage.pace)
            stage.order(name, "release")
        stage.pause(0.9)
        stage.kill(holder)
        stage.timeline.change(holder, "dead", "[bold red]killed")
        killed_at = stage.timeline.rows[holder][-1][0]
        grant = stage.words("acquired")[-1]
        after = grant.at - killed_at
        stage.timeline.change(holder, "", at=grant.at)
        stage.timeline.remarks[grant.worker] = f"acquired {after:.1f} s after the kill"
        stage.words("released", len(waiters))
    stage.pause()
    seen = f"moved on after {after:.1f} s (ttl {stage.ttl:g} s)"
    return [Finding("the queue behind a dead holder", seen, grant.worker == waiters[0])]


def freezing(stage: Stage) -> list[Finding]:
    """A holder freezes, and wakes up too late."""
    sleeper, successor = [*stage.workers][:2]
    stage.tell(
        "A process is stopped while it works (SIGSTOP, like a paused virtual machine). Its lease ends and the next process "
        "acquires the lock. Then the first one continues, unaware, and writes. Each grant has a larger number than the one "
        "before, its [i]fence[/i], and the resource that they write to refuses smaller fences."
    )
    with stage.showing(Timeline(stage.ttl + 3.4 * stage.pace)):
        for name in (sleeper, successor):
            stage.order(name, "acquire", "frozen", stage.ttl)
            stage.order(name, "write", f"from-{name}")
            stage.timeline.change(name, "waits")
            grant, _ = stage.words("wrote")
            stage.timeline.remarks[name] = f"fence {grant.value}"
            stage.pause()
            if name == sleeper:
                stage.signal(sleeper, signal.SIGSTOP)
                stage.timeline.change(sleeper, "frozen")
                stage.order(sleeper, "write", "too late")  # read when it wakes up
                stage.order(sleeper, "release")
        stage.signal(sleeper, signal.SIGCONT)
        late, released = stage.words("released")
        refused = late.word == "refused" and stage.value("resource") == f"from-{successor}"
        stage.timeline.remarks[sleeper] = f"[bold red]late write {'refused' if refused else 'ACCEPTED'}"
        stage.order(successor, "release")
        kept = stage.words("released")[-1]
    stage.pause()
    seen = "passed on, holder informed" if not released.value else "holder NOT informed of its loss"
    return [
        Finding("late write of a frozen holder", "refused by its fence" if refused else "ACCEPTED", refused),
        Finding("lease of that holder", seen if kept.value else "the next holder LOST it", kept.value > released.value),
    ]


def limiting(stage: Stage) -> list[Finding]:
    """At most so many in a second."""
    times, most, is_dead = max(6, round(8 * stage.pace)), 0, False
    *callers, victim = [*stage.workers][:3]
    stage.tell(
        f"Three processes call a service that allows {RATE.limit} calls within {RATE.per:g} s, from all together. A limiter counts "
        "them on the server and lets them in one after the other. One of the processes is killed while all wait."
    )
    limiter, calls, bars = stage.hf.limiter("service", RATE), Counter[str](), Bars()

    def is_done() -> bool:
        nonlocal most, is_dead
        status = limiter.status()
        most = max(most, status.rates[0].used)
        if not is_dead and status.waiting > len(callers):
            stage.kill(victim)
            is_dead = True
        bars[f"in the last {RATE.per:g} s"] = status.rates[0].used, RATE.limit, f"never above {most}"
        for name in (*callers, victim):
            bars[f"process {name}"] = calls[name], times, "[bold red]killed" * (is_dead and name == victim)
        return all(calls[name] == times for name in callers)

    with stage.showing(bars):
        for name in (*callers, victim):
            stage.order(name, "call", times)
        for report in stage.reports("the processes to call", is_done):
            calls[report.worker] += report.word == "called"
    stage.pause()
    return [
        Finding(f"most calls within {RATE.per:g} s", f"{most} of {RATE.limit}", most <= RATE.limit),
        Finding("calls beside a dead waiter", f"all {len(callers) * times}", is_dead or None),
    ]


def making(stage: Stage) -> list[Finding]:
    """One makes it, all have it."""
    victim, *waiters, late = [*stage.workers][:4]
    stage.tell(
        "Processes want the same report. [i]once[/i] lets the first one make it, while the others wait for it. The first one is "
        "killed. The next one makes it, and the others get what it has made, also one that comes later."
    )
    once = stage.hf.once("report")
    with stage.showing(Timeline(stage.ttl + 1.4 * stage.pace)):
        stage.order(victim, "make", stage.ttl, 60)
        stage.words("runs")
        for place, name in enumerate(waiters, 1):
            stage.order(name, "make", stage.ttl, 0.4 * stage.pace)
            stage.timeline.change(name, "waits")
            stage.until(f"process {name} to wait", lambda: once.status().waiting >= place)  # noqa: B023 -- used at once
            stage.pause(0.2)
        stage.kill(victim)
        stage.timeline.change(victim, "dead", "[bold red]killed")
        seen = stage.words("runs")
        stage.timeline.change(victim, "")
        seen += stage.words("got", len(waiters))
        stage.order(late, "make", stage.ttl, 1)
        seen += stage.words("got")
        makers = [report.worker for report in seen if report.word == "made"]
        got = {report.worker: report.value for report in seen if report.word == "got"}
        for name, value in got.items():
            stage.timeline.remarks[name] = "made it" if name in makers else f"got {value!r}"
    stage.pause()
    is_one = len(makers) == len(set(got.values())) == 1
    return [
        Finding(
            "results beside a dead process", f"made by {', '.join(makers)}, had by {', '.join(sorted(got))}", is_one
        )
    ]


def sharing(stage: Stage) -> list[Finding]:
    """Each item on a single process."""
    first, second, third = [*stage.workers][:3]
    every = max(0.5, stage.pace)
    stage.tell(
        f"Processes share {len(ITEMS)} bots: each bot is on a single process, and all processes have as many. A process joins, and "
        "some bots move to it. Then a process is killed, and its bots move when the leases end. Few bots move, and none is ever "
        "on two processes."
    )
    board, spans, moves = Board(ITEMS), Spans(), []

    def shared(names: list[str]) -> bool:
        return all(len(board.rows[name]) == len(ITEMS) // len(names) for name in names)

    def follow(names: list[str]) -> int:
        """Wait until these processes share the items. Return how many have moved."""
        begun = len(spans.done) + len(spans.open)
        for report in stage.reports(f"{', '.join(names)} to share the items", lambda: shared(names)):
            if report.word == "has":
                board.rows[report.worker].add(report.value)
                spans.begin(report.value, report.worker, report.at)
            elif report.word == "gave":
                board.rows[report.worker].discard(report.value)
                spans.end(report.value, report.worker, report.at)
        return len(spans.done) + len(spans.open) - begun

    with stage.showing(board):
        for names in ([first], [first, second], [first, second, third]):
            board.rows[names[-1]] = set()
            stage.order(names[-1], "share", [*ITEMS], stage.ttl, every)
            moves.append(follow(names))
            board.remarks[names[-1]] = "joined" if len(names) > 1 else ""
            stage.pause(0.7)
        stage.kill(second)
        board.remarks[second] = "[bold red]killed"
        for item in board.rows[second]:
            spans.end(item, second, monotonic())
        board.rows[second] = set()
        moves.append(follow([first, third]))
        stage.pause()
    return [
        Finding("bots that moved when a process joined", f"{moves[2]} of {len(ITEMS)}, {len(ITEMS) // 3} needed", None),
        Finding("bots on two processes at once", str(spans.doubles()), spans.doubles() == 0),
    ]


class Spans:
    """When which process had which item."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], float] = {}
        self.done: list[tuple[str, float, float]] = []

    def begin(self, item: str, name: str, at: float) -> None:
        self.open[item, name] = at

    def end(self, item: str, name: str, at: float) -> None:
        self.done.append((item, self.open.pop((item, name)), at))

    def doubles(self) -> int:
        """Count the items that two had at once."""
        spans = sorted([*self.done, *((item, at, inf) for (item, _), at in self.open.items())])
        return sum(one[0] == other[0] and one[2] > other[1] for one, other in pairwise(spans))


ACTS: tuple[Callable[[Stage], list[Finding]], ...] = (counting, queueing, dying, freezing, limiting, making, sharing)
