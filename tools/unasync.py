#!/usr/bin/env python3
"""Make the sync façade from the asyncio one, line by line.

    python tools/unasync.py           write src/handfast/_api/sync/
    python tools/unasync.py --check   only say whether that would change anything; exit code 1 if so

A rule is a pattern and what stands in its place; each rule is tried on each line, in order, and an empty outcome drops
the line. A rule that changes nothing anywhere is an error: it has outlived what it was made for.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).parent.parent / "src" / "handfast" / "_api"
SOURCE, TARGET = HOUSE / "aio", HOUSE / "sync"
FILES = [
    "autocomplete.py",
    "client.py",
    "lease.py",
    "lock.py",
    "lock_all.py",
    "inspectable.py",
    "primitive.py",
    "rlock.py",
    "rwlock.py",
    "scores.py",
    "semaphore.py",
]
MARK = "# Made by tools/unasync.py from _api/aio/{}: edit that one, then run the tool.\n"

RULES: list[tuple[str, str]] = [
    # the words
    (r"hold (it|them, all or none): await this, or enter it with ``async with``", r"hold \1"),
    (r"is lost within an ``async with`` block, the block is cancelled, and LeaseLost is raised from it", "was lost within a ``with`` block, leaving the block raises LeaseLost"),
    (r"a loss does to a block: .*", 'leaving a ``with`` block does after a loss: "raise" LeaseLost, or "warn".'),
    (r"All tasks of an event loop share one connection, .*", "At most ``max_sessions`` threads wait at the same time, each on a connection of its own; further ones wait for one."),
    (r"from the event loop", "from the client's keeper thread"),
    (r"\btask(s?)\b", r"thread\1"),
    (r"\bTask(s?)\b", r"Thread\1"),
    # what only tasks have
    (r"^from handfast\._api\.aio\.acquire_context .*\n", ""),
    (r"^ *@acquire_context\n", ""),
    (r"^ *Before Python 3\.12 ``asyncio\.wait_for`` .*\n", ""),
    # what only threads have
    (r"def __init__\((self, server: .*)\) -> None:\n", r"def __init__(\n        \1, max_sessions: int = DEFAULT_MAX_SESSIONS\n    ) -> None:\n"),
    (r"import (DEFAULT_MAX_WAITERS)", r"import DEFAULT_MAX_SESSIONS, \1"),
    (r"(AsyncConnector\.of\(server\), namespace, label)", r"\1, max_sessions"),
    # the names
    (r"\bAsync(Driver|Connector)\b", r"Sync\1"),
    (r"\bAsync(Autocomplete|Handfast|Lease|LeaseScope|LeaseOfAll|Lock|LockAll|Inspectable|Primitive|PrimitiveScope)\b", r"\1"),
    (r"\bAsync(ReadLock|RLease|RLock|RWLease|RWLock|Scores|Semaphore|WriteLock)\b", r"\1"),
    (r"\b(_drivers|_api)\.aio\b", r"\1.sync"),
    (r"redis\.asyncio\.Redis", "redis.Redis"),
    (r"\basyncio\b", "threading"),
    (r"require_coroutine_function", "require_plain_function"),
    # the language
    (r"\(await ([^()]+\(\))\)", r"\1"),
    (r"\bawait ", ""),
    (r"\basync (def|with)\b", r"\1"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"import Awaitable, Callable, Coroutine", "import Callable"),
    (r"import Any, ParamSpec", "import ParamSpec"),
    (r"Awaitable\[R\]", "R"),
    (r"Coroutine\[Any, Any, R\]", "R"),
]  # fmt: skip


def translate(text: str, used: list[int]) -> str:
    """The sync form of a file. Counts in ``used`` what each rule has changed."""
    lines = []
    for line in text.splitlines(keepends=True):
        for number, (pattern, replacement) in enumerate(RULES):
            line, count = re.subn(pattern, replacement, line)  # noqa: PLW2901 -- from rule to rule
            used[number] += count
        lines.append(line)
    return "".join(lines)


def sort_imports(text: str) -> str:
    """Return the text with its imports in order: ``sync`` sorts elsewhere than ``aio``."""
    ruff = [sys.executable, "-m", "ruff", "check", "--quiet", "--isolated", "--select", "I", "--fix", "-"]
    ruff += ["--config", 'lint.isort.known-first-party = ["handfast"]']
    text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--line-length=120", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would change")
    check = parser.parse_args().check
    used = [0] * len(RULES)
    stale = []
    for name in FILES:
        made = sort_imports(MARK.format(name) + translate((SOURCE / name).read_text(encoding="utf-8"), used))
        target = TARGET / name
        if not target.exists() or target.read_text(encoding="utf-8") != made:
            stale.append(name)
            if not check:
                target.write_text(made, encoding="utf-8")
    for (pattern, _), count in zip(RULES, used, strict=True):
        if not count:
            print(f"no line uses the rule {pattern!r} any more: remove it", file=sys.stderr)
    if stale and check:
        print(f"_api/sync is not what tools/unasync.py makes of _api/aio: {', '.join(stale)}", file=sys.stderr)
    return int(not all(used) or (check and bool(stale)))


if __name__ == "__main__":
    sys.exit(main())
