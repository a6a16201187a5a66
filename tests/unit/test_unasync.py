"""The tool that makes the sync façade from the asyncio one, on copies of both."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
FACADE = Path("src/handfast/_api")


@pytest.fixture
def copy(tmp_path):
    """A copy of what the tool reads and writes, itself among it."""
    (tmp_path / "tools").mkdir()
    shutil.copy(HOUSE / "tools/unasync.py", tmp_path / "tools")
    shutil.copytree(HOUSE / FACADE, tmp_path / FACADE, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(house, *options):
    command = [sys.executable, "tools/unasync.py", *options]
    return subprocess.run(command, cwd=house, capture_output=True, text=True, timeout=30, check=False)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def contents(house):
    return {path.name: path.read_text() for path in (house / FACADE / "sync").glob("*.py")}


def test_the_committed_files_are_what_the_tool_makes():
    done = run(HOUSE, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_asynchronous_is_left_in_what_it_makes():
    for name, text in contents(HOUSE).items():
        left = re.findall(r"(?i)async\w*|await\w*|coroutine\w*|\btasks?\b|\baio\b", "".join(code(text)))
        assert not left, f"{name} still says {left}"


def code(text):
    """The lines of a generated file but its mark."""
    return [line for line in text.splitlines(keepends=True) if not line.startswith("# Made by tools/unasync.py")]


@pytest.mark.parametrize("api", ["aio", "sync"])
def test_an_edit_of_one_side_alone_is_found_and_made_good(copy, api):
    made = contents(copy)
    edit(copy / FACADE / api / "lock.py", "A named lock.", "A lock of a name.")
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert "_api/sync is not what tools/unasync.py makes of _api/aio: lock.py\n" in checked.stderr
    assert run(copy).returncode == 0
    assert run(copy, "--check").returncode == 0
    now = contents(copy)
    assert {name for name in made if now[name] != made[name]} == ({"lock.py"} if api == "aio" else set())


def test_a_check_changes_nothing(copy):
    edit(copy / FACADE / "sync/client.py", "class Handfast", "class Slowfast")
    before = contents(copy)
    assert run(copy, "--check").returncode == 1
    assert contents(copy) == before


def test_a_file_that_was_never_made_is_missed(copy):
    made = contents(copy)
    (copy / FACADE / "sync/lease.py").unlink()
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert "lease.py" in checked.stderr
    assert run(copy).returncode == 0
    assert contents(copy) == made


@pytest.mark.parametrize("options", [["--check"], []])
def test_a_rule_that_no_line_uses_is_named(copy, options):
    edit(copy / "tools/unasync.py", "] = [\n", '] = [\n    (r"\\bAsyncAnvil\\b", "Anvil"),\n')
    done = run(copy, *options)
    assert done.returncode == 1
    assert done.stderr.count("no line uses the rule") == 1
    assert "AsyncAnvil" in done.stderr
