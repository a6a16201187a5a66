"""``handfast bench classic``: its counts and the violations that it reports. No test depends on a measured figure."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from time import monotonic

import pytest
import redis
from click.testing import CliRunner
from rich.console import Console

from handfast_lab.bench.classic import guilds
from handfast_lab.bench.classic.tables import TABLES
from handfast_lab.bench.classic.text import classic_table
from handfast_lab.bench.contenders import HANDFAST
from handfast_lab.bench.figures import FIRST, LUA, Hold, Measurement, Schedule, crowding, summarize
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.workload import MeasuredClient, Scene, repeat
from handfast_lab.commands.bench import benches
from handfast_lab.rivals.listings import WatchCounted

ALL = {(table.name, contender) for table in TABLES.values() for contender in table.workload.contenders}


def start(*args, **options):
    command = [sys.executable, "-c", "from handfast.cli import main; main()", "bench", "classic", *args]
    environment = os.environ | {"COLUMNS": "100"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def measurement(contender=FIRST, *, table="locks", number=0, clients=2, total=10, violations=0, trouble=()):
    return Measurement(
        number, clients, contender, 10.0, total, (total,), 0, None, None, violations, trouble, setting=table
    )


def plan(url, *tables, clients=(1,), rounds=1, seconds=0.05):
    return BenchPlan(url, {table: TABLES[table].workload for table in tables}, clients, rounds, seconds)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Run everything briefly once; return the output and the raw results."""
    folder = tmp_path_factory.mktemp("classic")
    process = start("--seconds", "0.1", "--clients", "1,3", "--json", "raw.json", cwd=folder)
    out, errors = process.communicate(timeout=55)
    assert process.returncode == 0, errors
    return out, json.loads((folder / "raw.json").read_text())


def test_a_small_run_reports_every_contender_of_every_table(measured):
    _, raw = measured
    cases = [(one["setting"], one["contender"], one["clients"]) for one in raw["measurements"]]
    assert sorted(cases) == sorted((*who, clients) for who in ALL for clients in (1, 3))
    for one in raw["measurements"]:
        assert len(one["successes"]) == one["clients"]
        assert one["trouble"] == []
        assert 0 < sum(one["successes"]) <= one["tries"]
        assert (one["violations"] is None) == (one["setting"] == "autocomplete")
    assert {(row["setting"], row["contender"], row["clients"]) for row in raw["rows"]} == set(cases)
    assert raw["machine"].keys() >= {"cpu", "cores", "python", "redis", "server", "handfast", "date"}


def test_only_contenders_that_watch_have_retries(measured):
    _, raw = measured
    retries = Counter()
    for one in raw["measurements"]:
        retries[one["setting"], one["contender"]] += one["retries"]
    assert not any(count for (_, contender), count in retries.items() if contender in {LUA, HANDFAST})


def test_the_retries_of_contenders_that_watch_are_counted(server):
    client = TABLES["autocomplete"].workload.client(Scene(server.url, "bench", FIRST, 1), 0)
    assert isinstance(client._client, WatchCounted)
    client.close()


def test_the_tables_fit_100_columns_and_show_published_figures_per_second(measured):
    out, _ = measured
    assert max(map(len, out.splitlines())) <= 100
    assert "…" not in out
    assert "published, 1 s" in out
    assert re.search(r"classic-first .* 3,136 / 3,136", out)
    for table in TABLES.values():
        assert table.title in out
        assert all(contender in out for contender in table.workload.contenders)


def test_each_round_runs_all_contenders_of_a_case_in_rotating_order():
    both = plan("url", "locks", "autocomplete", clients=(1, 2), rounds=2)
    order = list(both.order())
    assert len(both) == len(order) == len(set(order)) == 2 * 2 * (3 + 3)
    assert [case.round for case in order] == [0] * 12 + [1] * 12
    assert [case.contender for case in order if (case.setting, case.round, case.clients) == ("locks", 0, 1)] == [
        FIRST,
        LUA,
        HANDFAST,
    ]
    assert [case.contender for case in order if (case.setting, case.round, case.clients) == ("locks", 1, 1)] == [
        LUA,
        HANDFAST,
        FIRST,
    ]


def test_ratios_are_computed_within_a_round_and_omit_failures():
    rows = summarize(
        [
            *(measurement(number=number, total=total) for number, total in enumerate((100, 1000, 10))),
            *(measurement(LUA, number=number, total=total) for number, total in enumerate((300, 2000, 50))),
            measurement(LUA, number=3, total=9000, trouble=("a client was killed",)),
            measurement(HANDFAST, number=4, total=7),
        ]
    )
    lua, ours = rows[1:]
    assert (lua.rate, lua.slowest, lua.fastest, lua.rounds, lua.to_first) == (30, 5, 200, 3, 3.0)
    assert (ours.contender, ours.to_first, ours.rate) == (HANDFAST, None, 0.7)


def test_too_many_holders_are_detected():
    three = [Hold(1, 9, 0), Hold(2, 4, 1), Hold(3, 5, 2)]
    assert crowding(three, 3) == 0
    assert crowding(three, 2) == 1
    assert crowding([*three, Hold(4, 6, 3)], 3) == 0  # acquired after a release
    assert crowding([*three, Hold(3.5, 6, 3), Hold(3.6, 6, 4)], 3) == 2
    chain = [Hold(0, 9, 5), Hold(1, 2, 0), Hold(2, 3, 1), Hold(2.5, 2.6, 2)]
    assert crowding(chain) == 3


def invoke(monkeypatch, server, *planted):
    monkeypatch.setattr(benches, "run", lambda _: iter(planted))
    result = CliRunner().invoke(benches.classic, ["--url", server.url])
    return result.exit_code, result.output


