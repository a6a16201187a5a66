"""The recipe of CONTRIBUTING, "Adding an object": each kind has all that the recipe asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from handfast._engine.script import lua_texts
from handfast._kinds import KINDS
from handfast._watch.faces import FACES
from handfast.arguments import Kind
from handfast_lab.mutants.running import SUITES
from tests._support.kinds import ROWS
from tests._support.objects import OBJECTS
from tests._support.workloads import WORKLOADS

ROOT = Path(__file__).parents[3]

PAGES = "".join(path.read_text() for path in sorted((ROOT / "docs/how-to").glob("*.md")))

SESSIONS = sorted((ROOT / "tests/gate/lua/sessions").glob("*.txt"))

UNLISTED = {"autocomplete", "scores"}
"""Kinds that keep data: `handfast ls` does not list them."""

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_it_has_the_classes_of_both_apis(kind):
    for module, classes in KINDS[kind].modules.items():
        for api, prefix in (("aio", "Async"), ("sync", "")):
            text = (ROOT / f"src/handfast/_api/{api}/{module}.py").read_text()
            assert all(re.search(rf"^class {prefix}{name}\b", text, re.MULTILINE) for name in classes), module


@kinds
def test_it_has_a_session_for_its_scripts(kind):
    scripts = {path.removesuffix(".lua") for path in lua_texts() if path.startswith(f"{KINDS[kind].scripts}_")}
    told = "".join(path.read_text() for path in SESSIONS)
    tests = "".join(path.read_text() for path in (ROOT / "tests/gate/lua").glob("*.py"))
    verbs = {script: script.removeprefix(f"{KINDS[kind].scripts}_") for script in scripts}
    assert scripts
    assert [
        script
        for script, verb in verbs.items()
        if script not in tests and not re.search(rf"^(?:.* )?{verb}\b", told, re.MULTILINE)
    ] == []


@kinds
def test_it_has_a_sample_of_its_calls(kind):
    assert (kind in OBJECTS) is (KINDS[kind].limit is None)
    assert kind in WORKLOADS


@kinds
def test_it_has_a_row_in_the_table_of_questions(kind):
    assert kind in {row.of for row in ROWS.values()}


@kinds
def test_it_has_a_test_of_what_only_it_does(kind):
    modules = [*KINDS[kind].modules]
    assert any((ROOT / f"tests/gate/api/test_{module}.py").exists() for module in modules), modules


@kinds
def test_it_has_a_page_and_a_line_in_the_changelog(kind):
    assert f".{kind}(" in PAGES, "no page of docs/how-to calls it"
    assert f"`{kind}(" in (ROOT / "CHANGELOG.md").read_text()


@kinds
def test_it_has_a_face_where_it_is_listed(kind):
    is_listed = kind not in UNLISTED
    assert (kind in get_args(Kind)) is (kind in FACES) is bool(KINDS[kind].parts) is is_listed
    if is_listed:
        assert f"{kind}.py" in {path.name for path in (ROOT / "src/handfast/_watch/faces").glob("*.py")}


@kinds
def test_its_scripts_have_mutants(kind):
    assert f"{KINDS[kind].scripts}_" in SUITES, "which suite has to kill the mutants of its scripts"


def test_the_map_of_contributing_has_every_package():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    told = set(re.findall(r"\b[a-z_]+\b", text[text.index("src/handfast/") : text.index("[Layers]")]))
    packages = {path.parent.name for path in (ROOT / "src/handfast").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "src/handfast").glob("*.py")} - {"__init__", "__main__"}
    assert packages - told == set()
    assert modules - told == set()


def test_the_layers_have_every_package():
    text = (ROOT / "docs/design/layers.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src/handfast").glob("*/__init__.py")} - {"_pyinstaller"}
    assert [name for name in sorted(packages) if f"`{name}`" not in text] == []
