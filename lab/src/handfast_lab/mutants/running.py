"""Mutants put to the tests: which tests, in which order, and what is believed of them.

A worker (`handfast_lab.mutants.worker`) collects the tests that concern a script and forks a child for each mutant. There the
mutant is put in the place of the script, and the tests have a server of their own, started by their fixture in some
hundredths of a second: a script that never ends takes its own server along, and no other mutant's time.

The tests that killed a mutant of a script are tried first on its next one. A test of the client side, with its threads and
timeouts, has to kill twice, the second time alone; and whoever kills has to pass alone without the mutant
(`Chamber.control`). First, all tests have to pass with a neutral mutant, which gives every script another digest and
changes nothing else: so none of them holds on to what a script was. Processes that tests start themselves run the scripts
as they are.
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

from handfast_lab.mutants.making import ROOT, Mutant, scripts

__all__ = ["Chamber", "SuiteFails", "Verdict", "Worker", "suites"]

SUITES = {
    "multi_": ["lua/test_scripts_exact", "lua/test_scripts_multi", "lua/test_random_walks"],
    "permit_": [
        "lua/test_scripts_exact",
        "lua/test_scripts",
        "lua/test_scripts_weighted",
        "lua/test_scripts_multi",
        "lua/test_random_walks",
    ],
    "lib/": [
        "lua/test_scripts_exact",
        "lua/test_scripts",
        "lua/test_scripts_weighted",
        "lua/test_scripts_multi",
        "lua/test_random_walks",
    ],
    "names_": ["lua/test_data_scripts"],
    "scores_": ["lua/test_data_scripts", "api/test_scores"],
    "compat/": ["compat/test_compat_scripts", "compat/test_compat_faults"],
    "fencing/": ["fencing/test_fencing"],
    "classic/guild": ["classic/test_classic_autocomplete"],
    "classic/lock": ["classic/test_classic_locks"],
    "classic/market": ["classic/test_classic_market"],
    "classic/scores": ["classic/test_classic_scores"],
    "classic/semaphore": ["classic/test_classic_semaphores"],
    "marketplace/": ["docs/test_example_marketplace"],
}
"""The tests that concern a script, quickest first, by what its name begins with."""

SLOW = ("compat/test_compat_faults", "docs/test_example_marketplace")
"""Files of tests that the default run leaves out as a whole; of the others, what it leaves out is left out here too."""

PLAIN = (
    "lua/test_scripts",
    "lua/test_scripts_exact",
    "compat/test_compat_scripts",
    "lua/test_scripts_weighted",
    "lua/test_scripts_multi",
    "lua/test_random_walks",
    "lua/test_data_scripts",
)
"""Files of tests that call the scripts by hand, one after the other: what fails there fails again."""

TOP = 12
"""How many of the tests that killed before are tried first."""

LIMIT, FACTOR = 5.0, 4.0
"""Seconds that a test may take at least, and times what it takes without a mutant: then a mutant hangs, and is killed."""
LONGEST = 300.0
"""Seconds that a file of tests may take in all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant."""

    name: str
    outcome: str
    """``killed``, ``timed out`` or ``survived``."""
    by: str = ""
    """The test that killed it."""
    seconds: float = 0.0


@dataclass(slots=True)
class Run:
    """What a child told: how long each test took, which one failed, and which one had begun when it fell silent."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    words: str = ""
    hung: str = ""


class SuiteFails(Exception):
    """Tests fail without any mutant, so that nothing can be said."""


def suites(script: str) -> list[str]:
    """The files of tests that concern a script, as pytest is given them."""
    for prefix, names in SUITES.items():
        if script.startswith(prefix):
            return [f"tests/{name}.py" for name in names]
    raise KeyError(f"no tests are known for {script}: say which in handfast_lab/mutants/running.py")


