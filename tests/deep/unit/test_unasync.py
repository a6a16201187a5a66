"""The tool that generates the sync API from the asyncio API, on copies of both.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.gate.unit.test_unasync import PACKAGES, ROOT, generated

API = PACKAGES[0]


@pytest.fixture
def copy(tmp_path):
    """A copy of what the tool reads and writes, and of itself."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/unasync.py", tmp_path / "tools")
    folders = {path.parent for path in generated(ROOT)}
    for source in sorted(folders | {folder.parent / "aio" for folder in folders if folder.name == "sync"}):
        shutil.copytree(
            source,
            tmp_path / source.relative_to(ROOT),
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    return tmp_path


def run(root, *options):
    command = [sys.executable, "tools/unasync.py", *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_committed_files_are_what_the_tool_generates():
    done = run(ROOT, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("side", ["aio", "sync"])
def test_an_edit_of_one_side_is_found_and_repaired(copy, side):
    before = generated(copy)
    edit(copy / API / side / "lock.py", "A named lock:", "A lock with a name:")
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert checked.stderr == "not what tools/unasync.py generates: _api/sync/lock.py\n"
    assert run(copy).returncode == 0
    assert run(copy, "--check").returncode == 0
    after = generated(copy)
    changed = {path.name for path in before if after[path] != before[path]}
    assert changed == ({"lock.py"} if side == "aio" else set())


def test_a_check_changes_nothing(copy):
    edit(copy / API / "sync/client.py", "class Handfast", "class Slowfast")
    before = generated(copy)
    assert run(copy, "--check").returncode == 1
    assert generated(copy) == before


def test_a_missing_file_is_found_and_generated(copy):
    before = generated(copy)
    (copy / API / "sync/lease.py").unlink()
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert "_api/sync/lease.py" in checked.stderr
    assert run(copy).returncode == 0
    assert generated(copy) == before


def test_a_new_module_needs_no_entry_in_a_list(copy):
    (copy / API / "aio/extra.py").write_text('"""Extra."""\n\n\nasync def wait() -> None:\n    await wait()\n')
    assert "_api/sync/extra.py" in run(copy, "--check").stderr
    assert run(copy).returncode == 0
    assert (copy / API / "sync/extra.py").read_text().endswith('"""Extra."""\n\n\ndef wait() -> None:\n    wait()\n')


def test_a_generated_file_without_a_source_is_found_and_removed(copy):
    orphan = copy / API / "sync/gone.py"
    orphan.write_text('"""Gone."""\n')
    assert "_api/sync/gone.py" in run(copy, "--check").stderr
    assert orphan.exists()
    assert run(copy).returncode == 0
    assert not orphan.exists()


def test_lines_of_one_api_only_are_marked_in_the_source(copy):
    source = '"""Extra."""\n\nfirst = 1  # asyncio only\n# sync only: second = 2\nthird = 3\n'
    (copy / API / "aio/extra.py").write_text(source)
    assert run(copy).returncode == 0
    assert (copy / API / "sync/extra.py").read_text().endswith('"""Extra."""\n\nsecond = 2\nthird = 3\n')


def test_an_argument_of_the_sync_api_is_described_at_the_end_of_the_next_args_section(copy):
    source = '"""Extra."""\n\n\n# sync only, in Args: b: B.\ndef first(a):\n    """Do.\n\n    Args:\n        a: A.\n\n    Ends.\n    """\n'
    (copy / API / "aio/extra.py").write_text(source)
    assert run(copy).returncode == 0
    text = (copy / API / "sync/extra.py").read_text()
    assert "    Args:\n        a: A.\n        b: B.\n\n    Ends." in text
    assert "sync only" not in text
    (copy / API / "aio/extra.py").write_text("# sync only, in Args: b: B.\n")
    assert "no Args section" in run(copy).stderr


@pytest.mark.parametrize("options", [["--check"], []])
def test_a_rule_that_no_line_uses_is_named(copy, options):
    edit(copy / "tools/unasync.py", "] = [\n", '] = [\n    (r"\\bAsyncAnvil\\b", "Anvil"),\n')
    done = run(copy, *options)
    assert done.returncode == 1
    assert done.stderr.count("no line uses the rule") == 1
    assert "AsyncAnvil" in done.stderr
