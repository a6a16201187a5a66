"""The example of the recipe "Adding an object": what a person writes for a counter, applied to a copy of this tree.

Each piece is also taken away in turn: then the test of the recipe fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PATCH = ROOT / "examples/counter.patch"

MOST_LINES, MOST_FILES = 350, 14
"""What an object that is listed may cost."""

GENERATORS = ("unasync.py", "exports.py", "refresh_docs.py")

RECIPE = "tests/gate/unit/test_recipe.py"

PIECES = {
    "src/handfast/_watch/faces/counter.py": "",
    "tests/gate/lua/sessions/counter.txt": "test_it_has_a_session",
    "tests/_support/objects.py": "test_it_has_a_sample",
    "tests/gate/api/test_counter.py": "test_it_has_a_test_of_what_only_it_does",
    "docs/how-to/count.md": "test_it_has_a_page",
    "CHANGELOG.md": "test_it_has_a_page",
}
"""Pieces, and the tests that miss them; none is named where nothing can be imported without it."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the patch."""
    copy = tmp_path_factory.mktemp("counter")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    subprocess.run(["git", "apply", str(PATCH)], cwd=copy, check=True)
    for generator in GENERATORS:
        run(copy, f"tools/{generator}")
    return copy


def run(tree, *words, check=True):
    paths = os.pathsep.join(str(tree / part) for part in ("src", "lab/src", "lint/src"))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def asked(tree, *words, check=True):
    return run(tree, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", *words, check=check)


def test_it_costs_no_more_than_an_object_may():
    text = PATCH.read_text()
    assert len(re.findall(r"^diff --git", text, re.MULTILINE)) <= MOST_FILES
    assert len(re.findall(r"^\+(?!\+\+ )", text, re.MULTILINE)) <= MOST_LINES


def test_all_that_is_asked_of_an_object_is_asked_of_it(tree):
    """The laws of its scripts, rights, the questions, lost replies, the docs."""
    wanted = "counter or recipe or faces or layers or docs"
    folders = ("unit", "api/test_counter.py", "acl", "docs", "questions", "lua")
    done = asked(tree, *(f"tests/gate/{folder}" for folder in folders), "-k", wanted)
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 300
    run(tree, "tools/check_scripts.py")


def test_every_view_shows_it(tree, server, raw):
    code = "import sys; from handfast import Handfast; Handfast(sys.argv[1]).counter('imports').add(3)"
    run(tree, "-c", code, server.url)
    shown = {words[0]: run(tree, "-m", "handfast", *words, "--url", server.url).stdout for words in VIEWS}
    assert re.search(r"COUNTER +VALUE\nimports +3\n", shown["ls"])
    assert shown["show"] == "counter imports\n  it is 3\n"
    assert re.search(r"^ imports +3\b", shown["top"], re.MULTILINE)


VIEWS = (["ls"], ["show", "imports"], ["top", "--once"])


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_that_is_not_there_is_missed(tree, piece):
    path = tree / piece
    whole = path.read_bytes()
    if (ROOT / piece).exists():
        path.write_bytes((ROOT / piece).read_bytes())
    else:
        path.unlink()
    try:
        done = asked(tree, RECIPE, check=False)
    finally:
        path.write_bytes(whole)
    assert done.returncode != 0
    assert PIECES[piece] in done.stdout
