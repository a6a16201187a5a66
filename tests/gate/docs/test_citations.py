"""Every invariant and every fault number that is cited anywhere stands in the design pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DESIGN = ROOT / "docs/design"
PLACES = "src", "lint/src", "lab/src", "lab/tests", "tests", "tools", "docs", "results"
SUFFIXES = {".py", ".lua", ".md", ".toml", ".json"}

INVARIANT = re.compile(r"\binvariants? (\d+(?:(?:, | and |, and )\d+)*)", re.IGNORECASE)
FAULT = re.compile(r"\bR([1-9]\d?)\b")


def cited(pattern: re.Pattern[str]) -> dict[int, str]:
    """Each cited number and one file that cites it."""
    found: dict[int, str] = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and path.parent != DESIGN:
                for numbers in pattern.findall(path.read_text(encoding="utf-8")):
                    found.update((int(number), str(path.relative_to(ROOT))) for number in re.findall(r"\d+", numbers))
    return found


def test_every_cited_invariant_is_listed():
    listed = re.findall(r"^## Invariant (\d+): \w", (DESIGN / "invariants.md").read_text(), re.MULTILINE)
    assert listed == [str(number) for number in range(1, len(listed) + 1)]
    found = cited(INVARIANT)
    assert len(found) > 10, "the search finds nothing"
    assert {number: path for number, path in found.items() if str(number) not in listed} == {}


def test_every_cited_fault_is_listed():
    listed = re.findall(r"^\| R(\d+) \|", (DESIGN / "faults.md").read_text(), re.MULTILINE)
    assert listed == [str(number) for number in range(1, len(listed) + 1)]
    found = cited(FAULT)
    assert len(found) > 20, "the search finds nothing"
    assert {number: path for number, path in found.items() if str(number) not in listed} == {}


def test_every_fault_of_the_record_has_a_test():
    bugs = json.loads((ROOT / "results/reliability/record.json").read_text())["bugs"]
    paths = [path for bug in bugs for path in bug["test"].split(", ")]
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
