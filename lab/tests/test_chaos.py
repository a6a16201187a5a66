"""``handfast torture`` on a small scale: histories are run, checked, summed up and reported, and planted faults detected."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from handfast_lab.chaos import faults
from handfast_lab.chaos.campaign import Campaign, cells, played, run
from handfast_lab.chaos.faults import FAULTS, Fault
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.history_run import OPERATIONS, Cell, HistoryRunner
from handfast_lab.chaos.report import render
from handfast_lab.chaos.results import Results
from handfast_lab.chaos.workers import LIMITER, ONCE, PRIMITIVES
from handfast_lab.checker.history import read_history
from handfast_lab.commands import torture as torture_command
from handfast_lab.commands.torture import command
from handfast_lab.simulator import planted

MACHINE = {"server": "valkey 9", "python": "3.11", "redis": "8.1", "cores": 2, "date": "2026-11-21T00:00:00"}


@pytest.fixture(scope="module")
def runner():
    with HistoryRunner() as runner:
        yield runner


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


# --- histories


@pytest.mark.parametrize("api", ["sync", "asyncio"])
@pytest.mark.parametrize("primitive", [*PRIMITIVES, LIMITER, ONCE])
def test_a_history_without_faults_has_no_finding(runner, primitive, api):
    verdict = runner.run(Cell(primitive, api, "none"), 1)
    assert verdict.findings == ()
    assert verdict.operations >= OPERATIONS
    assert verdict.history == (), "a history is kept only with a finding"


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore:.*dropped without a release:ResourceWarning")  # some clients forget their leases
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_occurs_and_leads_to_no_finding(runner, fault):
    apis = ["sync", "asyncio"]  # each primitive in one of them, to save time: a campaign goes through all combinations
    if list(FAULTS).index(fault) % 2:
        apis.reverse()
    chosen = cells(["semaphore", LIMITER], apis[:1], [fault]) + cells(["lock_all", ONCE], apis[1:], [fault])
    verdicts = [runner.run(cell, seed) for seed, cell in enumerate(chosen)]
    assert [verdict.findings for verdict in verdicts] == [()] * len(verdicts)
    assert fault == "none" or sum(verdict.strikes for verdict in verdicts) > 0


def test_a_server_that_loses_data_is_detected_unless_the_fault_excuses_it(runner, monkeypatch):
    monkeypatch.setitem(FAULTS, "treason", Fault(faults._flushes))
    verdicts = [runner.run(Cell("lock", "sync", "treason"), seed) for seed in range(3)]
    found = [finding for verdict in verdicts for finding in verdict.findings]
    assert any(finding.startswith("holds: ") for finding in found)
    assert all(bool(verdict.history) == bool(verdict.findings) for verdict in verdicts)


def test_a_limiter_that_loses_data_is_detected_unless_the_fault_excuses_it(runner, monkeypatch):
    monkeypatch.setitem(FAULTS, "treason", Fault(faults._flushes))
    verdict = runner.run(Cell(LIMITER, "asyncio", "treason"), 1)
    assert any(finding.startswith("windows: ") for finding in verdict.findings)
    admitted = [one for one in verdict.history if one.outcome == "granted" and one.kind != "settle"]
    assert sum(bool(one.counted) for one in admitted) > len(admitted) / 2, "the observer saw most of them"
    assert {one.kind for one in verdict.history} == {"acquire", "try_acquire", "settle"}
    assert cells([LIMITER], ["sync"], ["revocations"]) == [], "it has no leases"


def test_keys_of_once_that_are_lost_are_detected_unless_the_fault_excuses_it(runner, monkeypatch):
    monkeypatch.setitem(FAULTS, "treason", Fault(faults._flushes))
    verdict = runner.run(Cell(ONCE, "asyncio", "treason"), 1)
    assert any(finding.startswith("runs: ") for finding in verdict.findings)
    assert {one.kind for one in verdict.history} == {"acquire", "try_acquire", "release", "forget"}
    assert {"found", "granted", "refused", "released"} <= {one.outcome for one in verdict.history}
    assert cells([ONCE], ["sync"], ["revocations"]) == [], "it has many names"


def test_a_campaign_runs_all_combinations_in_turn():
    chosen = cells(["lock", "rwlock"], ["sync", "asyncio"], ["none", "cancellations"])
    assert Cell("lock", "sync", "cancellations") not in chosen, "the sync API has no cancellations"
    assert len(chosen) == 6
    verdicts = []
    run(Campaign(chosen, seed=5, histories=7), verdicts.append)
    assert sorted(verdict.seed for verdict in verdicts) == list(range(5, 12))
    assert {verdict.cell for verdict in verdicts} == set(chosen)
    sums = played(verdicts)
    assert sum(entry["histories"] for entry in sums) == 7
    assert sum(entry["operations"] for entry in sums) == sum(verdict.operations for verdict in verdicts)


# --- results and report


def figure(**fields):
    defaults = {"id": "R4", "what": "lost reply of acquire", "contender": "handfast", "tried": 1000, "bad": 0}
    return Figure(**defaults | {"unit": "orphans"} | fields)


def test_a_trial_replaces_earlier_results_of_the_same_trial_and_contender(results):
    results.add_trial("lost_replies", "first", MACHINE, [figure()], count=1)
    results.add_trial("lost_replies", "first", MACHINE, [figure(contender="redis-py", bad=7)], count=1)
    results.add_trial("lost_replies", "second", MACHINE, [figure(tried=5)], count=1)
    found = {one["contender"]: (one["tried"], one["bad"], one["command"]) for one in results.figures()}
    assert found == {"handfast": (5, 0, "second"), "redis-py": (1000, 7, "first")}


def test_a_record_in_pieces_names_the_commit_of_its_first_piece(results):
    for commit in ("first", "second"):
        results.add("schedules", "handfast torture", MACHINE | {"commit": commit}, plans=1, schedules=1)
    assert results.read("schedules")["machine"] == MACHINE | {"commit": "first"}


def test_only_a_few_one_line_examples_are_kept():
    assert examples_of([f"wrong\n  {number}" for number in range(9)]) == tuple(f"wrong {number}" for number in range(5))


def test_without_results_no_report_is_written(results):
    assert render(results).count("\n## ") == 0


def test_the_report_shows_all_results_and_hides_no_failure(results):
    made = MACHINE | {"commit": "abc", "older": "def"}
    results.add_trial("lost_replies", "handfast torture", made, [figure(bad=2, examples=("an orphan",))], count=1)
    results.add_trial("lost_replies", "handfast torture", MACHINE, [figure(contender="redis-py", bad=990)], count=1)
    entry = {"primitive": "lock", "api": "sync", "fault": "delays", "histories": 3, "operations": 1500}
    findings = [{"seed": 17, "text": "holds: two at once"}]
    entries = [entry | {"strikes": 9, "seconds": 1.0, "findings": findings}]
    results.write("histories", "handfast torture", MACHINE, seed=1, played=entries)
    page = render(results)
    assert "| R4 | lost reply of acquire | no orphan, no wrong answer | 2 / 1,000 |" in page
    assert "2 orphans: an orphan" in page
    assert "Made by `handfast torture` (2026-11-21, commit abc, older than its sources since def)." in page
    assert "| R4 | lost reply of acquire | 2 / 1,000 | 990 / 1,000 |" in page
    assert "3 histories with 1,500 operations" in page
    assert "seed 17: holds: two at once" in page


def test_the_published_page_is_rendered_from_the_published_results():
    assert Path("docs/results/reliability.md").read_text() == render(Results(Path("results/reliability")))


def test_the_published_commands_run_anywhere():
    """They name a program and files of the repository, and no path of the machine that ran them."""
    texts = [path.read_text() for path in sorted(Path("results").rglob("*.json"))]
    commands = re.findall(r'"command": "([^"]*)"', "\n".join(texts))
    assert commands
    for published in commands:
        assert re.match(r"(handfast|python -m \S+)(\s|$)", published), published
        assert not re.search(r"[\s=][/~]", published), published


# --- the command


def torture(tmp_path, *args):
    where = ["--results", str(tmp_path / "results"), "--report", str(tmp_path / "REPORT.md")]
    return CliRunner().invoke(command, [*args, *where], catch_exceptions=False)


def test_the_command_runs_histories_and_writes_the_report(tmp_path):
    options = ["--part", "histories", "--fault", "none", "--primitive", "lock", "--api", "sync", "--histories", "2"]
    result = torture(tmp_path, *options, "--seed", "3")
    assert result.exit_code == 0
    assert "2 histories" in (tmp_path / "REPORT.md").read_text()
    raw = json.loads((tmp_path / "results" / "histories.json").read_text())
    assert raw["seed"] == 3
    assert not (tmp_path / "results" / "found").exists()


def test_nothing_is_written_into_a_folder_that_was_not_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trial = ["--part", "trials", "--trial", "leaks", "--count", "1"]
    done = CliRunner().invoke(command, trial)
    assert done.exit_code == click.UsageError.exit_code
    assert "--results" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(command, [*trial, "--results", "kept"], catch_exceptions=False).exit_code == 0
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "trials.json"]
    for folder in (torture_command.RECORD, torture_command.PAGE.parent):
        folder.mkdir(parents=True)
    assert CliRunner().invoke(command, trial, catch_exceptions=False).exit_code == 0
    assert (torture_command.RECORD / "trials.json").exists()
    assert torture_command.PAGE.exists()


def test_a_record_can_be_made_in_pieces(tmp_path):
    """The second piece goes on with the seeds after those of the first, as one run of both would have."""
    histories = ["--part", "histories", "--fault", "none", "--primitive", "lock", "--histories"]
    schedules = ["--part", "schedules", "--processes", "1", "--schedules"]
    for number in ("1", "2"):
        for part in (histories, schedules):
            assert torture(tmp_path, *part, number, "--add").exit_code == 0
    pieces = {
        part: json.loads((tmp_path / "results" / f"{part}.json").read_text()) for part in ("histories", "schedules")
    }
    assert (pieces["histories"]["seed"], pieces["schedules"]["first_seed"]) == (1, 1)
    assert pieces["histories"]["command"].count("; ") == pieces["schedules"]["command"].count("; ") == 1
    assert sum(entry["histories"] for entry in pieces["histories"]["played"]) == 3
    assert [entry["api"] for entry in pieces["histories"]["played"]] == ["asyncio", "sync"]
    cluster = json.loads((tmp_path / "results" / "schedules_cluster.json").read_text())
    assert (cluster["first_seed"], cluster["schedules"]) == (1, 2), "a quarter, rounded up, each time"
    assert "| cluster | 2 |" in (tmp_path / "REPORT.md").read_text()
    assert torture(tmp_path, *schedules, "3").exit_code == 0
    whole = json.loads((tmp_path / "results" / "schedules.json").read_text())
    differing = "command", "machine", "seconds", "virtual_days"
    assert {key: whole[key] for key in whole if key not in differing} == {
        key: value for key, value in pieces["schedules"].items() if key not in differing
    }
    assert "3 histories" in (tmp_path / "REPORT.md").read_text()
    pieces["schedules"]["plans"] = 0
    (tmp_path / "results" / "schedules.json").write_text(json.dumps(pieces["schedules"]))
    with pytest.raises(ValueError, match="other plans"):
        torture(tmp_path, *schedules, "1", "--add")


def test_the_command_plants_mistakes_and_reports_which_were_detected(tmp_path, monkeypatch):
    few = [one for one in planted.PLANTED if one.where == "lib/state"]
    monkeypatch.setattr(planted, "PLANTED", few)
    assert torture(tmp_path, "--part", "planted").exit_code == 0
    assert "2 of 2 were caught" in (tmp_path / "REPORT.md").read_text()
    harmless = {"function": "handfast._engine.once.OnceRequest.trusts_messages", "change": False}
    monkeypatch.setattr(planted, "PLANTED", [planted.Planted("none at all", "", **harmless)])
    monkeypatch.setattr(planted, "catch_all", partial(planted.catch_all, most=20))
    result = torture(tmp_path, "--part", "planted")
    assert result.exit_code == 1
    assert "not found: none at all" in result.stderr


def test_a_finding_fails_the_command_and_keeps_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr("handfast_lab.chaos.campaign.run", in_this_process)
    monkeypatch.setitem(FAULTS, "none", Fault(faults._flushes))
    result = torture(tmp_path, "--part", "histories", "--fault", "none", "--primitive", "lock", "--histories", "4")
    assert result.exit_code == 1
    assert re.search(r"lock, \w+, none, seed \d+: (holds|linearizability): ", result.stderr)
    kept = next(Path(tmp_path / "results" / "found").glob("lock-*.jsonl"))
    assert len(list(read_history(kept.read_text().splitlines()))) >= OPERATIONS


def in_this_process(campaign, progress):
    with HistoryRunner() as runner:
        for number in range(int(campaign.histories)):
            progress(runner.run(campaign.cells[number % len(campaign.cells)], campaign.seed + number))
