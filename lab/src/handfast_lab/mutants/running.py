"""Run the tests against mutants: which tests, in which order, and when a failure counts.

A worker (`handfast_lab.mutants.worker`) collects the tests that concern a script and forks a child for each mutant. The
child replaces the script by the mutant. Its tests use a server of their own, which their fixture starts in some
hundredths of a second, so a script that never ends blocks only that server.

Tests that killed a mutant of a script run first on its next mutant, then all sessions without their laws. A test of the
client side, with its threads and timeouts, must fail twice, the second time on its own; and each test that killed must pass
on its own without a mutant. Before any mutant, all tests must pass with a neutral mutant, which changes the digest of every
script and nothing else: this detects tests that keep the original script. Processes that tests start run the original
scripts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from handfast._kinds import KINDS
from handfast_lab.mutants.making import ROOT, Mutant, scripts

__all__ = ["MutationRun", "SuiteFails", "Verdict", "Worker", "suites"]

SESSIONS = ["lua/test_sessions"]

LOCK_SESSIONS = [f"lua/test_sessions::test_session[{kind}" for kind in ("lock", "semaphore", "rwlock", "slot")]
"""The sessions whose names begin like this: those of the scripts for locks."""

SUITES = {
    "once_": SESSIONS,
    "lib/outcome": SESSIONS,
    "lib/pause": SESSIONS,
    "limit_batch": [*SESSIONS, "lua/test_limit_batch"],
    "limit_": SESSIONS,
    "lib/costs": SESSIONS,
    "debounce_take": [*SESSIONS, "api/test_collect"],
    "debounce_": SESSIONS,
    "election_": SESSIONS,
    "group_": SESSIONS,
    "budget_inspect": [*SESSIONS, "api/test_budget"],
    "budget_set": [*SESSIONS, "acl/test_acl_acts"],
    "budget_": SESSIONS,
    "latch_": SESSIONS,
    "lib/account": SESSIONS,
    "lib/burst": SESSIONS,
    "lib/clock": SESSIONS,
    "lib/inbox": SESSIONS,
    "lib/limit_rights": SESSIONS,
    "lib/rights": SESSIONS,
    "lib/items": SESSIONS,
    "lib/watchers": SESSIONS,
    "lib/over": SESSIONS,
    "lib/window": SESSIONS,
    "lib/turns": SESSIONS,
    "lib/settings": SESSIONS,
    "locks_": ["lua/test_locks_batches"],
    "multi_": LOCK_SESSIONS,
    "permit_acquire": [*LOCK_SESSIONS, "lua/test_time_to_live"],
    "permit_": LOCK_SESSIONS,
    "lib/permit_rights": [*LOCK_SESSIONS, "acl/test_acl_acts"],
    "lib/queue": [*LOCK_SESSIONS, "lua/test_time_to_live"],
    "lib/state": [*LOCK_SESSIONS, "lua/test_time_to_live"],
    "lib/": LOCK_SESSIONS,
    "names_": ["lua/test_{script}", "lua/test_names_rank", "lua/test_out_of_memory"],
    "scores_": ["lua/test_{script}", "lua/test_out_of_memory", "api/test_scores"],
    "compat/": ["compat/test_compat_scripts", "compat/test_compat_faults"],
    "fencing/": ["fencing/test_fencing"],
    "classic/guild": ["classic/test_classic_autocomplete"],
    "classic/lock": ["classic/test_classic_locks"],
    "classic/market": ["classic/test_classic_market"],
    "classic/scores": ["classic/test_classic_scores"],
    "classic/semaphore": ["classic/test_classic_semaphores"],
    "marketplace/": ["docs/test_example_marketplace"],
}
SUITES |= {f"{kind.scripts}_": SESSIONS for kind in KINDS.values() if f"{kind.scripts}_" not in SUITES}
"""The files of tests that concern a script, its own first, by the first part of its name."""

PLAIN = ("lua/", "compat/test_compat_scripts")
"""Folders and files whose tests call the scripts one after the other: a failure is deterministic, so one is enough."""

TOP = 12
"""Number of tests that killed before and run first."""

LIMIT, FACTOR = 4.0, 4.0
"""A test may take `LIMIT` seconds plus `FACTOR` times its duration without a mutant; then the mutant counts as timed
out. The limit is below the 5 s after which a server whose script does not end refuses other calls as BUSY, which fails
the test.
"""
LONGEST = 300.0
"""Seconds that a run of tests may take."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a mutant."""

    name: str
    outcome: str
    """``killed``, ``timed out`` or ``survived``."""
    by: str = ""
    """The test that killed it."""
    seconds: float = 0.0