def test_a_violation_is_reported_and_fails(monkeypatch, server):
    code, output = invoke(monkeypatch, server, measurement(), measurement(LUA, violations=2))
    told = "VIOLATION: locks, classic-lua, 2 clients, round 1: 2 times two clients held it at once"
    assert (code, told in output) == (1, True)
    planted = measurement(), measurement(LUA, table="autocomplete", trouble=("it hung",))
    code, output = invoke(monkeypatch, server, *planted)
    assert (code, "FAILED: autocomplete, classic-lua, 2 clients, round 1: it hung" in output) == (1, True)


def test_published_totals_are_compared_over_equal_durations(monkeypatch, server):
    planted = [measurement(who, clients=clients) for clients in (1, 10) for who in (FIRST, LUA, HANDFAST)]
    _, output = invoke(monkeypatch, server, *planted)
    assert "published, 10 s" in output
    assert re.search(r"classic-lua .* 96,871 / 33,990", output)
    assert re.search(r"handfast .* -\s*$", output, re.MULTILINE)


def test_every_figure_fits_the_tables():
    most = {"clients": 10, "total": 999_999}
    planted = [
        replace(measurement(who, table=table, number=number, **most), tries=9_999_999, retries=999_999)
        for table, who in ALL
        for number in (0, 1)
    ]
    rows = summarize(planted)
    console = Console(width=100, file=io.StringIO())
    for table in TABLES.values():
        console.print(classic_table(table, rows, "title"))
    text = console.file.getvalue()
    assert "9,999,999" in text
    assert "…" not in text


class Clockwork(MeasuredClient):
    """Succeeds each time, with two tries."""

    def act(self):
        time.sleep(0.01)
        self._tries += 2
        self.succeeded.append(monotonic())


def test_the_last_try_of_an_operation_that_succeeds_too_late_does_not_count(server):
    def tries(seconds):
        def start():
            now = monotonic()
            return Schedule(now, now, now + seconds)

        notes = repeat(Clockwork(redis.Redis.from_url(server.url)), start)
        return notes.tries, len(notes.succeeded)

    assert tries(0.0) == (0, 1)  # the operation that opens connections does not count
    counted, operations = tries(0.1)
    assert counted == 2 * (operations - 1) - 1


def test_the_retries_of_the_measured_period_are_reported(server):
    class Beaten(Clockwork):
        def act(self):
            super().act()
            self._client.retries += 1

    def start():
        now = monotonic()
        return Schedule(now, now, now + 0.1)

    notes = repeat(Beaten(WatchCounted.from_url(server.url)), start)
    assert notes.retries == len(notes.succeeded) - 1 > 0  # the operation that opens connections does not count


def test_a_watch_error_is_counted_and_still_raised(server, raw):
    with WatchCounted.from_url(server.url) as conn:
        for _ in range(2):
            with conn.pipeline() as pipe, pytest.raises(redis.WatchError):
                pipe.watch("bench")
                raw.set("bench", "touched", ex=60)
                pipe.multi()
                pipe.set("bench", "mine", ex=60)
                pipe.execute()
        assert conn.retries == 2
        with conn.pipeline() as pipe:
            assert pipe.set("bench", "mine", ex=60).execute() == [True]
        assert conn.retries == 2


@pytest.mark.parametrize("table", TABLES)
def test_a_measurement_leaves_no_keys(server, raw, table):
    measurements = list(run(plan(server.url, table, clients=(2,))))
    assert [one.trouble for one in measurements] == [()] * len(TABLES[table].workload.contenders)
    # The token records of locks and semaphores expire.
    assert [key for key in raw.scan_iter() if not key.startswith(("{hf:lock:", "{hf:semaphore:"))] == []


def test_ctrl_c_leaves_no_process_or_server(server, raw, tmp_path):
    process = start("--url", server.url, "--clients", "5", "--seconds", "30", "--table", "autocomplete", cwd=tmp_path)
    while not any(raw.type(key) == "zset" for key in raw.scan_iter()):
        time.sleep(0.01)
    process.send_signal(2)
    process.communicate(timeout=20)
    assert process.returncode == 1
    assert list(raw.scan_iter()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_completion_is_detected(server, raw):
    def complete(prefix):
        return [name.encode() for name in guilds.expected(guilds.members(), prefix)[:-1]]

    client = redis.Redis.from_url(server.url)
    with pytest.raises(RuntimeError, match="was completed to"):
        guilds.GuildClient(client, complete, 0)
    guilds.GuildClient(client, complete, 0, whole=False).act()  # sentinels of other clients may displace names
    with pytest.raises(RuntimeError, match="was completed to"):
        guilds.GuildClient(client, lambda _: ["unknown"], 0, whole=False)


def test_a_leftover_sentinel_in_a_guild_is_detected(server, raw):
    scene, table = Scene(server.url, "bench", LUA, 2), TABLES["autocomplete"].workload
    with redis.Redis.from_url(server.url) as conn:
        table.prepare(scene, conn)
        try:
            assert table.inspect(scene, conn) == []
            conn.zadd("members:bench", {"je{0123": 0})
            (told,) = table.inspect(scene, conn)
        finally:
            table.clear(scene, conn)
    assert f"{guilds.MEMBERS + 1} members" in told


def test_the_expected_completion_is_the_first_ten_in_order():
    names = ["a", "aa", "ab", "b", *(f"c{letter}" for letter in "abcdefghijklmn")]
    assert guilds.expected(names, "a") == ["a", "aa", "ab"]
    assert guilds.expected(names, "c") == [f"c{letter}" for letter in "abcdefghij"]
    assert guilds.expected(names, "x") == []
