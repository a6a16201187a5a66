"""The measurements of ownership: spans, what overlaps, and a short run of each."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from handfast_lab.commands.bench import command
from handfast_lab.ownership.spans import Span, doubles, idle, spread


def test_doubles_are_spans_of_one_thing_that_overlap():
    one, two = Span("a", "x", 1, 0.0, 2.0), Span("a", "y", 2, 2.0, 3.0)
    assert doubles([two, one, Span("b", "y", 3, 1.0, 9.0)]) == []
    late = Span("a", "z", 4, 2.5, 2.6)
    assert doubles([two, one, late]) == [(two, late)]
    long = Span("a", "x", 1, 0.0, 9.0)
    assert doubles([long, two, late]) == [(long, two), (long, late)]


def test_idle_is_the_time_to_the_next_span():
    spans = [
        Span("a", "x", 1, 0.0, 2.0),
        Span("a", "y", 2, 3.0, 4.0),
        Span("a", "z", 3, 5.0, 6.0),
        Span("b", "z", 4, 2.5, 6.0),
    ]
    assert idle(spans, 2.0, ["a", "b", "c"]) == [1.0, 0.5]


def test_a_spread_has_quantiles_in_milliseconds():
    assert spread([0.001 * number for number in range(101)]) == {"n": 101, "p50": 50.0, "p99": 99.0, "max": 100.0}
    assert spread([]) == {"n": 0, "p50": None, "p99": None, "max": None}


@pytest.mark.parametrize(
    "arguments",
    [
        ["election", "--names", "6", "--failovers", "3", "--mode", "kill", "--mode", "release", "--only", "handfast"],
        ["election", "--names", "4", "--failovers", "2", "--mode", "freeze", "--mode", "cut", "--only", "handfast"],
        ["partition", "--processes", "3", "--items", "30", "--ttl", "1", "--seconds", "12", "--only", "handfast"],
        ["group", "--processes", "3", "--members", "10", "--ttl", "1", "--seconds", "4", "--every", "2"],
        ["slot", "--joins", "400", "--limit", "8"],
    ],
    ids=" ".join,
)
def test_a_short_run_finds_no_double(arguments, tmp_path):
    file = tmp_path / "found.json"
    done = CliRunner().invoke(command, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    for figures in json.loads(file.read_text())["figures"]:
        assert figures.get("doubles", 0) == figures.get("lost_writes", 0) == 0
        assert figures.get("failovers", 1) > 0


def test_a_loop_around_set_nx_has_doubles_when_its_leader_is_frozen(tmp_path):
    file = tmp_path / "found.json"
    arguments = ["election", "--names", "4", "--failovers", "2", "--mode", "freeze", "--only", "SET NX loop"]
    done = CliRunner().invoke(command, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    (figures,) = json.loads(file.read_text())["figures"]
    assert figures["doubles"] > 0
