"""``handfast bench semaphore`` in small runs. No test depends on a measured figure."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from array import array

from click.testing import CliRunner
from rich.console import Console

from handfast_lab.bench.baseline import Baseline
from handfast_lab.bench.contenders import FAIR, SEMAPHORES, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.crowd import Crowd
from handfast_lab.bench.figures import (
    FIRST,
    ONE,
    Case,
    Measurement,
    Notes,
    Row,
    Schedule,
    measure,
)
from handfast_lab.bench.runner import BenchPlan
from handfast_lab.bench.table import crowd_table, fitted, semaphore_table
from handfast_lab.commands.bench import benches
from handfast_lab.stored import read_stored

SCHEDULE = Schedule(0.0, 1.0, 11.0)


def start(*args):
    command = [sys.executable, "-c", "from handfast.cli import main; main()", "bench", *args]
    environment = os.environ | {"COLUMNS": "100"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def bench(tmp_path, *args):
    """Run a benchmark briefly; return its output and raw results."""
    file = tmp_path / "raw.json"
    process = start(*args, "--json", str(file))
    out, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert "…" not in out
    raw = json.loads(file.read_text())
    assert raw["machine"].keys() >= {"cpu", "cores", "python", "redis", "server", "handfast", "date"}
    return out, raw


def test_more_holds_than_the_limit_are_detected():
    notes = [Notes(0, array("d", [2.0]), array("d", [5.0])) for _ in range(3)]
    assert [measure(Case(0, 3, "a"), SCHEDULE, notes, [], limit=limit).violations for limit in (1, 2, 3)] == [2, 1, 0]
    assert measure(Case(0, 3, "a"), SCHEDULE, notes, [], limit=3).handoffs == 0


def test_a_small_run_measures_every_semaphore_and_leaves_no_keys(server, raw, tmp_path):
    few = ["--seconds", "0.1", "--rounds", "1", "--clients", "4"]
    out, results = bench(tmp_path, "semaphore", "--url", server.url, *few)
    # The token records of modern semaphores and of the baseline expire.
    assert [key for key in raw.scan_iter() if not key.startswith(("{hf:semaphore:", "{bench:lock:"))] == []
    available = installed(SEMAPHORES)
    assert {(one["contender"], one["clients"]) for one in results["measurements"]} == {
        (contender, 4) for contender in available
    }
    assert {row["contender"] for row in results["rows"]} == set(available)
    for one in results["measurements"]:
        assert len(one["successes"]) == one["clients"]
        assert one["trouble"] == []
    assert all(contender in out for contender in available)


def test_the_baseline_admits_as_many_holders_as_its_limit(server, raw):
    floors = [Baseline(server.url, "bench", 2) for _ in range(2)]
    try:
        for floor in floors:
            floor.acquire()
        assert len(read_stored(raw, "{bench:lock:bench}").holders) == 2
        for floor in floors:
            floor.release()
        assert len(read_stored(raw, "{bench:lock:bench}").holders) == 0
    finally:
        for floor in floors:
            floor.close()


def invoke(*args):
    result = CliRunner().invoke(benches.semaphore, args)
    return result.exit_code, result.output


def test_too_many_holders_are_reported_and_fail_except_for_the_first_forms(monkeypatch, server):
    def of(contender):
        return Measurement(0, 5, contender, 1.0, 9, (9,), 0, None, None, 2, ())

    args = ["--url", server.url]
    monkeypatch.setattr(benches, "run", lambda *_: iter([of(FIRST), of(FAIR)]))
    code, output = invoke(*args)
    told = "classic-first, 5 clients, round 1: 2 times more than 3 permits were held at once"
    assert (code, f"a known flaw: {told}" in output) == (0, True)
    monkeypatch.setattr(benches, "run", lambda *_: iter([of("handfast")]))
    code, output = invoke(*args)
    assert (code, "VIOLATION: handfast, 5 clients" in output) == (1, True)


def test_a_narrow_terminal_gets_fewer_columns_or_a_table_on_its_side():
    def printed(grid, width):
        console = Console(width=width, file=io.StringIO())
        grid, left_out = fitted(grid, width)
        console.print(grid)
        return console.file.getvalue(), left_out

    row = Row("py-redis-semaphore", 10, 123456, 123456, 99999, 123456, 0.5, None, None, 10.01, 10.01)
    wide, none = printed(semaphore_table([row, row], [], "title"), 100)
    narrow, some = printed(semaphore_table([row, row], [], "title"), 60)
    assert not none
    assert some
    assert "…" not in wide + narrow
    assert max(map(len, narrow.splitlines())) <= 60
    assert all(name in wide and name not in narrow for name in some)
    only = Crowd(1, 4096, 2.0, [0, 1])
    turned, none = printed(crowd_table(only, 2, "title"), 40)
    assert not none
    assert "…" not in turned
    assert len([line for line in turned.splitlines() if line.strip()]) == len(crowd_table(only, 2, "title").columns)


def test_every_figure_fits_the_tables():
    console = Console(width=100, file=io.StringIO())
    row = Row("py-redis-semaphore", 10, 123456, 123456, 99999, 123456, 0.5, None, None, 10.01, 10.01, violations=9999)
    console.print(semaphore_table([row], [], "title"))
    text = console.file.getvalue()
    assert "9,999" in text
    assert "…" not in text


def test_the_contenders_of_a_semaphore_rotate():
    order = list(BenchPlan("url", {ONE: Contention(SEMAPHORES)}, (1,), rounds=2, seconds=1).order())
    assert [case.contender for case in order][:: len(SEMAPHORES)] == list(SEMAPHORES)[:2]
