"""Each part of the published results names its commit and its sources; parts that are older than these are marked."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def evidence(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("evidence")


def test_every_part_has_a_commit_and_sources_that_exist(evidence):
    for path in evidence.files():
        records = list(evidence.records(path))
        assert [found[1] for found in evidence.STORED.findall(path.read_text())] == [
            record.made["commit"] for record in records
        ]
        for record in records:
            assert record.made["date"].startswith("20")
            assert record.sources
            assert [source for source in record.sources if not (ROOT / source).exists()] == [], record.part


@pytest.fixture
def project(evidence, tmp_path, monkeypatch):
    """Return a function that commits a text of ``src/a`` in a repository of its own, and returns the commit."""
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "SOURCES", {"run": ("src",)})
    monkeypatch.setattr(sys, "argv", ["evidence.py"])
    for folder in ("src", "results"):
        (tmp_path / folder).mkdir()
    evidence.changes.cache_clear()
    evidence.git("init", "--quiet")

    def commit(text):
        (tmp_path / "src/a").write_text(text)
        evidence.git("add", "src")
        evidence.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "a")
        return evidence.git("rev-parse", "--short", "HEAD")[0]

    yield commit
    evidence.changes.cache_clear()


def test_the_first_commit_that_changed_a_source_is_stored_and_removed(evidence, project, capsys):
    commits = [project(text) for text in ("one", "two", "three")]
    path = evidence.RESULTS / "run.json"

    def marked(commit):
        machine = {"date": "2026-11-30", "commit": commit, "older": "f00", "changed": False}
        path.write_text(json.dumps({"machine": machine}, indent=1))
        evidence.mark(path)
        return json.loads(path.read_text())["machine"].get("older")

    assert [marked(commit) for commit in commits] == [commits[1], commits[2], None]
    assert evidence.main() == 0
    assert capsys.readouterr().out.rstrip().endswith("0     0  current")
    (evidence.ROOT / "src/a").write_text("not committed")
    evidence.changes.cache_clear()
    assert evidence.main() == 0
    assert capsys.readouterr().out.rstrip().endswith("0     1  older than its sources")


def test_without_the_history_it_says_what_is_missing(evidence, project, capsys):
    project("one")
    path = evidence.RESULTS / "run.json"
    path.write_text(json.dumps({"machine": {"date": "2026-11-30", "commit": "0123456"}}, indent=1))
    assert evidence.main() == 2
    assert "commit 0123456 of a record is not in this clone. Run git fetch --unshallow." in capsys.readouterr().out
