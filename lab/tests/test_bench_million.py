"""``handfast bench names``, ``bench ls`` and ``bench scores`` in small runs. No test depends on a measured figure."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from handfast import Handfast
from handfast_lab.bench import looking, names, scores
from handfast_lab.commands.bench import ls as ls_command
from handfast_lab.commands.bench import names as names_command
from handfast_lab.commands.bench import scores as scores_command


def invoke(command, tmp_path, *args):
    file = tmp_path / "raw.json"
    result = CliRunner().invoke(command, [*args, "--json", str(file)])
    return result.exit_code, result.output, json.loads(file.read_text())


def test_names_are_stored_completed_and_measured_in_both_modes(tmp_path):
    code, output, raw = invoke(names_command.command, tmp_path, "--names", "3000", "--calls", "60")
    assert (code, raw["settings"]) == (0, {"names": 3000, "calls": 60})
    assert [one["mode"] for one in raw["found"]] == ["unranked", "ranked"]
    for one in raw["found"]:
        assert (one["names"], one["trouble"], one["ping"]["calls"]) == (3000, [], 60)
        assert one["bytes"] > 3000 * 4
        every, *lengths = one["completions"]
        assert every["calls"] == sum(length["calls"] for length in lengths) == 60
        assert {length["what"] for length in lengths} >= {"1 letter", "2 letters", "4 letters"}
        assert all(0 < times["p50"] <= times["p99"] <= times["longest"] for times in one["completions"])
    assert "bytes each" in output
    assert max(map(len, output.splitlines())) <= 100


def test_all_names_are_found_among_strangers_in_both_ways(tmp_path):
    options = "--names", "120", "--strangers", "3000", "--rounds", "1"
    code, output, raw = invoke(ls_command.command, tmp_path, *options)
    assert (code, raw["settings"]) == (0, {"names": 120, "strangers": 3000, "rounds": 1})
    ways = [(one["strangers"], one["way"]) for one in raw["looks"]]
    assert ways == [(count, way) for count in (0, 3000) for way in looking.WAYS]
    assert {one["found"] for one in raw["looks"]} == {120}
    alone, _, among, _ = raw["looks"]
    assert among["calls"] >= alone["calls"] + 2, "3,000 keys more take two SCANs more at least"
    assert "server CPU" in output


def test_a_name_that_is_not_found_is_reported_and_fails(monkeypatch, tmp_path):
    missed = looking.Look(0, 0, "blindly", 0, 1.0, 1.0, 1, 0)
    monkeypatch.setattr(ls_command, "measure", lambda *_: iter([missed]))
    code, output, _ = invoke(ls_command.command, tmp_path, "--names", "3", "--strangers", "1", "--rounds", "1")
    assert (code, "WRONG: blindly: 0 names" in output) == (1, True)


def test_names_are_deterministic_and_share_prefixes():
    made = names.make_names(5000)
    assert len(set(made)) == 5000
    assert names.make_names(100) == made[:100]
    assert len({name[:2] for name in made}) < 200
    prefixes = names.make_prefixes(made, 600)
    assert {len(prefix) for prefix in prefixes} == set(names.LENGTHS)
    assert all(any(name.startswith(prefix) for name in made) for prefix in prefixes[:50])


def test_the_expected_completion_sorts_by_score_and_then_by_name():
    ordered = ["jan", "jane", "jeff", "jenny", "jim"]
    assert names.expected(ordered, {}, "j") == ("jan", "jane", "jeff", "jenny", "jim")
    assert names.expected(ordered, {"jenny": 2, "jane": 1, "jim": 9, "jeff": 1}, "je") == ("jenny", "jeff")
    assert names.expected(ordered, {"jenny": 2, "jane": 1, "jeff": 1}, "j")[:3] == ("jenny", "jane", "jeff")


def test_a_wrong_completion_is_reported_and_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(names, "expected", lambda *_: ("a wrong name",))
    code, output, raw = invoke(names_command.command, tmp_path, "--names", "100", "--calls", "6")
    assert (code, "WRONG: ranked: " in output) == (1, True)
    assert all(len(one["trouble"]) == 6 for one in raw["found"])


def test_on_a_given_server_no_keys_remain(server, raw, tmp_path):
    assert invoke(names_command.command, tmp_path, "--url", server.url, "--names", "100", "--calls", "6")[0] == 0
    args = ["--url", server.url, "--members", "100", "--rounds", "1"]
    assert invoke(scores_command.command, tmp_path, *args)[0] == 0
    # Recorded replies expire after some seconds.
    assert [key for key in raw.scan_iter() if ":answer:" not in key] == []


def test_all_contenders_move_scores_in_both_passes(monkeypatch, tmp_path):
    monkeypatch.setattr(scores, "BATCH", 300)
    code, output, raw = invoke(scores_command.command, tmp_path, "--members", "1000", "--rounds", "2")
    assert code == 0
    assert [one["trouble"] for one in raw["passes"]] == [[]] * 12
    assert {(one["contender"], one["name"]) for one in raw["passes"]} == {
        (contender, name) for contender in scores.CONTENDERS for name in scores.PASSES
    }
    assert (
        next(one["contender"] for one in raw["passes"] if one["round"] == 1) == "zadd-batch"
    )  # it is first in the second round
    assert all(row["to_plain"] == 1 for row in raw["rows"] if row["contender"] == "zadd-each")
    assert output.count("handfast") == 2
    assert max(map(len, output.splitlines())) <= 100


def test_missing_or_miscounted_members_are_detected(server, raw):
    data = scores.make_data(50)
    batches = data.passes["new"]
    for name, contender in scores.CONTENDERS.items():
        one = contender(server.url, f"bench-{name}")
        try:
            assert scores._pass(one, 0, name, "new", batches).trouble == ()
            fewer = [dict(list(batches[0].items())[1:])]
            told = scores._pass(one, 0, name, "moved", fewer).trouble
        finally:
            one.clear()
            one.close()
        assert "50" in told[-1]
        if name == "handfast":
            assert "not as (0, 49, 0)" in told[0]


def test_every_member_moves_in_the_second_pass(server, raw):
    data = scores.make_data(500)
    new, moved = ({key: value for batch in data.passes[name] for key, value in batch.items()} for name in scores.PASSES)
    assert len(new) == len(moved) == 500
    assert all(moved[member] > new[member] for member in new)
    with Handfast(server.url) as hf:
        board = hf.scores("bench")
        board.advance(new)
        assert board.advance(moved).moved == 500
        board.clear()


def test_ratios_are_computed_within_a_round_and_omit_failures():
    def one(contender, number, seconds, trouble=()):
        return scores.Pass(number, contender, "new", 100, seconds, trouble)

    rows = scores.summarize(
        [
            *(one("zadd-each", number, seconds) for number, seconds in enumerate((1, 10, 2))),
            *(one("handfast", number, seconds) for number, seconds in enumerate((0.5, 2, 1))),
            one("handfast", 3, 0.001, ("wrong",)),
        ]
    )
    ours = rows[-1]
    assert (ours.contender, ours.rate, ours.slowest, ours.fastest) == ("handfast", 100, 50, 200)
    assert ours.to_plain == pytest.approx(2)
