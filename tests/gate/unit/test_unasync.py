"""The tool that generates the sync API from the asyncio API, on copies of both."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]

PACKAGES = (Path("src/handfast/_api"),)

MARK = re.compile(r"# Generated from \S+ by tools/unasync\.py: edit that file and run the tool\.\n")


def generated(root):
    """All generated files, by their mark."""
    files = sorted((root / "src").rglob("*.py"))
    return {path: path.read_text() for path in files if MARK.match(path.read_text())}


def without_docstrings(tree):
    """The module without its docstrings, which speak of both APIs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return tree


def test_every_module_of_the_sync_api_is_generated():
    modules = {path for package in PACKAGES for path in (ROOT / package / "sync").glob("*.py")}
    assert modules - set(generated(ROOT)) == {ROOT / "src/handfast/_api/sync/scope.py"}, "by hand"
    assert {path.stem for path in modules} >= {"client", "scores"}


def test_nothing_of_asyncio_is_left_in_generated_code():
    for path, text in generated(ROOT).items():
        code = ast.unparse(without_docstrings(ast.parse(text)))
        left = re.findall(r"(?i)async\w*|await\w*|coroutine\w*|\btasks?\b|\baio\b", code)
        assert not left, f"{path} still says {left}"


def test_examples_in_generated_docstrings_are_of_the_sync_api():
    for path, text in generated(ROOT).items():
        left = re.findall(r"await \w|async (?:with|def)|AsyncHandfast|(?:asyncio|sync) only", text)
        assert not left, f"{path} still says {left}"
