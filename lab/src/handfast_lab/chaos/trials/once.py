"""Attack what does something once: kill and stop those that run, let many ask at once, and ask often while a result is made anew.

    R42  Processes ask for the same key at once; some of those that run are killed with SIGKILL. Counted: keys for which not all
         callers got one and the same result, and runs that overlap another one of their key.
    R43  Some are stopped with SIGSTOP for longer than their ttl, and go on when another one has run. Counted: keys for which a
         result is not the one that all others got, also when they are asked for once more.
    R44  Processes with many callers each ask for a key that takes half a second. Counted: runs beyond the first. Measured: calls of
         the server for each caller, and when the last caller has its answer.
    R45  Processes ask for a hot key again and again, which is made anew before its result ends. Counted: processes whose callers
         waited for that. Measured: runs, and the runs that the time asks for.

A process that is killed is replaced by a new one, which asks for the same key.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic

from handfast.testing import ServerController
from handfast_lab.chaos.figures import Figure, Tally, duration, durations
from handfast_lab.chaos.once_users import OnceUser, OnceUsers
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.children import ChildProcess, ProcessFailed, Report
from handfast_lab.rivals.once.contender import Lifetimes, OnceContender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R42", "R43", "R44", "R45")
COUNT = 1_000
"""Keys of R42; one in five is asked for in R43. There are a hundredth as many stampedes, and a fiftieth as many seconds
of R45."""

PROCESSES, CALLERS = 10, 100
"""Who asks; and callers of each process in R44."""

SHORT_WORK_S, LONG_WORK_S, STAMPEDE_WORK_S, HOT_WORK_S = 0.002, 0.2, 0.5, 0.2
"""How long a run lasts: of most keys, of those whose process is killed or stopped, of R44 and of R45."""

SHARE = 0.1
"""Part of the keys of R42 whose first runner is killed."""

TTL_S, KEEP_S = 0.3, 120.0
"""Lifetimes of R42 to R44."""

HOT = Lifetimes(keep=2.0, ttl=2.0, refresh=1.0)
"""Lifetimes of R45."""

AT_ONCE_S = 0.1
"""A call that returns within this time has waited for no run of R45: half of what it lasts."""

RETRY_FOR_S = 10.0
"""Seconds that the trial waits for a process."""

LONGEST_S = 120.0
"""Seconds after which R42 and R43 ask for no further key: some rivals need long for each process that dies."""


def applies(contender: OnceContender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: all that is tried here is for what does something once."""
    return True


