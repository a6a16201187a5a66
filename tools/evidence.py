"""Show at which commit each part of the published results was made, and what has changed in its sources since.

    python tools/evidence.py           a table of all parts; needs the history
    python tools/evidence.py --mark    also store which parts are older, and write the pages: before a release

A part is older than its sources when a file that can change its figures differs from the commit of the part. ``--mark``
stores the first commit that changed such a file, as ``"older"`` beside ``"commit"``. The pages show what is stored, so
they do not change with each commit. In runs until 2026-11-30 ``"commit"`` is the commit that added the figures.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from deep import ALL, CLIENT, PARTS
from handfast_lab.chaos.report import render
from handfast_lab.chaos.results import Results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = ROOT / "docs/results/reliability.md"
BY_HAND = RESULTS / "reliability/record.json"
LAB = "lab/src/handfast_lab"

SOURCES = {
    "benchmarks/*": (*CLIENT, f"{LAB}/bench", f"{LAB}/rivals"),
    "pictures/queue": (*CLIENT, "tools/draw_pictures.py"),
    "servers/*": (*ALL, "tests/gate", "tests/deep/faults", "tests/_support"),
    "reliability/histories": (*CLIENT, f"{LAB}/chaos", f"{LAB}/checker"),
    "reliability/schedules*": (*CLIENT, f"{LAB}/simulator", f"{LAB}/checker"),
    "reliability/planted": (*CLIENT, f"{LAB}/simulator", f"{LAB}/checker", f"{LAB}/mutants"),
    "reliability/mutants": ("src/handfast/_engine/lua", "tests/gate/lua", f"{LAB}/mutants"),
    "reliability/trials": (*CLIENT, f"{LAB}/chaos", f"{LAB}/rivals"),
}
"""What can change the figures of a file of results. The parts of the deep suite name their own sources."""

OF_RIVALS = (f"{LAB}/chaos", f"{LAB}/rivals")
"""The same of trials that run other libraries."""

STORED = re.compile(r'(\n *)"commit": "(\w+)",(?:\1"older": "\w+",)?')
"""The commit of a record, and its mark."""


class Record(NamedTuple):
    """One run."""

    part: str
    sources: tuple[str, ...]
    made: dict[str, Any]
    """Its ``date`` and ``commit``, maybe ``changed`` and ``older``."""


def files(folder: str = "") -> list[Path]:
    """Return the files of results that a command has made, of one folder or of all."""
    return [path for path in sorted((RESULTS / folder).rglob("*.json")) if path != BY_HAND]


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, in its order."""
    data, name = json.loads(path.read_text(encoding="utf-8")), path.relative_to(RESULTS).with_suffix("").as_posix()
    if name == "deep":
        for part, row in data.items():
            yield Record(f"deep: {part}", PARTS[part].sources if part in PARTS else ALL, row)
        return
    sources = next(found for pattern, found in SOURCES.items() if fnmatch(name, pattern))
    for one in data if isinstance(data, list) else [data]:
        if "trial" not in one:
            yield Record(name, sources, one["machine"])
        elif one["figures"][0]["contender"].startswith("handfast"):
            yield Record(f"{name}: {one['trial']}", sources, one["machine"])
        else:
            yield Record(f"{name}: {one['trial']}, other libraries", OF_RIVALS, one["machine"])


def runs(*paths: Path) -> Iterator[Record]:
    """Yield one record for each part and commit: the earliest."""
    found: dict[tuple[str, str], Record] = {}
    for record in (record for path in paths for record in records(path)):
        key = record.part, record.made["commit"]
        if key not in found or record.made["date"] < found[key].made["date"]:
            found[key] = record
    yield from found.values()


def git(*words: str) -> list[str]:
    """Return the lines that git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S607 -- from the PATH


@cache
def changes(commit: str, sources: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the commits since that changed the sources, and the files that differ, also by what is not committed."""
    commits = git("log", "--reverse", "--format=%h", f"{commit}..HEAD", "--", *sources)
    return commits, git("diff", "--name-only", commit, "--", *sources)


def mark(path: Path) -> None:
    """Store in each record of a file the first commit that changed its sources, if a file differs."""
    found = records(path)

    def marked(match: re.Match[str]) -> str:
        record = next(found)
        commits, differing = changes(record.made["commit"], record.sources)
        older = f'{match[1]}"older": "{commits[0]}",' if commits and differing else ""
        return f'{match[1]}"commit": "{match[2]}",{older}'

    path.write_text(STORED.sub(marked, path.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    """Print the table; with ``--mark`` store the marks first."""
    commits = {record.made["commit"] for record in runs(*files())}
    known = {commit for commit in commits if _is_known(commit)}
    if missing := sorted(commits - known):
        print(
            f"The history is missing: commit {missing[0]} of a record is not in this clone. Run git fetch --unshallow."
        )
        return 2
    if "--mark" in sys.argv:
        for path in files():
            mark(path)
        PAGE.write_text(render(Results(RESULTS / "reliability")), encoding="utf-8")
        subprocess.run([sys.executable, ROOT / "tools/refresh_docs.py"], check=True)
    print(f"{'part':50} {'commit':9} {'date':10} {'commits':>7} {'files':>5}")
    for part, sources, made in runs(*files()):
        since, differing = changes(made["commit"], sources)
        state = "older than its sources" if differing else "current"
        row = f"{part:50} {made['commit']:9} {made['date'][:10]} {len(since):7,} {len(differing):5,}  {state}"
        print(row + ", made from a changed tree" * bool(made.get("changed")))
    return 0


def _is_known(commit: str) -> bool:
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
