"""``handfast bench``: what it measures and reports. No test depends on a measured figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from handfast._engine.script import load
from handfast_lab.bench.contenders import LOCKS, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import ONE, Case, Hold, Measurement, Notes, Schedule, crowding, measure, summarize
from handfast_lab.bench.runner import BenchPlan, ClientPool
from handfast_lab.bench.workload import Scene
from tests._support.helpers import until_alone

SCHEDULE = Schedule(0.0, 1.0, 11.0)


def notes(*holds, tries=0):
    return Notes(tries, array("d", (hold[0] for hold in holds)), array("d", (hold[1] for hold in holds)))


def bench(*args, command="lock", **options):
    command = [sys.executable, "-c", "from handfast.cli import main; main()", "bench", command, *args]
    environment = os.environ | {"COLUMNS": "100"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def test_a_small_run_reports_every_contender_in_json_and_in_the_table(tmp_path):
    file = tmp_path / "raw.json"
    process = bench("--seconds", "0.1", "--rounds", "1", "--clients", "2", "--json", str(file))
    out, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (0, "")
    raw = json.loads(file.read_text())
    assert {(one["contender"], one["clients"]) for one in raw["measurements"]} == {
        (contender, 2) for contender in installed(LOCKS)
    }
    assert len(raw["rows"]) == len(raw["measurements"]) == len(installed(LOCKS))
    for one in raw["measurements"]:
        assert len(one["successes"]) == one["clients"]
        assert (one["violations"], one["trouble"]) == (0, [])
    assert raw["machine"].keys() >= {"cpu", "cores", "python", "redis", "server", "handfast"}
    assert raw["machine"].keys() >= {"date", "commit", "changed"}
    assert all(contender in out for contender in installed(LOCKS))
    assert max(map(len, out.splitlines())) <= 100


def test_only_named_contenders_are_measured_and_ratios_without_a_base_are_omitted(tmp_path, server):
    file = tmp_path / "raw.json"
    args = ["--url", server.url, "--seconds", "0.1", "--rounds", "2", "--clients", "1,2", "--hold", "1"]
    process = bench(*args, "--only", "handfast", "--only", "floor", "--json", str(file))
    _, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (0, "")
    rows = {row["contender"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == ["handfast", "floor"]
    assert rows["handfast"]["to_classic"] is None
    assert rows["floor"]["to_floor"] == 1


def test_a_handoff_is_counted(tmp_path):
    file = tmp_path / "raw.json"
    args = ["--clients", "2", "--rounds", "2", "--seconds", "0.3", "--only", "handfast", "--only", "floor"]
    process = bench(*args, "--json", str(file), command="handoff")
    out, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (0, "")
    raw = json.loads(file.read_text())
    assert [row["contender"] for row in raw["rows"]] == ["handfast", "floor"]
    assert len(raw["measurements"]) == 4
    for row in raw["rows"]:
        assert row["commands"] > row["reads"] > 1  # at least a request to acquire and one to release
        assert row["bytes_received"] > 2 * len(load("permit_acquire").digest)
        assert row["writes"] > 1
        assert row["client_wakeups"] > 0
        assert row["contender"] in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_first_contender_of_a_round_rotates():
    order = list(BenchPlan("url", {ONE: Contention(("a", "b", "c"))}, (1, 2), rounds=3, seconds=1).order())
    assert len(order) == len(set(order)) == 18
    assert [case.contender for case in order if case.clients == 1][::3] == ["a", "b", "c"]
    assert [case.round for case in order] == [0] * 6 + [1] * 6 + [2] * 6


def test_a_planted_overlap_is_detected():
    sound = [Hold(1, 2, 0), Hold(2, 3, 1), Hold(3.5, 4, 0)]
    assert crowding(sound) == 0
    assert crowding([*sound, Hold(2.5, 2.6, 2)]) == 1
    assert crowding([*sound, Hold(0, 9, 5)]) == len(sound)
    assert measure(Case(0, 2, "a"), SCHEDULE, [notes((2, 4)), notes((3, 5))], []).violations == 1


def test_a_violation_is_reported_and_fails_the_command(monkeypatch, server):
    from click.testing import CliRunner

    from handfast_lab.commands.bench import benches

    planted = measure(Case(0, 2, "floor"), SCHEDULE, [notes((2, 4)), notes((3, 5))], [])
    monkeypatch.setattr(benches, "run", lambda _: iter([planted]))
    result = CliRunner().invoke(benches.lock, ["--url", server.url, "--clients", "2", "--rounds", "1"])
    assert result.exit_code == 1
    assert "VIOLATION: floor, 2 clients, round 1: 1 times two clients held the lock at once" in result.output


def test_only_operations_within_the_measured_time_count():
    one = measure(
        Case(0, 2, "a"), SCHEDULE, [notes((0.5, 0.6), (2, 3), (5, 6), tries=7), notes((4, 4.5), (11, 12), tries=2)], []
    )
    assert one.successes == (2, 1)
    assert one.tries == 9
    assert one.rate == pytest.approx(0.3)
    assert one.fairness == 0.5
    assert one.handoffs == 2  # 3 to 4 and 4.5 to 5: without the client itself and without late operations
    assert one.handoff_p50_us == pytest.approx(0.5e6)
    assert one.handoff_p99_us == pytest.approx(1e6)


def test_ratios_are_computed_within_a_round_and_omit_failures():
    def of(contender, number, acquires, trouble=()):
        return Measurement(number, 1, contender, 1.0, acquires, (acquires,), 0, None, None, 0, trouble)

    rows = summarize(
        [
            *(of("floor", number, rate) for number, rate in enumerate((100, 1000, 10, 7))),
            *(of("handfast", number, rate) for number, rate in enumerate((50, 800, 9))),
            of("handfast", 3, 7000, ("a client did not end in time and was killed",)),
        ]
    )
    ours = rows[1]
    assert (ours.contender, ours.to_floor, ours.to_classic) == ("handfast", 0.8, None)
    assert (ours.rate, ours.slowest, ours.fastest) == (50, 9, 800)


def test_a_client_that_hangs_is_killed_and_replaced(monkeypatch, server, raw):
    raw.set("bench", "held and never released", ex=60)
    monkeypatch.setattr("handfast_lab.bench.runner.READY_TIMEOUT", 2.0)
    with ClientPool() as pool:
        _, found, trouble = pool.do(jobs("redis-py-1ms", server.url), 0.1)
        assert (found, trouble) == ([], ["a client was not ready and was killed: process 1 reported nothing for 2 s"])
        raw.delete("bench")
        monkeypatch.setattr("handfast_lab.bench.runner.READY_TIMEOUT", 20.0)
        _, found, trouble = pool.do(jobs("redis-py-1ms", server.url), 0.1)
        assert (len(found), trouble) == (1, [])


def test_a_client_that_fails_reports_the_reason(server):
    with ClientPool() as pool:
        _, _, trouble = pool.do(jobs("floor", "unix:///nowhere"), 0.1)
    assert "ConnectionError" in trouble[0]


def jobs(contender, url):
    return Contention((contender,)).jobs(Scene(url, "bench", contender, 1))


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_ctrl_c_leaves_no_process_or_server(server, raw):
    until_alone(raw)
    process = bench("--url", server.url, "--clients", "3", "--only", "classic-lua", "--seconds", "30")
    while len(raw.client_list()) < 1 + 3:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 3
    process.send_signal(2)
    process.communicate(timeout=20)
    assert process.returncode == 1
    while any(map(lives, children)):  # the resource tracker of multiprocessing ends a moment later
        time.sleep(0.01)
