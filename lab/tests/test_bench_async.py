"""The asyncio benchmarks: what they measure and report. No test depends on a measured figure."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from array import array
from dataclasses import replace
from time import monotonic

import pytest
from click.testing import CliRunner
from rich.console import Console

from handfast.embedded import PrivateServer
from handfast_lab.bench import memory
from handfast_lab.bench.baseline import Bare
from handfast_lab.bench.baseline_pipeline import Pipeline
from handfast_lab.bench.contenders import HANDFAST, TASK_LOCKS, installed
from handfast_lab.bench.crowd import inversions
from handfast_lab.bench.figures import DISTINCT, FLOOR, ONE, Case, Hold, Notes, Row, Schedule, crowding, measure
from handfast_lab.bench.runner import BenchPlan, ClientPool
from handfast_lab.bench.table import tasks_table
from handfast_lab.bench.tasks import TaskContention, TasksJob, end
from handfast_lab.commands.bench import benches

SCHEDULE = Schedule(0.0, 1.0, 11.0)


def bench(*args):
    command = [sys.executable, "-c", "from handfast.cli import main; main()", "bench", *args]
    environment = os.environ | {"COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50, check=False)


def two_notes(*, second_at):
    return [
        Notes(0, array("d", [2.0]), array("d", [4.0])),
        Notes(0, array("d", [second_at]), array("d", [second_at + 1])),
    ]


def test_a_small_run_reports_every_contender_in_both_settings(tmp_path):
    file = tmp_path / "raw.json"
    ran = bench("async", "--tasks", "3", "--rounds", "1", "--seconds", "0.1", "--waiters", "0", "--json", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    raw = json.loads(file.read_text())
    assert {(one["contender"], one["setting"]) for one in raw["measurements"]} == {
        (contender, setting) for contender in [*installed(TASK_LOCKS), FLOOR] for setting in (DISTINCT, ONE)
    }
    for one in raw["measurements"]:
        assert (len(one["successes"]), one["clients"], one["trouble"]) == (3, 3, [])
        assert one["violations"] == (0 if one["setting"] == ONE else None)
    connections = {(row["contender"], row["setting"]): row["connections"] for row in raw["rows"]}
    assert [connections[who, setting] for who in (HANDFAST, FLOOR) for setting in (DISTINCT, ONE)] == [1] * 4
    assert connections["redis-py", DISTINCT] == 3
    assert raw["machine"].keys() >= {"coredis", "redis-fifo-lock", "py-redis-semaphore"}
    assert all(ran.stdout.count(contender) >= 2 for contender in [*installed(TASK_LOCKS), FLOOR])
    assert max(map(len, ran.stdout.splitlines())) <= 100
    assert "…" not in ran.stdout


def test_every_figure_fits_the_table():
    long = Row("py-redis-semaphore", 10000, 0, 123456, 99999, 123456, 0.5, 9999, 999999, 10.01, None, 10.01, ONE, 10000)
    console = Console(width=100, file=io.StringIO())
    console.print(tasks_table([long, replace(long, slowest=9999, fastest=99940)], [], ONE, "title"))
    text = console.file.getvalue()
    assert "123,456" in text
    assert "9999/1000ms" in text
    assert "…" not in text


def test_the_cost_of_a_waiter_has_its_own_table(tmp_path):
    file = tmp_path / "raw.json"
    few = ["--tasks", "2", "--rounds", "1", "--seconds", "0.1", "--setting", "one", "--only", HANDFAST, "--only", FLOOR]
    ran = bench("async", *few, "--waiters", "200", "--json", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    (cost,) = json.loads(file.read_text())["memory"]
    assert (cost["contender"], cost["waiters"], cost["connections"], cost["trouble"]) == (HANDFAST, 200, 1, [])
    assert cost["bytes_per_waiter"] > 0 or not sys.platform.startswith("linux")
    assert "What a task costs that waits" in ran.stdout
    assert DISTINCT not in {row["setting"] for row in json.loads(file.read_text())["rows"]}


def test_rivals_also_wait_when_their_cost_is_measured():
    rivals = tuple(
        name for name in [*installed(TASK_LOCKS), FLOOR] if name in {"coredis", "redis-fifo-lock", "py-redis-semaphore"}
    )
    with PrivateServer() as server:  # a separate server, since some rivals leave keys without a TTL
        found = list(memory.run(server.url, rivals, 5, 1))
    assert [(one.contender, one.trouble) for one in found] == [(rival, ()) for rival in rivals]
    assert all(one.connections >= 1 for one in found)


def test_a_failing_rival_is_reported_and_the_run_continues(tmp_path):
    file = tmp_path / "raw.json"
    few = ["--tasks", "20", "--rounds", "1", "--seconds", "0.1", "--setting", "distinct"]
    with PrivateServer("--maxclients", "6") as server:
        only = ["--only", "redis-py", "--only", HANDFAST]
        ran = bench("async", "--url", server.url, *few, "--waiters", "20", *only, "--json", str(file))
    assert ran.returncode == 0
    assert "FAILED: distinct, redis-py, 20 clients, round 1: redis.exceptions." in ran.stderr
    assert "FAILED: redis-py, 20 waiters, round 1: redis.exceptions." in ran.stderr
    raw = json.loads(file.read_text())
    assert [row["contender"] for row in raw["rows"]] == [HANDFAST]
    assert any("redis-py" in line and "failed" in line for line in ran.stdout.splitlines())


def test_a_failure_of_handfast_or_a_violation_by_any_contender_fails_the_command(monkeypatch, server):
    def complain(*planted):
        monkeypatch.setattr(benches, "run", lambda _: iter(planted))
        args = ["--url", server.url, "--tasks", "2", "--rounds", "1", "--waiters", "0"]
        result = CliRunner().invoke(benches.async_, args)
        return result.exit_code, result.output

    ours = measure(Case(0, 2, HANDFAST), SCHEDULE, [], ["Traceback\nOSError: no"])
    theirs = measure(Case(0, 2, "redis-py"), SCHEDULE, [], ["Traceback\nOSError: no"])
    both = measure(Case(0, 2, "redis-py"), SCHEDULE, two_notes(second_at=3.0), [])
    assert complain(theirs)[0] == 0
    code, output = complain(ours)
    assert (code, "FAILED: handfast, 2 clients, round 1: Traceback\nOSError: no" in output) == (1, True)
    code, output = complain(both)
    assert (code, "VIOLATION: redis-py, 2 clients, round 1: 1 times" in output) == (1, True)


def test_holds_of_distinct_locks_may_overlap_and_count_as_no_handoff():
    one = measure(Case(0, 2, "a", DISTINCT), SCHEDULE, two_notes(second_at=3.0), [], 2, limit=None)
    assert (one.violations, one.handoffs, one.handoff_p50_us, one.connections) == (None, 0, None, 2)
    assert one.successes == (1, 1)
    assert measure(Case(0, 2, "a", ONE), SCHEDULE, two_notes(second_at=3.0), []).violations == 1


def test_a_plan_contains_every_setting_in_every_round():
    workloads = {setting: TaskContention(("a", "b"), setting) for setting in (DISTINCT, ONE)}
    plan = BenchPlan("url", workloads, (1, 2), rounds=2, seconds=1)
    order = list(plan.order())
    assert len(plan) == len(order) == len(set(order)) == 16
    assert [case.contender for case in order if case.setting == ONE and case.clients == 2][::2] == ["b", "a"]


def test_a_contender_that_is_never_ready_is_killed_and_replaced(monkeypatch, server, raw):
    raw.set("bench-0", "held and never released", ex=60)
    monkeypatch.setattr("handfast_lab.bench.runner.READY_TIMEOUT", 2.0)
    job = TasksJob("redis-py", server.url, "bench", ONE, 2)
    with ClientPool() as pool:
        assert pool.do([job], 0.1)[1:] == (
            [],
            ["a client was not ready and was killed: process 1 reported nothing for 2 s"],
        )
        raw.delete("bench-0")
        monkeypatch.setattr("handfast_lab.bench.runner.READY_TIMEOUT", 20.0)
        _, reports, trouble = pool.do([job], 0.1)
    assert (len(reports), trouble) == (1, [])


def test_tasks_that_never_acquire_do_not_break_the_run(server, raw):
    raw.set("bench", "held and never released", ex=60)
    with ClientPool() as pool:
        _, reports, trouble = pool.do([TasksJob("redis-py", server.url, "bench", ONE, 2)], 0.1)
    assert trouble == []
    assert [len(notes.succeeded) for notes in reports[0].notes] == [0, 0]


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again():
    lost = []

    async def stubborn():
        for _ in range(2):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost.append(1)
        await asyncio.sleep(3600)

    task = asyncio.create_task(stubborn())
    await end([task], timeout=0)
    assert (len(lost), task.cancelled()) == (2, True)


@pytest.mark.parametrize("clients", [1, 2, 3, 50])
@pytest.mark.parametrize("setting", [DISTINCT, ONE])
def test_the_baseline_acquires_and_releases_like_a_lock(server, raw, clients, setting):
    bare = Bare(server.url)
    try:
        notes = Pipeline(bare, [f"p{number * (setting == DISTINCT)}" for number in range(clients)]).contend(
            monotonic() + 0.2
        )
    finally:
        bare.close()
    assert all(len(one.succeeded) > 1 for one in notes)
    if setting == ONE:
        holds = [
            Hold(*both, client)
            for client, one in enumerate(notes)
            for both in zip(one.succeeded, one.released, strict=True)
        ]
        assert crowding(holds) == 0


def test_a_small_crowd_acquires_in_order_and_all_its_scripts_are_timed(tmp_path):
    file = tmp_path / "raw.json"
    ran = bench("crowd", "--waiters", "300", "--json", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    raw = json.loads(file.read_text())
    assert raw["crowd"]["order"] == list(range(300))
    assert (raw["crowd"]["connections"], raw["crowd"]["inversions"], raw["trouble"]) == (1, 0, [])
    calls = {script["script"]: script["calls"] for script in raw["scripts"]}
    assert calls["permit_release"] == 301
    assert calls["permit_acquire"] >= 301  # a waiter that waits for long polls
    assert all(0 < script["p50"] <= script["p99"] <= script["p999"] <= script["longest"] for script in raw["scripts"])
    assert "permit_acquire" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 100


def test_a_crowd_on_a_given_server_leaves_its_settings_unchanged(server, raw, tmp_path):
    before, file = raw.config_get("*"), tmp_path / "raw.json"
    ran = bench("crowd", "--url", server.url, "--waiters", "20", "--json", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert raw.config_get("*") == before
    assert json.loads(file.read_text())["scripts"] == []
    assert "permit_acquire" not in ran.stdout


def test_inversions_counts_the_pairs_in_the_wrong_order():
    assert inversions([]) == inversions(range(5)) == 0
    assert inversions([1, 0, 2]) == 1
    assert inversions([3, 2, 1, 0]) == 6
