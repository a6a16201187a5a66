"""The deep suite: all that the gate leaves out, in parts that may run alone, and a record of how each went.

    python tools/deep.py --list             the parts, and how each went last
    python tools/deep.py                    every part without a record for the sources as they are committed
    python tools/deep.py faults replicas    these parts

A part counts as done when its sources have not changed since its record, so a run that was broken off goes on where it
stopped. A failed test is run once more: one that passes then is a flake, and its log is kept like that of a failure.
The record, ``results/deep.json``, belongs to the commit that it names. Exits with 1 if a part has failures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results/deep.json"

LONGEST_S = 1200
"""A part that takes longer is ended."""

LOG_LENGTH = 4000
"""Characters that are kept of the log of a failure: its end."""

CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
PYTHONS = [
    found[1] for line in CLASSIFIERS if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
]
"""The supported Pythons. The other parts run on the first one."""

PYTEST = [sys.executable, "-m", "pytest", "-q"]
NOX = [sys.executable, "-m", "nox", "--error-on-missing-interpreters", "-s"]
LAB = [sys.executable, "-m"]

ENGINE = ("src/handfast/_engine", "src/handfast/_protocol")
CLIENT = (*ENGINE, "src/handfast/_drivers", "src/handfast/_api")
ALL = ("src",)


@dataclass(frozen=True)
class Part:
    """A command, and the folders whose changes it can notice."""

    command: list[str]
    sources: tuple[str, ...]

    @property
    def is_tests(self) -> bool:
        """Whether it is a run of pytest, whose tests are counted and run again."""
        return self.command[:3] == PYTEST[:3]


def suite(*names: str, of: tuple[str, ...] = ALL) -> Part:
    """Return the part that runs these folders or files of tests."""
    return Part([*PYTEST, *names], (*of, *names, "tests/_support"))


def lab_tests(*names: str) -> Part:
    """Return the part that runs these files of tests of the laboratory; names end with a ``*``."""
    found = [
        str(path.relative_to(ROOT)) for name in names for path in sorted((ROOT / "lab/tests").glob(f"test_{name}.py"))
    ]
    return Part([*PYTEST, *found], (*ALL, "lab", "tests/_support"))


REPLICAS = ("acknowledged", "cluster", "cluster_inboxes", "cluster_lock_all", "failover", "fences", "sentinel")

PARTS = {
    "examples": suite("tests/gate"),
    "objects": suite("tests/deep/api", "tests/deep/lua", of=CLIENT),
    "packages": suite(
        *(f"tests/deep/{name}" for name in ("acl", "classic", "compat", "fencing", "script", "testing", "unit"))
    ),
    "questions": suite("tests/deep/questions", of=CLIENT),
    "metrics": suite("tests/deep/metrics"),
    "command": suite("tests/deep/cli", "tests/deep/docs", "tests/deep/embedded"),
    "faults": Part(
        [*PYTEST, "tests/deep/faults", *(f"--ignore=tests/deep/faults/test_{name}.py" for name in REPLICAS)],
        (*CLIENT, "tests/deep/faults", "tests/_support"),
    ),
    "replicas": suite(*(f"tests/deep/faults/test_{name}.py" for name in REPLICAS), of=CLIENT),
    "coverage": Part([*NOX, "coverage"], (*ALL, "tests/gate")),
    "browser": Part([*NOX, "browser"], (*ALL, "tests/deep/page", "tools")),
    "frameworks": Part([*NOX, "frameworks"], (*ALL, "tests/deep/frameworks")),
    **{f"python {version}": Part([*NOX, f"tests-{version}"], (*ALL, "tests/gate")) for version in PYTHONS[1:]},
    "checkers": lab_tests("checker_*", "contenders", "limiters", "mutants", "release"),
    "benches": lab_tests("bench*"),
    "trials": lab_tests("chaos*"),
    "simulator": lab_tests("simulator*", "planted*", "exhaustive*"),
    "schedules": Part(
        [*LAB, "handfast_lab.simulator", "0..20000", "-j", "2"], (*CLIENT, "lab/src/handfast_lab/simulator")
    ),
    "mutants": Part([*LAB, "handfast_lab.mutants", "--sample", "150"], (*ENGINE, "tests/gate/lua")),
}
"""In the order in which they run."""


def git(*words: str) -> str:
    """Return what git prints."""
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def hash_of(part: Part) -> str:
    """Return what the committed sources of a part are."""
    return " ".join(word[:10] for word in git("rev-parse", *(f"HEAD:{source}" for source in part.sources)).split())


def run(name: str, part: Part) -> dict[str, Any]:
    """Run a part and return its record."""
    began = time.monotonic()
    row: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "sources": hash_of(part),
        "command": " ".join(Path(word).name if word == sys.executable else word for word in part.command),
    }
    with tempfile.TemporaryDirectory() as folder:
        if part.is_tests:
            row |= run_tests(part.command, Path(folder, "report.xml"))
        else:
            code, output = run_command(part.command)
            row |= {"failures": [] if code == 0 else [{"test": name, "log": kept(output)}], "flakes": []}
            row["said"] = output.strip().splitlines()[-1:]
    return row | {"seconds": round(time.monotonic() - began)}


def run_tests(command: list[str], report: Path) -> dict[str, Any]:
    """Run tests, and those that fail once more."""
    code, output = run_command([*command, f"--junit-xml={report}"])
    if not report.exists():
        return {"failures": [{"test": "the run itself", "log": kept(output)}], "flakes": []}
    suite = ET.parse(report).getroot()[0]  # noqa: S314 -- pytest has written it
    failures: list[dict[str, str]] = []
    flakes: list[dict[str, str]] = []
    for test, log in failed(suite):
        again, _ = run_command([*PYTEST, "-n", "0", test])
        (failures if again else flakes).append({"test": test, "log": kept(log)})
    if code and not failures and not flakes:
        failures.append({"test": "the run itself", "log": kept(output)})
    counts = {"tests": int(suite.attrib["tests"]), "skipped": int(suite.attrib["skipped"])}
    return counts | {"failures": failures, "flakes": flakes}


def failed(suite: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield the id of each test that failed, and its log."""
    for case in suite.iter("testcase"):
        for outcome in (*case.findall("failure"), *case.findall("error")):
            file = case.attrib["classname"].replace(".", "/") + ".py"
            yield f"{file}::{case.attrib['name']}", outcome.text or outcome.attrib.get("message", "")
            break


