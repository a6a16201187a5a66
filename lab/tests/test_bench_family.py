"""``handfast bench semaphore``, ``rwlock`` and ``lock-all`` in small runs. No test depends on a measured figure."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from array import array
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from handfast._engine.packing import doubles
from handfast_lab.bench import conservation, kill_loop, pairs, rwlock
from handfast_lab.bench.baseline import Baseline
from handfast_lab.bench.conservation import Conservation, Sampling
from handfast_lab.bench.contenders import FAIR, SEMAPHORES, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import (
    FIRST,
    ONE,
    Case,
    Hold,
    Measurement,
    Notes,
    Row,
    Schedule,
    Times,
    Turns,
    crowding,
    measure,
)
from handfast_lab.bench.kill_loop import read_log
from handfast_lab.bench.pairs import Drawn
from handfast_lab.bench.runner import BenchPlan
from handfast_lab.bench.table import conservation_table, fitted, pairs_table, rwlock_table, semaphore_table
from handfast_lab.commands.bench import lock_all as lock_all_command
from handfast_lab.commands.bench import rwlock as rwlock_command
from handfast_lab.commands.bench import semaphore as semaphore_command
from handfast_lab.stored import read_stored
from tests._support.helpers import eventually, until_alone

SCHEDULE = Schedule(0.0, 1.0, 11.0)

NO_TIMES = Times("wait", 0, 0.0, 0.0, 0.0)

KEPT = Conservation(1.0, 100, 3, 1, 1, 0, 0.1, 50, 10, 6, 0, 0, 0, 0, ())
"""A measurement without violations."""


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


def turns(*ones):
    """Return the notes of holds that were requested, acquired and released at these moments."""
    return Turns(*(array("d", moments) for moments in zip(*ones, strict=True))) if ones else Turns(*[array("d")] * 3)


# --- weights


def test_holds_whose_weights_exceed_the_limit_are_detected():
    assert crowding([Hold(0, 9, 0, 2), Hold(1, 9, 1, 1)], 3) == 0
    assert crowding([Hold(0, 9, 0, 2), Hold(1, 9, 1, 2)], 3) == 1
    assert crowding([Hold(0, 2, 0, 2), Hold(1, 9, 1, 1), Hold(2, 3, 2, 2)], 3) == 0  # acquired after a release
    assert crowding([Hold(0, 9, 0, 4)], 3) == 1
    notes = [Notes(0, array("d", [2.0]), array("d", [5.0])) for _ in range(3)]
    assert [measure(Case(0, 3, "a"), SCHEDULE, notes, [], limit=limit).violations for limit in (1, 2, 3)] == [2, 1, 0]
    assert measure(Case(0, 3, "a"), SCHEDULE, notes, [], limit=3).handoffs == 0


# --- the semaphore


def test_a_small_run_measures_every_semaphore_kills_a_process_and_leaves_no_keys(server, raw, tmp_path):
    few = ["--seconds", "0.1", "--rounds", "1", "--clients", "4", "--operations", "300"]
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
    kept = results["conservation"]
    assert kept["operations"] >= 300
    assert (kept["over"], kept["unaccounted"], kept["crowded"], kept["trouble"]) == (0, 0, 0, [])
    assert 0 < kept["most_held"] <= results["settings"]["conservation"]["limit"]
    assert "unaccounted" in out


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


def invoke(command, *args):
    result = CliRunner().invoke(command.command, args)
    return result.exit_code, result.output


def test_too_many_holders_are_reported_and_fail_except_for_the_first_forms(monkeypatch, server):
    def of(contender):
        return Measurement(0, 5, contender, 1.0, 9, (9,), 0, None, None, 2, ())

    args = ["--url", server.url, "--operations", "0"]
    monkeypatch.setattr(semaphore_command, "run", lambda *_: iter([of(FIRST), of(FAIR)]))
    code, output = invoke(semaphore_command, *args)
    told = "classic-first, 5 clients, round 1: 2 times more than 3 permits were held at once"
    assert (code, f"a known flaw: {told}" in output) == (0, True)
    monkeypatch.setattr(semaphore_command, "run", lambda *_: iter([of("handfast")]))
    code, output = invoke(semaphore_command, *args)
    assert (code, "VIOLATION: handfast, 5 clients" in output) == (1, True)


@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ({"over": 1}, "VIOLATION: conservation: permits were lost or doubled 1 times"),
        ({"unaccounted": 1, "crowded": 1}, "VIOLATION: conservation: permits were lost or doubled 2 times"),
        ({"trouble": ("something was left",)}, "FAILED: conservation: something was left"),
    ],
)
def test_permits_that_are_not_conserved_are_reported_and_fail(monkeypatch, server, flaw, told):
    monkeypatch.setattr(semaphore_command, "run", lambda *_: iter([]))
    monkeypatch.setattr(conservation, "run", lambda *_: KEPT)
    assert invoke(semaphore_command, "--url", server.url)[0] == 0
    monkeypatch.setattr(conservation, "run", lambda *_: replace(KEPT, **flaw))
    code, output = invoke(semaphore_command, "--url", server.url)
    assert (code, told in output) == (1, True)


def test_a_sample_detects_excess_and_missing_permits(hf, other, raw):
    leases = [other.semaphore("a", 3).acquire(permits=permits) for permits in (1, 2)]
    sampling = Sampling()
    sampling.look(hf.semaphore("a", 3))
    assert (sampling.samples, sampling.most_held, sampling.over, sampling.unaccounted) == (1, 3, 0, 0)
    sampling.look(hf.semaphore("a", 2))
    assert (sampling.samples, sampling.over) == (2, 1)
    raw.hset("{hf:semaphore:a}:state", "q", doubles(1, 9e15, 0, 0))
    sampling = Sampling()
    sampling.look(hf.semaphore("a", 3))
    assert (sampling.over, sampling.unaccounted) == (0, 1)
    for lease in leases:
        lease.release()


def test_a_hold_that_a_kill_ended_counts_up_to_the_kill_or_its_deadline(tmp_path):
    log = tmp_path / "0"
    log.write_bytes(array("d", [1.0, 2.0, 9.0, 3, 4.0, 1, 0, 0, 5.0, 5.5, 9.0, 2]).tobytes())
    seen = read_log(log, 7.0, 0)
    assert seen.holds == [Hold(2.0, 4.0, 0, 3), Hold(5.5, 7.0, 0, 2)]
    assert (seen.operations, seen.lost, seen.longest_wait) == (1, 0, 1.0)
    assert read_log(log, 99.0, 0).holds[1] == Hold(5.5, 9.0, 0, 2)
    log.write_bytes(array("d", [1.0, 2.0, 3.0, 3, 4.0, 0, 0, 0]).tobytes())
    seen = read_log(log, 7.0, 0)
    assert (seen.holds, seen.operations, seen.lost) == ([Hold(2.0, 3.0, 0, 3)], 1, 1)


def plan_of(server, operations=10):
    return kill_loop.KillLoopSettings(server.url, "bench", 2, 4, 0.1, operations)


def test_a_stuck_process_is_reported(server, hf, raw, tmp_path):
    loop = kill_loop.KillLoop(plan_of(server), tmp_path)
    semaphore = hf.semaphore("bench", 4)
    try:
        with semaphore.acquire(permits=4):
            loop.fill()
            eventually(lambda: semaphore.status().waiting == 2, within=30)
            assert loop.stop(0.1) == [f"process {name} did not end in time" for name in (0, 1)]
    finally:
        loop.dismiss()


def test_permits_that_stay_taken_at_rest_are_reported(monkeypatch, server, hf, raw):
    monkeypatch.setattr(conservation, "STOP_TIMEOUT", 1.0)
    with hf.semaphore("bench", 4).acquire(permits=4):
        found = conservation.run(plan_of(server))
    assert found.operations == 0
    assert set(found.trouble) >= {
        "there were only 0 operations within 1.1 s",
        "at rest 0 of 4 permits were free, and 1 leases existed",
        "at rest no client could acquire all permits at once",
    }


def test_a_failing_process_reports_the_reason_and_ends_the_run(server, hf, raw):
    hf.semaphore("bench", 4).resize(1)
    found = conservation.run(plan_of(server, 10**6))
    assert any("LimitExceeded" in trouble for trouble in found.trouble)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_ctrl_c_while_processes_are_killed_leaves_no_process_or_server(server, raw):
    until_alone(raw)
    args = ["--url", server.url, "--clients", "1", "--only", "floor", "--rounds", "1", "--seconds", "0.05"]
    process = start("semaphore", *args, "--operations", "10000000")
    eventually(lambda: len(raw.client_list()) >= 1 + 6, within=30)
    process.send_signal(2)
    process.communicate(timeout=20)
    assert process.returncode == 1
    until_alone(raw)


# --- the read-write lock


def test_a_small_run_measures_reads_and_writes_with_both_locks(tmp_path):
    args = ["--readers", "3", "--writers", "2", "--rounds", "2", "--seconds", "0.2", "--work", "0.5"]
    out, raw = bench(tmp_path, "rwlock", *args)
    assert [(one["contender"], one["round"]) for one in raw["measurements"]] == [
        ("rwlock", 0),
        ("lock", 0),
        ("lock", 1),
        ("rwlock", 1),
    ]
    for one in raw["measurements"]:
        assert (one["overlaps"], one["trouble"]) == (0, [])
        assert min(one["reads"], one["writes"]) > 0
        assert 0 < one["write_waits"]["p50"] <= one["write_waits"]["longest"]
    assert [(row["contender"], row["to_lock"] == 1) for row in raw["rows"]][1] == ("lock", True)
    assert "to write, ms" in out


def sharing(contender, *clients, readers=2, writers=1, number=0, trouble=()):
    plan = rwlock.SharingPlan("url", readers, writers, 0.001, 1, 10)
    return rwlock.measure(plan, Case(number, readers + writers, contender), SCHEDULE, clients, trouble)


def test_readers_may_overlap_and_a_writer_must_not():
    readers = turns((1, 2, 5)), turns((2, 3, 4))
    assert sharing("rwlock", *readers, turns((3, 5, 6))).overlaps == 0
    assert sharing("rwlock", *readers, turns((3, 4.5, 6))).overlaps == 1  # the writer acquired too early
    assert sharing("rwlock", *readers, turns((1, 1.5, 2.5))).overlaps == 1  # a reader acquired too early
    assert sharing("rwlock", *readers, turns((4, 5, 7)), turns((4, 6, 8)), writers=2).overlaps == 1
    assert (
        sharing("lock", *readers, turns((3, 5, 6))).overlaps == 1
    )  # with a plain lock, readers must not overlap either


def test_waits_count_by_their_start_and_holds_by_their_grant():
    one = sharing("rwlock", turns((0.5, 0.9, 1), (2, 3, 4)), turns((5, 7, 8)), turns((10, 14, 15)))
    assert (one.reads, one.writes) == (2, 0)
    assert (one.read_waits.calls, one.read_waits.longest) == (2, 2e6)
    assert (one.write_waits.calls, one.write_waits.longest) == (1, 4e6)


def test_read_write_locks_are_compared_within_a_round():
    def of(contender, number, reads, *, longest=0.0, trouble=()):
        waits = Times("read", reads, 1.0, 2.0, longest)
        return rwlock.Sharing(number, contender, 2, 1, 10.0, reads, 0, waits, waits, 0, trouble)

    found = [of("lock", number, reads) for number, reads in enumerate((10, 100, 2))]
    found += [of("rwlock", number, reads, longest=reads) for number, reads in enumerate((30, 200, 8))]
    ours, plain = rwlock.summarize([*found, of("rwlock", 3, 9000, trouble=("killed",))])
    assert (ours.contender, ours.reads, ours.slowest, ours.fastest) == ("rwlock", 3.0, 0.8, 20.0)
    assert (ours.to_lock, plain.to_lock) == (3.0, 1.0)
    assert (ours.read_waits.calls, ours.read_waits.longest) == (238, 200)


def test_an_overlapping_writer_is_reported_and_fails(monkeypatch, server):
    planted = sharing("rwlock", turns((1, 2, 5)), turns(), turns((3, 4.5, 6)))
    monkeypatch.setattr(rwlock_command, "run", lambda _: iter([planted]))
    code, output = invoke(rwlock_command, "--url", server.url)
    assert (code, "VIOLATION: rwlock, round 1: 1 times a writer was not alone" in output) == (1, True)
    monkeypatch.setattr(rwlock_command, "run", lambda _: iter([replace(planted, overlaps=0, trouble=("it hung",))]))
    code, output = invoke(rwlock_command, "--url", server.url)
    assert (code, "FAILED: rwlock, round 1: it hung" in output) == (1, True)


# --- several locks


def test_a_small_run_measures_all_pairs_with_both_contenders(tmp_path):
    args = ["--clients", "3", "--pairs", "40", "--names", "4", "--rounds", "2"]
    out, raw = bench(tmp_path, "lock-all", *args)
    assert [(one["contender"], one["round"]) for one in raw["passes"]] == [
        ("lock_all", 0),
        ("nested", 0),
        ("nested", 1),
        ("lock_all", 1),
    ]
    for one in raw["passes"]:
        assert (one["pairs"], one["timeouts"], one["overlaps"], one["trouble"]) == (120, 0, 0, [])
        assert one["waits"]["calls"] == 120
    assert raw["rows"][1]["to_nested"] == 1
    assert "deadlocks" in out


def drawn(*ones, timeouts=0):
    """Return the notes of pairs that were held between these moments."""
    held = turns(*((begin - 0.5, begin, end) for begin, end, _, _ in ones))
    return Drawn(held, *(array("l", names) for names in zip(*(one[2:] for one in ones), strict=True)), timeouts)


def taken(*clients, contender="lock_all", number=0, expected=None):
    count = sum(len(one.first) + one.timeouts for one in clients) if expected is None else expected
    plan = pairs.PairsPlan("url", 1, count, 10, 0.0, 1)
    return pairs.measure(plan, Case(number, len(clients), contender), SCHEDULE, clients, [])


def test_pairs_overlap_if_they_share_a_name():
    one = taken(drawn((1, 3, 0, 1)), drawn((2, 4, 2, 3), (5, 6, 0, 1)))
    assert (one.overlaps, one.pairs, one.seconds, one.trouble) == (0, 3, 6.0, ())
    assert taken(drawn((1, 3, 0, 1)), drawn((2, 4, 1, 3))).overlaps == 1
    assert taken(drawn((1, 3, 0, 1)), drawn((2, 4, 1, 0))).overlaps == 2
    assert one.waits.longest == 0.5e6


def test_pairs_that_were_never_held_are_missing_unless_they_deadlocked():
    one = taken(drawn((1, 3, 0, 1)), expected=2)
    assert one.trouble == ("only 1 pairs were held within 10.02 s",)
    one = taken(drawn((1, 3, 0, 1), timeouts=1), expected=2)
    assert (one.timeouts, one.trouble) == (1, ())


def test_pairs_are_compared_within_a_round():
    def of(contender, number, seconds, trouble=()):
        return pairs.Pass(number, contender, 4, 100, seconds, NO_TIMES, 1, 2, trouble)

    found = [of("nested", number, seconds) for number, seconds in enumerate((1, 10, 2))]
    found += [of("lock_all", number, seconds) for number, seconds in enumerate((0.5, 2, 1))]
    ours, nested = pairs.summarize([*found, of("lock_all", 3, 0.001, ("killed",))])
    assert (ours.contender, ours.rate, ours.slowest, ours.fastest, ours.seconds) == ("lock_all", 100, 50, 200, 1)
    assert (ours.to_nested, nested.to_nested, ours.timeouts, ours.overlaps) == (2, 1, 3, 6)


def test_deadlocks_and_overlaps_are_reported_and_fail(monkeypatch, server):
    def told(one):
        monkeypatch.setattr(lock_all_command, "run", lambda _: iter([one]))
        return invoke(lock_all_command, "--url", server.url)

    sound = taken(drawn((1, 3, 0, 1)))
    assert told(sound)[0] == 0
    for flaw, text in (
        ({"timeouts": 2}, "DEADLOCK: lock_all, round 1: 2 waits timed out"),
        ({"overlaps": 3}, "VIOLATION: lock_all, round 1: 3 times two clients held a lock at once"),
        ({"trouble": ("it hung",)}, "FAILED: lock_all, round 1: it hung"),
    ):
        code, output = told(replace(sound, **flaw))
        assert (code, text in output) == (1, True)


# --- all benchmarks


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
    turned, none = printed(conservation_table(KEPT, "title"), 60)
    assert not none
    assert "…" not in turned
    assert len([line for line in turned.splitlines() if line.strip()]) == len(conservation_table(KEPT, "title").columns)


def test_every_figure_fits_the_tables():
    waits = Times("wait", 1, 99_949.0, 999_999.0, 99_999_999.0)
    console = Console(width=100, file=io.StringIO())
    row = Row("py-redis-semaphore", 10, 123456, 123456, 99999, 123456, 0.5, None, None, 10.01, 10.01, violations=9999)
    console.print(semaphore_table([row], [], "title"))
    most = replace(KEPT, operations=1_000_000, seconds=9999.9, kills=9999, killed_holding=9999, killed_waiting=9999)
    most = replace(most, lost=999, longest_wait=10, samples=999_999, over=999, unaccounted=999, crowded=999)
    console.print(conservation_table(most, "title"))
    console.print(
        rwlock_table([rwlock.RWLockRow("rwlock", 99_999, 99_949, 99_949, 99_999, waits, waits, 99.99)], "title")
    )
    console.print(pairs_table([pairs.PairsRow("lock_all", 999, 99_999, 9999, 9999, waits, 99, 99, 99.99)], "title"))
    text = console.file.getvalue()
    assert "1,000,000" in text
    assert "99.9/1000/100000" in text
    assert "…" not in text


def test_the_contenders_of_a_semaphore_rotate():
    order = list(BenchPlan("url", {ONE: Contention(SEMAPHORES)}, (1,), rounds=2, seconds=1).order())
    assert [case.contender for case in order][:: len(SEMAPHORES)] == list(SEMAPHORES)[:2]
