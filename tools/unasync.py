#!/usr/bin/env python3
"""Generate the sync API, and the sync driver, from those of asyncio, line by line.

    python tools/unasync.py           write the generated files
    python tools/unasync.py --check   change nothing; exit with 1 if a file would change

Every rule is a pattern and its replacement, tried on each line in order. The rules know the two languages, and no
product code. A line that only one API has says so in the asyncio source:

    @acquire_context  # asyncio only            the line is dropped
    # sync only: max_sessions,                  the comment becomes a line
    # sync only, in Args: name: What it is.     the comment becomes the last line of the next docstring's Args section

Docstrings speak of both APIs ("caller", "threads or tasks"), so that no rule has to rewrite them; ``await`` and ``async
with`` in their examples are translated like code. Imports that become unused are removed. A rule that no line uses any
more is an error.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "handfast"
TREES = [
    ("_api/aio", "_api/sync"),
    ("_drivers/aio/driver.py", "_drivers/sync/driver.py"),
    ("_drivers/aio/cluster.py", "_drivers/sync/cluster.py"),
    ("compat/_aio.py", "compat/_sync.py"),
]
"""Files, or folders with all their modules: the source, and what is generated from it."""

BY_HAND = [ROOT / "_api" / "sync" / "scope.py"]
"""Modules of generated folders that are written by hand: a thread is interrupted where a task is cancelled."""

MARK = "# Generated from {} by tools/unasync.py: edit that file and run the tool.\n"

ARGUMENT = re.compile(r" *# sync only, in Args: (.*)\n")

RULES: list[tuple[str, str]] = [
    # markers
    (r"^.*# asyncio only\n", ""),
    (r"# sync only: ", ""),
    # names
    (r"\bAsync(\w*Driver|Connector)\b", r"Sync\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(_drivers|_api)\.aio\b", r"\1.sync"),
    (r"\bredis\.asyncio\b", "redis"),
    (r"^import asyncio$", "import threading"),
    (r"\basyncio\.Event\b", "threading.Event"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bAbstractAsync(?=[A-Z])", "Abstract"),
    (r"\bcoroutine_function\b", "plain_function"),
    (r"\bawaiting\b", "calling"),
    (r"\bawaited_function\b", "called_function"),
    # the language
    (r"\(await ([^()]+\(\))\)", r"\1"),
    (r"\bawait ", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAwaitable\[(\w+(?: \| None)?)\]", r"\1"),
    (r"\bCoroutine\[Any, Any, (\w+(?: \| None)?)\]", r"\1"),
]


def pairs() -> Iterator[tuple[Path, Path]]:
    """Yield every source and what is generated from it."""
    for source, target in TREES:
        if source.endswith(".py"):
            yield ROOT / source, ROOT / target
        for path in sorted((ROOT / source).glob("*.py")):
            if ROOT / target / path.name not in BY_HAND:
                yield path, ROOT / target / path.name


def orphans() -> Iterator[Path]:
    """Yield the modules in generated folders whose source is gone."""
    generated = {target for _, target in pairs()} | {*BY_HAND}
    for _, target in TREES:
        yield from sorted(set((ROOT / target).glob("*.py")) - generated)


def translate(text: str, used: list[int]) -> str:
    """Return the sync form of a source. Counts in ``used`` how many lines each rule has changed."""
    lines = []
    for line in place_arguments(text.splitlines(keepends=True)):
        for number, (pattern, replacement) in enumerate(RULES):
            line, count = re.subn(pattern, replacement, line)  # noqa: PLW2901 -- each rule continues on the last one's line
            used[number] += count
        lines.append(line)
    return "".join(lines)


def place_arguments(lines: list[str]) -> Iterator[str]:
    """Move the descriptions of arguments that only the sync API has to the end of the next Args section."""
    waiting: list[str] = []
    indent = None
    for line in lines:
        if described := ARGUMENT.match(line):
            waiting.append(described[1])
            continue
        if waiting and line.strip() == "Args:":
            indent = line.replace("Args:\n", " " * 4)
        elif indent is not None and not line.strip():
            yield from (f"{indent}{text}\n" for text in waiting)
            waiting, indent = [], None
        yield line
    if waiting:
        raise ValueError(f"no Args section follows for {waiting}")


def tidy(text: str) -> str:
    """Return a module with its imports sorted, unused ones removed, and its lines formatted."""
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--quiet", "--isolated", "--line-length=120"]
    lint = ["--select=I,F401", "--fix", "--config", 'lint.isort.known-first-party = ["handfast"]']
    for command in ([*ruff, "check", *options, *lint, "-"], [*ruff, "format", *options, "-"]):
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Write the generated files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file would change")
    check = parser.parse_args().check
    used = [0] * len(RULES)
    stale = []
    for source, target in pairs():
        mark = MARK.format(source.relative_to(ROOT).as_posix())
        generated = tidy(mark + translate(source.read_text(encoding="utf-8"), used))
        if not target.exists() or target.read_text(encoding="utf-8") != generated:
            stale.append(target)
            if not check:
                target.write_text(generated, encoding="utf-8")
    for path in orphans():
        stale.append(path)
        if not check:
            path.unlink()
    for (pattern, _), count in zip(RULES, used, strict=True):
        if not count:
            print(f"no line uses the rule {pattern!r} any more: remove it", file=sys.stderr)
    if stale and check:
        names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
        print(f"not what tools/unasync.py generates: {names}", file=sys.stderr)
    return int(not all(used) or (check and bool(stale)))


if __name__ == "__main__":
    sys.exit(main())