def run_command(command: list[str]) -> tuple[int, str]:
    """Run a command with what a thorough run asks for. Return its exit code and its output."""
    environment = os.environ | {"HANDFAST_TESTS": "thorough"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 1, f"{error.output or ''}\nended after {LONGEST_S} s"
    return done.returncode, done.stdout


def kept(log: str) -> str:
    """Return what is kept of a log: its end, without the folders of this machine."""
    for folder, name in (
        (str(ROOT), "."),
        (sys.base_prefix, "python"),
        (tempfile.gettempdir(), "tmp"),
        (str(Path.home()), "~"),
    ):
        log = log.replace(folder, name)
    return log[-LOG_LENGTH:]


def summary(name: str, row: dict[str, Any] | None, part: Part) -> str:
    """Return one line about a part."""
    if row is None:
        return f"{name:14} not run"
    state = "" if row["sources"] == hash_of(part) else ", sources changed since"
    counts = f"{row.get('tests', '-')!s:>5} tests, {len(row['failures'])} failed, {len(row['flakes'])} flakes"
    return f"{name:14} {counts}, {row['seconds']:4} s, {row['commit']}, {row['date'][:10]}{state}"


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--list", action="store_true", help="list the parts and how each went last")
    parser.add_argument("--names", action="store_true", help="print the names of the parts as JSON")
    parser.add_argument("--pythons", action="store_true", help="print the supported Pythons, one a line")
    options = parser.parse_args()
    if options.pythons:
        print(*PYTHONS, sep="\n")
        return 0
    if options.names:
        print(json.dumps(list(PARTS)))
        return 0
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"unknown: {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if options.list:
        print(*(summary(name, record.get(name), part) for name, part in PARTS.items()), sep="\n")
        return 0
    is_done = {name: name in record and record[name]["sources"] == hash_of(part) for name, part in PARTS.items()}
    for name in options.parts or [name for name in PARTS if not is_done[name]]:
        record[name] = run(name, PARTS[name])
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(summary(name, record[name], PARTS[name]), flush=True)
        for kind in ("failures", "flakes"):
            print(
                *(f"  {kind}: {found['test']}" for found in record[name][kind]),
                sep="\n",
                end="\n" * bool(record[name][kind]),
            )
        subprocess.run([sys.executable, "tools/refresh_docs.py"], cwd=ROOT, check=True)
    return any(row["failures"] for row in record.values())


if __name__ == "__main__":
    sys.exit(main())
