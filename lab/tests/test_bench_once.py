"""``handfast bench once``: what it measures and reports. No test depends on a measured figure."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from handfast_lab.bench import stampedes
from handfast_lab.bench.stampedes import Stampede, summarize
from handfast_lab.commands.bench import benches
from handfast_lab.rivals.once import RUNNERS, installed


def invoke(*words):
    done = CliRunner(env={"COLUMNS": "100"}).invoke(benches.once, words)
    return done.exit_code, done.output


@pytest.mark.timeout(120)
def test_a_small_run_reports_every_contender_and_leaves_no_key(server, raw, tmp_path):
    file = tmp_path / "raw.json"
    raw.set("theirs", "untouched", px=600_000)
    words = ["--url", server.url, "--callers", "7", "--processes", "2", "--work", "0.05", "--rounds", "1"]
    code, output = invoke(*words, "--seconds", "0.05", "--json", str(file))
    assert code == 0, output
    found = json.loads(file.read_text())
    assert [one["contender"] for one in found["rows"]] == installed()
    assert all(name in output for name in installed())
    for one in found["measurements"]:
        assert (one["callers"], one["answered"]) == (6, 6)
        assert one["runs"] == 1 or not RUNNERS[one["contender"]].is_ours
        assert min(one["commands"], one["found"], one["bytes"]) > 0
    assert list(raw.scan_iter()) == ["theirs"]


@pytest.mark.parametrize(("runs", "answered"), [(2, 10), (1, 9)])
def test_a_run_that_is_repeated_and_a_caller_without_an_answer_fail(monkeypatch, runs, answered):
    measured = [Stampede(0, "handfast", 10, runs, answered, 1.0, 1.0, 1.0, 1.0, 1)]
    monkeypatch.setattr(stampedes, "measure", lambda *_: iter(measured))
    code, output = invoke("--callers", "10", "--rounds", "1")
    assert code == 1
    assert "FAILED: handfast, round 1" in output


def test_rows_are_medians_with_the_fewest_and_the_most_runs():
    measured = [Stampede(number, "x", 10, number, 10, float(number), 2.0, 3.0, 4.0, 5) for number in (1, 2, 6)]
    (row,) = summarize(measured)
    assert (row.fewest, row.most, row.last_ms) == (1, 6, 2.0)


def test_fewer_callers_than_processes_is_wrong_usage():
    assert invoke("--callers", "1", "--processes", "2")[0] == 2