@dataclass(slots=True)
class Run:
    """The reports of a child: the duration of each test, the test that failed, and the test that did not end."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    text: str = ""
    """Of the failure."""
    hung: str = ""


class SuiteFails(Exception):
    """Raised when tests fail without a mutant, so there can be no verdicts."""


def suites(script: str) -> list[str]:
    """Return the paths of the files of tests that concern a script."""
    for prefix, names in SUITES.items():
        if script.startswith(prefix):
            return list(dict.fromkeys(_path(name.format(script=script)) for name in names))
    raise KeyError(f"no tests are known for {script}: list them in SUITES of handfast_lab/mutants/running.py")


class MutationRun:
    """Runs the tests against mutants in several workers."""

    def __init__(self, workers: int, say: Callable[[str], None]) -> None:
        self._workers = workers
        self._say = say
        self._durations: dict[str, dict[str, float]] = {}
        self._killers: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()
        self._idle: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._idle:
            worker.close()

    def judge(self, mutants: Sequence[Mutant], done: Callable[[Verdict], None]) -> list[Verdict]:
        """Return a verdict for each mutant; also call ``done`` with each at once. Raises SuiteFails.

        A worker has the tests of one family of scripts, so the mutants of a family follow one another.
        """
        families: dict[tuple[str, ...], list[Mutant]] = {}
        for mutant in mutants:
            families.setdefault(tuple(suites(mutant.script)), []).append(mutant)
        verdicts = {}
        for family, members in families.items():
            self._measure(family)
            for verdict in self._each(family, lambda worker, mutant: self._judge(worker, mutant, done), members):
                verdicts[verdict.name] = verdict
            self._control(family, [verdict for verdict in verdicts.values() if verdict.outcome == "killed"])
        return [verdicts[mutant.name] for mutant in mutants]

    def matrix(self, mutants: Sequence[Mutant], done: Callable[[str, list[str]], None]) -> dict[str, list[str]]:
        """Return for each mutant the test files that kill the mutant; also call ``done`` with each result at once."""
        families: dict[tuple[str, ...], list[Mutant]] = {}
        for mutant in mutants:
            families.setdefault(tuple(suites(mutant.script)), []).append(mutant)
        found: dict[str, list[str]] = {}

        def ask(worker: Worker, mutant: Mutant) -> None:
            runs = {file: worker.run([file], mutant, self._limits([file])) for file in worker.family}
            found[mutant.name] = [file for file, run in runs.items() if run.failed or run.hung]
            done(mutant.name, found[mutant.name])

        for family, members in families.items():
            self._measure(family)
            list(self._each(family, ask, members))
        return found

    def _limits(self, files: Sequence[str]) -> dict[str, float]:
        return {test: LIMIT + FACTOR * seconds for file in files for test, seconds in self._durations[file].items()}

    def _measure(self, family: tuple[str, ...]) -> None:
        """Check that the tests pass with the neutral mutant, and record their durations."""

        def measure(worker: Worker, file: str) -> None:
            run = worker.run([file])
            if run.failed or run.hung:
                raise SuiteFails(f"without a mutant, {run.failed or run.hung} fails\n{run.text}")
            self._durations[file] = run.seconds
            self._say(f"{file}: {len(run.seconds)} tests in {sum(run.seconds.values()):.1f} s")

        list(self._each(family, measure, [file for file in family if file not in self._durations]))

    def _judge(self, worker: Worker, mutant: Mutant, done: Callable[[Verdict], None]) -> Verdict:
        started = time.monotonic()
        outcome, by = self._try(worker, mutant)
        verdict = Verdict(mutant.name, outcome, by, round(time.monotonic() - started, 2))
        if by:
            with self._lock:
                self._killers.setdefault(mutant.script, Counter())[by] += 1
        done(verdict)
        return verdict

    def _control(self, family: tuple[str, ...], killed: list[Verdict]) -> None:
        """Check that each test that killed passes on its own without a mutant."""

        def control(worker: Worker, test: str) -> None:
            runs = [worker.run([test])]
            if runs[0].failed or runs[0].hung:
                runs.append(worker.run([test]))
            if all(run.failed or run.hung for run in runs):
                raise SuiteFails(f"without a mutant, {test} fails on its own\n{runs[0].text}")

        list(self._each(family, control, sorted({verdict.by for verdict in killed if verdict.by.startswith(family)})))

    def _try(self, worker: Worker, mutant: Mutant) -> tuple[str, str]:
        """Return the outcome, and the test that killed the mutant."""
        with self._lock:
            known = [test for test, _ in self._killers.get(mutant.script, Counter()).most_common(TOP)]
        files = suites(mutant.script)
        usual, limits = [[*self._durations[file]] for file in files], self._limits(files)
        sessions = [test for tests in usual for test in tests if test.startswith(_path(*SESSIONS))]
        for tests in (known, sessions, *usual):
            left = tests
            while left:
                run = worker.run(left, mutant, limits, laws=tests is not sessions)
                killer = run.failed or run.hung
                if not killer:
                    break
                if self._again(worker, mutant, killer, run):
                    return ("killed" if run.failed else "timed out"), killer
                left = left[left.index(killer) + 1 :]
        return "survived", ""

    def _again(self, worker: Worker, mutant: Mutant, test: str, first: Run) -> bool:
        """Return whether the test fails a second time, on its own; assumed for tests in `PLAIN`."""
        if _short(_file(test)).startswith(PLAIN):
            return True
        run = worker.run([test], mutant)
        if run.failed or run.hung:
            return True
        self._say(f"{test} failed with {mutant.name}, but not on its own: {first.text}")
        return False

    def _each(
        self, family: tuple[str, ...], work: Callable[[Worker, Any], Any], things: Sequence[Any]
    ) -> Iterator[Any]:
        """Yield the result of ``work`` for each thing, in several workers."""

        def with_worker(thing: Any) -> Any:
            with self._lock:
                worker = next((worker for worker in self._idle if worker.family == family), None)
                worker = worker or (self._idle[0] if len(self._idle) >= self._workers else None)
                if worker is not None:
                    self._idle.remove(worker)
            if worker is None or worker.family != family:
                if worker is not None:
                    worker.close()
                worker = Worker(family)
            try:
                return work(worker, thing)
            finally:
                with self._lock:
                    self._idle.append(worker)

        with ThreadPoolExecutor(self._workers) as threads:
            try:
                yield from threads.map(with_worker, things)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise


def _file(test: str) -> str:
    return test.partition("::")[0]


def _path(name: str) -> str:
    """Return the path of a file of tests from its name in `SUITES`: in the gate, or else in the deep suite."""
    file, mark, tests = name.partition("::")
    gate = f"tests/gate/{file}.py"
    return (gate if (ROOT / gate).is_file() else f"tests/deep/{file}.py") + mark + tests


def _short(file: str) -> str:
    """Return the name of a file of tests as `SUITES` has it."""
    return file.removeprefix("tests/").partition("/")[2].removesuffix(".py")


class Worker:
    """A process that has collected the tests of a family of scripts."""

    def __init__(self, family: tuple[str, ...]) -> None:
        self.family = family
        program = str(Path(__file__).parent / "worker.py")
        self._process = subprocess.Popen(
            [sys.executable, program, *{_file(tests): "" for tests in family}],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def run(
        self,
        tests: Sequence[str],
        mutant: Mutant | None = None,
        limits: Mapping[str, float] | None = None,
        *,
        laws: bool = True,
    ) -> Run:
        """Run these tests, or files of tests, against the mutant; without one against the neutral mutant.

        Without ``laws``, sessions are asked only for the answers in their files, which takes a fraction of the time.
        """
        assert self._process.stdin is not None  # noqa: S101 -- both are pipes
        assert self._process.stdout is not None  # noqa: S101 -- see above
        request = {
            "changed": {str(scripts()[mutant.script].resolve()): mutant.text} if mutant is not None else {},
            "tests": list(tests),
            "limits": dict(limits or {}),
            "longest": LONGEST,
            "laws": laws,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a worker has ended; its error is above")
        run = Run()
        finished = False
        for report in json.loads(answer):
            if "began" in report:
                run.hung = report["began"]
            elif "passed" in report:
                run.seconds[report["passed"]] = report["seconds"]
                run.hung = ""
            elif "failed" in report:
                run.failed, run.text, run.hung = report["failed"], report["text"], ""
            elif "broken" in report:
                raise RuntimeError(report["broken"])
            else:
                finished = bool(report["finished"])
        if not (finished or run.failed or run.hung):
            raise RuntimeError(f"none of these tests was run: {tests}")
        return run

    def close(self) -> None:
        """Wait until the process has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