def trial(contender: OnceContender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run all parts that the contender has calls for."""
    tick, chance = one_by_one(progress), random.Random(seed)  # noqa: S311 -- test data
    with ServerController() as server:
        test = _Test(contender, server, chance, seed, tick)
        figures = [test.killed(count), test.stopped(max(1, count // 5)), test.stampedes(max(1, count // 100))]
        return [*figures, test.refreshed(max(3.0, count / 50))] if contender.refreshes else figures


@dataclass
class _Key:
    """What the callers of one key reported."""

    name: str
    runs: dict[str, list[float]] = field(default_factory=dict)
    """When each run began and, unless its process died, ended."""
    results: Counter[str] = field(default_factory=Counter)
    answered: dict[ChildProcess, float] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Runs whose process was killed, or stopped for longer than its lease."""

    def note(self, user: ChildProcess, report: Report) -> None:
        """Take a report. Raises ProcessFailed for that of an error."""
        if report.word == "running":
            self.runs[report.value] = [report.at]
        elif report.word == "ran":
            self.runs[report.value].append(report.at)
        elif report.word == "answered":
            self.results.update(report.value)
            self.answered[user] = report.at
        elif report.word != "refused":
            raise ProcessFailed(f"{self.name}: {report.value}")

    @property
    def overlaps(self) -> int:
        """How many runs began before an earlier one had ended, of those that were not lost."""
        runs = sorted(times for run, times in self.runs.items() if run not in self.lost and len(times) > 1)
        return sum(begun < ended for (_, ended), (begun, _) in pairwise(runs))


@dataclass(frozen=True)
class _Test:
    contender: OnceContender
    server: ServerController
    chance: random.Random
    seed: int
    tick: Tick
    kind: type[OnceUser] = OnceUser

    def users(self, lifetimes: Lifetimes) -> OnceUsers:
        return OnceUsers(self.contender, self.server.url, lifetimes, self.kind)

    def figure(self, tally: Tally, row: str, what: str, unit: str) -> Figure:
        return tally.figure(row, what, self.contender.name, unit, seed=self.seed)

    # --- R42

    def killed(self, keys: int) -> Figure:
        """Ask for so many keys, and kill some of those that run."""
        tally, after, until = Tally(), list[float](), monotonic() + LONGEST_S
        with self.users(Lifetimes(KEEP_S, TTL_S)) as users:
            users.new(PROCESSES)
            for number in range(keys):
                if monotonic() > until:
                    break
                kills = self.chance.random() < SHARE
                key = _Key(f"killed-{number}")
                try:
                    died_at = self._ask(users, key, LONG_WORK_S if kills else SHORT_WORK_S, kills=kills)
                except ProcessFailed as error:
                    tally.check(False, "{}", str(error))
                    _replace(users)
                    continue
                if kills:
                    later = [times[0] for run, times in key.runs.items() if run not in key.lost]
                    after += [min(later) - died_at - TTL_S] if later else []
                right = len(key.results) == 1 and not key.overlaps and len(key.runs) == 1 + kills
                tally.check(right, "{}: results {}, runs {}", key.name, dict(key.results), key.runs)
                self.tick()
        tally.measured = {"killed": len(after), **durations(after, "from the end of the ttl to the next run", "ms")}
        return self.figure(tally, "R42", f"{SHARE:.0%} of the runners killed", "keys with other than one result")

    def _ask(self, users: OnceUsers, key: _Key, work_s: float, *, kills: bool = False) -> float:
        """Let all processes ask for a key, until all have an answer. Return when one was killed."""
        died_at, until = 0.0, monotonic() + RETRY_FOR_S
        for user in users:
            user.order("ask", key.name, work_s)
        while len(key.answered) < len(users):
            if monotonic() > until:
                raise ProcessFailed(f"{key.name}: not all were answered within {RETRY_FOR_S:g} s")
            for user, report in users.receive(1.0):
                key.note(user, report)
                if kills and report.word == "running" and not key.lost:
                    key.lost.add(report.value)
                    users.discard(user)
                    died_at = monotonic()
                    (new,) = users.new()
                    new.order("ask", key.name, work_s)
        return died_at

    # --- R43

    def stopped(self, keys: int) -> Figure:
        """Ask for so many keys, and stop those that run for longer than their ttl."""
        tally, refused, until = Tally(), 0, monotonic() + LONGEST_S
        with self.users(Lifetimes(KEEP_S, TTL_S)) as users:
            users.new(PROCESSES)
            for number in range(keys):
                if monotonic() > until:
                    break
                key = _Key(f"stopped-{number}")
                try:
                    refused += self._stop_one(users, key)
                    first = max(key.results, key=key.results.__getitem__)
                    again = _Key(key.name)
                    self._ask(users, again, SHORT_WORK_S)
                except ProcessFailed as error:
                    tally.check(False, "{}", str(error))
                    _replace(users)
                    continue
                right = set(key.results) == set(again.results) == {first} and not again.runs
                tally.check(right, "{}: results {}, and then {}", key.name, dict(key.results), dict(again.results))
                self.tick()
        tally.measured = {"late results that were refused": refused}
        return self.figure(tally, "R43", "runners stopped for longer than their ttl", "keys with other than one result")

    def _stop_one(self, users: OnceUsers, key: _Key) -> int:
        """Let all processes ask for a key, and stop the first that runs. Return how many results were refused."""
        until, refused = monotonic() + RETRY_FOR_S, 0
        frozen: ChildProcess | None = None
        for user in users:
            user.order("ask", key.name, LONG_WORK_S)
        while len(key.answered) < len(users):
            if monotonic() > until:
                raise ProcessFailed(f"{key.name}: not all were answered within {RETRY_FOR_S:g} s")
            for user, report in users.receive(1.0):
                key.note(user, report)
                refused += report.word == "refused"
                if report.word == "running" and frozen is None:
                    user.freeze()
                    frozen = user
                elif frozen is not None and len(key.answered) == len(users) - 1 and frozen not in key.answered:
                    frozen.thaw()
        return refused

    # --- R44

    def stampedes(self, number: int) -> Figure:
        """Let many callers of all processes ask for a key at once, so many times."""
        tally, calls, late = Tally(), list[float](), list[float]()
        with self.users(Lifetimes(KEEP_S, 5.0)) as users:
            users.new(PROCESSES)
            for place in range(number):
                key, until = _Key(f"stampede-{place}"), monotonic() + RETRY_FOR_S
                before = self._calls()
                for user in users:
                    user.order("ask", key.name, STAMPEDE_WORK_S, CALLERS)
                try:
                    while len(key.answered) < len(users):
                        if monotonic() > until:
                            raise ProcessFailed(f"{key.name}: not all were answered within {RETRY_FOR_S:g} s")
                        for user, report in users.receive(1.0):
                            key.note(user, report)
                except ProcessFailed as error:
                    tally.check(False, "{}", str(error))
                    _replace(users)
                    continue
                calls.append((self._calls() - before) / (PROCESSES * CALLERS))
                ended = min(times[-1] for times in key.runs.values())
                late.append(max(key.answered.values()) - ended)
                tally.check(len(key.runs) == 1, "{}: {} runs", key.name, len(key.runs))
                self.tick()
        tally.measured = {
            "calls of the server for a caller": round(sum(calls) / max(1, len(calls)), 2),
            "median from the end of the run to the last answer, ms": duration(late, 0.5, "ms"),
        }
        what = f"{PROCESSES * CALLERS:,} callers in {PROCESSES} processes"
        return self.figure(tally, "R44", what, "with more than one run")

    def _calls(self) -> int:
        """Return how many calls of clients the server has counted, apart from those within scripts."""
        stats = self.server.admin.info("commandstats")
        names = ("evalsha", "eval") if self.contender.is_ours else ("evalsha", "eval", "get", "set", "exists", "setnx")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)

    # --- R45

    def refreshed(self, seconds: float) -> Figure:
        """Let all processes ask for a hot key for so long."""
        tally, runs, calls = Tally(), 0, 0
        waits: list[float] = []
        with self.users(HOT) as users:
            try:
                for user in users.new(PROCESSES):
                    user.order("ask often", "hot", HOT_WORK_S, seconds)
                open_ones = set(users)
                until = monotonic() + seconds + RETRY_FOR_S
                while open_ones and monotonic() < until:
                    for user, report in users.receive(1.0):
                        runs += report.word == "running"
                        if report.word == "failed":
                            raise ProcessFailed(report.value)
                        if report.word == "asked":
                            open_ones.discard(user)
                            calls += report.value.calls
                            waits.append(report.value.longest)
                            tally.check(
                                report.value.longest < AT_ONCE_S, "a call waited for {} s", report.value.longest
                            )
            except ProcessFailed as error:
                tally.check(False, "{}", str(error))
        tally.measured = {
            "calls a second": round(calls / seconds),
            "runs": runs,
            "runs that the time asks for": round(seconds / (HOT.refresh or HOT.keep)) + 1,
            "longest call, ms": duration(waits, 1.0, "ms"),
        }
        return self.figure(tally, "R45", "a hot key that is made anew", "processes whose callers waited")


def _replace(users: OnceUsers) -> None:
    """Begin again with new processes."""
    for user in users:
        users.discard(user)
    time.sleep(0.1)
    users.new(PROCESSES)
