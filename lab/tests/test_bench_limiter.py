"""``handfast bench limiter``: what it measures and reports. No test depends on a measured figure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from handfast_lab.bench import limiting
from handfast_lab.bench.limiting import BASE, Asking, Line, remember, summarize_asking, summarize_lines
from handfast_lab.commands.bench import benches
from handfast_lab.rivals.limiters import installed


def invoke(*words):
    done = CliRunner(env={"COLUMNS": "100"}).invoke(benches.limiter, words)
    return done.exit_code, done.output


@pytest.mark.timeout(120)
def test_a_small_run_reports_every_contender_in_json_and_in_the_tables(tmp_path):
    file = tmp_path / "raw.json"
    words = ["--clients", "1,2", "--waiters", "12", "--admissions", "2,20", "--rounds", "1", "--seconds", "0.1"]
    code, output = invoke(*words, "--json", str(file))
    assert code == 0, output
    raw = json.loads(file.read_text())
    names = [name for name in installed() if "asyncio" not in name]
    assert {(one["contender"], one["setting"], one["clients"]) for one in raw["asking"]} == {
        (name, setting, clients) for name in names for setting in ("admitted", "refused") for clients in (1, 2)
    }
    for one in raw["measurements"]:
        assert one["calls"] > 0
        assert one["server_us"] >= 0
        assert one["admitted"] == (one["calls"] if one["setting"] == "admitted" else 0)
    assert [one["contender"] for one in raw["waiting"]] == [name for name in names if name != "limits"]
    assert all(one["admitted"] == 12 and one["calls"] >= 1 for one in raw["lines"])
    assert [(one["contender"], one["admissions"]) for one in raw["memory"]] == [(n, c) for n in names for c in (2, 20)]
    assert raw["machine"].keys() >= {"limits", "throttled-py", "pyrate-limiter", "server"}
    assert all(name in output for name in names)


def test_a_measurement_leaves_no_key(server, raw):
    words = ["--clients", "1", "--waiters", "2", "--admissions", "2", "--rounds", "1", "--seconds", "0.05"]
    raw.set("theirs", "untouched", px=600_000)
    code, output = invoke("--url", server.url, *words)
    assert code == 0, output
    assert list(raw.scan_iter()) == ["theirs"]


def asking(contender, number, calls, setting="admitted", server_us=1.0):
    return Asking(number, contender, setting, 1, 1.0, calls, calls, server_us)


def test_calls_are_compared_within_a_round():
    found = [asking(BASE, number, calls) for number, calls in enumerate((10, 100, 2))]
    found += [asking("handfast", number, calls, server_us=number) for number, calls in enumerate((30, 200, 8))]
    found += [asking("handfast", 0, 7, "refused")]
    base, ours, refused = summarize_asking(found)
    assert (base.contender, base.rate, base.to_base) == (BASE, 10, 1)
    assert (ours.rate, ours.slowest, ours.fastest, ours.to_base, ours.server_us) == (30, 8, 200, 3.0, 1)
    assert (refused.setting, refused.rate, refused.to_base) == ("refused", 7, None)


def test_lines_are_summed_up():
    found = [Line(number, "handfast", 60, 60, over, 2, calls) for number, (over, calls) in enumerate([(1, 3), (0, 5)])]
    (row,) = summarize_lines([*found, Line(2, "handfast", 60, 60, 0.5, 1, 4)])
    assert (row.over_s, row.inversions, row.pairs, row.calls) == (0.5, 5, 3 * 1770, 4)


def test_waiters_that_were_not_admitted_fail(monkeypatch, server):
    line = Line(0, "handfast", 2, 2, 0.0, 0, 1.0)
    for name in ("ask", "remember"):
        monkeypatch.setattr(limiting, name, lambda *_: iter(()))
    for planted, code in ((line, 0), (replace(line, admitted=1), 1)):
        monkeypatch.setattr(limiting, "line_up", lambda *_, planted=planted: iter([planted]))
        found, output = invoke("--url", server.url)
        assert found == code
        assert ("FAILED: handfast, round 1: 1 waiters were not admitted" in output) == bool(code)


def test_the_memory_of_every_admission_is_measured(monkeypatch, server, raw):
    small, large = remember(server.url, ["handfast"], [10, 1000])
    assert small.bytes < large.bytes
    assert raw.dbsize() == 0
    monkeypatch.setattr(limiting, "Rate", lambda *_: limiting.PACE)
    with pytest.raises(RuntimeError, match="only 10 of 1000 were admitted"):
        list(remember(server.url, ["handfast"], [1000]))