class Chamber:
    """Puts mutants to the tests, some at a time."""

    def __init__(self, workers: int, say: Callable[[str], None]) -> None:
        self._workers = workers
        self._say = say
        self._usual: dict[str, dict[str, float]] = {}
        self._killers: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()
        self._idle: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._idle:
            worker.close()

    def judge(self, mutants: Sequence[Mutant], done: Callable[[Verdict], None]) -> list[Verdict]:
        """What becomes of each; ``done`` hears of each one at once. Raises SuiteFails.

        Those of one family of scripts come together, since a worker knows the tests of one family only.
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

    def _measure(self, family: tuple[str, ...]) -> None:
        """See that the tests pass with the neutral mutant, and how long each takes."""

        def measure(worker: Worker, file: str) -> None:
            run = worker.run([file])
            if run.failed or run.hung:
                raise SuiteFails(f"with scripts that are whole, {run.failed or run.hung} fails\n{run.words}")
            self._usual[file] = run.seconds
            self._say(f"{file}: {len(run.seconds)} tests in {sum(run.seconds.values()):.1f} s")

        list(self._each(family, measure, [file for file in family if file not in self._usual]))

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
        """See that whoever killed passes alone without a mutant: else it says nothing."""

        def control(worker: Worker, test: str) -> None:
            runs = [worker.run([test])]
            if runs[0].failed or runs[0].hung:
                runs.append(worker.run([test]))
            if all(run.failed or run.hung for run in runs):
                raise SuiteFails(f"with scripts that are whole, {test} fails alone\n{runs[0].words}")

        list(self._each(family, control, sorted({verdict.by for verdict in killed if _file(verdict.by) in family})))

    def _try(self, worker: Worker, mutant: Mutant) -> tuple[str, str]:
        """Outcome, and the test that killed it."""
        with self._lock:
            known = [test for test, _ in self._killers.get(mutant.script, Counter()).most_common(TOP)]
        usual = [self._usual[file] for file in suites(mutant.script)]
        limits = {test: LIMIT + FACTOR * seconds for file in usual for test, seconds in file.items()}
        for tests in (known, *map(list, usual)):
            left = tests
            while left:
                run = worker.run(left, mutant, limits)
                killer = run.failed or run.hung
                if not killer:
                    break
                if self._again(worker, mutant, killer, run):
                    return ("killed" if run.failed else "timed out"), killer
                left = left[left.index(killer) + 1 :]
        return "survived", ""

    def _again(self, worker: Worker, mutant: Mutant, test: str, first: Run) -> bool:
        """Whether it kills a second time, alone. What calls the scripts by hand does."""
        if _short(_file(test)) in PLAIN:
            return True
        run = worker.run([test], mutant)
        if run.failed or run.hung:
            return True
        self._say(f"{test} failed with {mutant.name}, but not alone: {first.words}")
        return False

    def _each(
        self, family: tuple[str, ...], work: Callable[[Worker, Any], Any], things: Sequence[Any]
    ) -> Iterator[Any]:
        """Have workers do that with each, and give what comes of it."""

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


def _short(file: str) -> str:
    """Return the name of a file of tests as `SUITES` has it."""
    return file.removeprefix("tests/").removesuffix(".py")


class Worker:
    """A process that has collected the tests of a family of scripts."""

    def __init__(self, family: tuple[str, ...]) -> None:
        self.family = family
        slow = any(_short(file) in SLOW for file in family)
        program = str(Path(__file__).parent / "worker.py")
        self._process = subprocess.Popen(
            [sys.executable, program, "-m", "slow or not slow" if slow else "not slow", *family],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def run(self, tests: Sequence[str], mutant: Mutant | None = None, limits: Mapping[str, float] | None = None) -> Run:
        """What comes of those tests, or files of tests. Without a mutant, the neutral one is put to them."""
        assert self._process.stdin is not None  # noqa: S101 -- both are pipes
        assert self._process.stdout is not None  # noqa: S101 -- see above
        request = {
            "changed": {str(scripts()[mutant.script].resolve()): mutant.text} if mutant is not None else {},
            "tests": list(tests),
            "limits": dict(limits or {}),
            "longest": LONGEST,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a worker has ended; why it did stands above")
        run = Run()
        finished = False
        for told in json.loads(answer):
            if "began" in told:
                run.hung = told["began"]
            elif "passed" in told:
                run.seconds[told["passed"]] = told["seconds"]
                run.hung = ""
            elif "failed" in told:
                run.failed, run.words, run.hung = told["failed"], told["words"], ""
            elif "broken" in told:
                raise RuntimeError(told["broken"])
            else:
                finished = bool(told["finished"])
        if not (finished or run.failed or run.hung):
            raise RuntimeError(f"nothing was run of {tests}")
        return run

    def close(self) -> None:
        """Let it end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
