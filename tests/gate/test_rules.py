"""The gate decides what lands, so no test in it depends on the speed of the machine, the wall clock or chance.

What needs these belongs to ``tests/deep``. The rules are checked by reading the tests, helpers in ``tests/_support``
apart.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

GATE = Path(__file__).parent

MIN_TTL_S = 30
"""A lease must outlive any stall of the machine."""

BANNED = {
    **dict.fromkeys(["elapsed", "perf_counter", "process_time", "thread_time"], "measures time"),
    **dict.fromkeys(["Popen", "fork", "forkpty", "multiprocessing", "ProcessGroup", "Actors"], "starts processes"),
    **dict.fromkeys(["ServerController", "openpty"], "starts processes"),
    **dict.fromkeys(["kill", "killpg", "setitimer", "alarm", "pthread_kill"], "sends signals"),
}


def faults(path):
    """Yield what breaks a rule, with its line."""
    text = path.read_text(encoding="utf-8")
    in_scripts = path.parent.name in {"lua", "unit"}  # their time is a number
    tree = ast.parse(text)
    polls = {inner for loop in ast.walk(tree) if isinstance(loop, ast.While) for inner in ast.walk(loop)}
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
        if isinstance(node, ast.arg) and name == "actors":
            yield node.lineno, "actors: starts processes"
        if name in BANNED:
            yield node.lineno, f"{name}: {BANNED[name]}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        options = {keyword.arg: value_of(keyword.value) for keyword in node.keywords}
        if called.rpartition(".")[2] == "sleep" and node not in polls and value_of(node.args[0]) != 0:
            yield node.lineno, "sleep: wait for an event or with `eventually`"
        if (called == "random.Random" and not node.args) or re.fullmatch(r"random\.[a-z]\w*", called):
            yield node.lineno, f"{called}: depends on chance"
        if called == "subprocess.run" and not (options.get("timeout") or 0) >= MIN_TTL_S:
            yield node.lineno, f"subprocess.run without a timeout of {MIN_TTL_S} s"
        if isinstance(ttl := options.get("ttl"), int | float) and ttl < MIN_TTL_S and not in_scripts:
            yield node.lineno, f"a ttl below {MIN_TTL_S} s"


def value_of(node):
    """Return the value of a literal, else None."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


@pytest.mark.parametrize("folder", sorted(path.name for path in GATE.iterdir() if any(path.glob("test_*.py"))))
def test_nothing_depends_on_time_processes_or_chance(folder):
    found = [
        f"{path.relative_to(GATE)}:{line}: {fault}"
        for path in sorted((GATE / folder).glob("*.py"))
        for line, fault in faults(path)
    ]
    assert not found, "\n".join(found)
