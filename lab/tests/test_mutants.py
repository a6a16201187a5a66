"""The mutator of the scripts: the mutants that it generates, and its verdicts on them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from handfast_lab.mutants import __main__ as mutate_scripts
from handfast_lab.mutants import making, running
from handfast_lab.mutants.making import ROOT, Mutant
from handfast_lab.mutants.running import MutationRun, SuiteFails, Verdict, suites
from handfast_lint.parsing import parse

# --- generated mutants

HEADER = "-- KEYS holders queue\n-- ARGV token ttl_ms\nlocal holders, queue = KEYS[1], KEYS[2]\nlocal token = ARGV[1]\n"

MADE = [
    ("comparison", "local x = a < b", ["local x = a <= b"]),
    ("comparison", "local x = a <= b", ["local x = a < b"]),
    ("comparison", "local x = a > b", ["local x = a >= b"]),
    ("comparison", "local x = a >= b", ["local x = a > b"]),
    ("comparison", "local x = a == b", ["local x = a ~= b"]),
    ("comparison", "local x = a ~= b", ["local x = a == b"]),
    ("comparison", "if a == b then c() end", []),
    ("condition", "if a then b() end", ["if true then b() end", "if false then b() end"]),
    ("condition", "if a and b then c() end", ["if false then c() end"]),
    ("condition", "if a or b then c() end", ["if true then c() end"]),
    ("condition", "if a or b then c() elseif d and e then f() end", [
        "if true then c() elseif d and e then f() end",
        "if a or b then c() elseif false then f() end",
    ]),
    ("condition", "while a do b() end", ["while false do b() end"]),
    ("logic", "local x = a and b", ["local x = a", "local x = b"]),
    ("logic", "local x = (a or b) == c", ["local x = (a) == c", "local x = (b) == c"]),
    ("logic", "local x = a and (b)", ["local x = a", "local x = (b)"]),
    ("logic", "local x = not a", ["local x = a"]),
    ("logic", "if not a then b() end", []),
    ("logic", "local x = true", ["local x = false"]),
    ("arithmetic", "local x = a + b", ["local x = a - b"]),
    ("arithmetic", "local x = (a) - (b)", ["local x = (a) + (b)"]),
    ("arithmetic", "local x = a + 1", []),
    ("arithmetic", "local x = a * 3", ["local x = a / 3"]),
    ("arithmetic", "local x = a % 3", ["local x = a * 3"]),
    ("arithmetic", "local x = math.max(a, b)", ["local x = (b)", "local x = (a)"]),
    ("arithmetic", "local x = math.min(a, b, c)", [
        "local x = math.min(b, c)",
        "local x = math.min(a, c)",
        "local x = math.min(a, b)",
    ]),
    ("constant", "local x = 0", ["local x = 1"]),
    ("constant", "local x = 7", ["local x = 6", "local x = 8"]),
    ("constant", "local x = -1", ["local x = 0", "local x = -2"]),
    ("constant", "local x = 60000", ["local x = 0", "local x = 120000"]),
    ("constant", "local x = 1000000", ["local x = 999999", "local x = 1000001"]),
    ("constant", "local x = math.huge", ["local x = 0"]),
    ("constant", "local x = a[1]", ["local x = a[2]"]),
    ("constant", "for k = 2, 9, 1 do a() end", [
        "for k = 1, 9, 1 do a() end",
        "for k = 3, 9, 1 do a() end",
        "for k = 2, 8, 1 do a() end",
        "for k = 2, 10, 1 do a() end",
        "for k = 2, 9, 2 do a() end",
    ]),
    ("constant", "if a == 3 then b() end", []),
    ("text", "return {'held'}", ["return {'other'}"]),
    ("text", "if a then return {'held'} end return {'lost'}", [
        "if a then return {'lost'} end return {'lost'}",
        "if a then return {'held'} end return {'held'}",
    ]),
    ("text", "if a then return 'held ' .. struct.pack('<dd', b, c) end return 'lost '", [
        "if a then return 'lost ' .. struct.pack('<dd', b, c) end return 'lost '",
        "if a then return 'held ' .. struct.pack('<d', b, c) end return 'lost '",
        "if a then return 'held ' .. struct.pack('<dd', b, c) end return 'held '",
    ]),
    ("text", "local x, y = struct.unpack('<dd', a)", ["local x, y = struct.unpack('<d', a)"]),
    ("text", "local x = struct.unpack('<ddBc0', a)", []),
    ("argument", "local x = struct.pack('<dd', a, 1)", ["local x = struct.pack('<dd', 0, 1)"]),
    ("text", "redis.call('ZADD', holders, 'NX', 1, token)", ["redis.call('ZADD', holders, 'XX', 1, token)"]),
    ("text", "local x = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')", [
        "local x = redis.call('ZRANGE', queue, 0, 0)",
    ]),
    ("text", "local x = string.format('%.0f', a)", ["local x = string.format('%.13g', a)"]),
    ("text", "local x = string.match(a, '^%d+')", []),
    ("text", "local x = a == 'over'", ["local x = a == 'x'"]),
    ("text", "local x = a == ''", ["local x = a == 'x'"]),
    ("text", "redis.call('ZREM', holders, '')", []),
    ("command", "redis.call('PEXPIRE', holders, a)", ["redis.call('EXPIRE', holders, a)"]),
    ("command", "redis.call('HSET', a, b, c)", ["redis.call('HSETNX', a, b, c)"]),
    ("command", "redis.call('HSET', a, b, c, d, e)", []),
    ("command", "redis.pcall('PUBLISH', a, 'b')", ["redis.call('PUBLISH', a, 'b')"]),
    ("drop", "redis.call('ZREM', holders, token)", [""]),
    ("drop", "settle()", [""]),
    ("drop", "x, y = a, b", [""]),
    ("drop", "local x = a", []),
    ("drop", "for _ = 1, 9 do break end", ["for _ = 1, 9 do  end"]),
    ("key", "redis.call('ZREM', holders, token)", ["redis.call('ZREM', queue, token)"]),
    ("key", "keep(queue, 1)", ["keep(holders, 1)"]),
    ("key", "redis.call('ZADD', holders, 'XX', 0, ' ')", []),
    ("constant", "redis.call('ZADD', holders, 'XX', 0, ' ')", []),
    ("constant", "redis.call('ZADD', holders, 7, token, '+inf', '')", [
        "redis.call('ZADD', holders, 6, token, '+inf', '')",
        "redis.call('ZADD', holders, 8, token, '+inf', '')",
    ]),
    ("argument", "redis.call('ZREM', holders, token)", ["redis.call('ZREM', holders, 0)"]),
    ("argument", "local x = redis.call('ZSCORE', holders, token)", []),
    ("argument", "keep(holders, a)", ["keep(holders, 0)"]),
    ("argument", "local x = tonumber(a)", ["local x = a"]),
    ("argument", "local x = tonumber(ARGV[1])", []),
    ("answer", "return {'held', a}", ["return {'held', 0}"]),
    ("answer", "return a, b", ["return nil, b", "return a, nil"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "line", "mutants"), MADE)
def test_each_kind_of_mutation_is_generated_from_a_source_line(kind, line, mutants):
    made = [mutant for mutant in making.mutants_of("made_up", HEADER + line) if mutant.kind == kind]
    assert [mutant.text for mutant in made if mutant.text.startswith(HEADER)] == [HEADER + text for text in mutants]


def test_one_key_is_replaced_by_another_where_keys_are_named():
    source = "local a, b = KEYS[1], KEYS[2]\n"
    texts = [mutant.text for mutant in making.mutants_of("made_up", source)]
    assert texts == ["local a, b = KEYS[2], KEYS[2]\n", "local a, b = KEYS[1], KEYS[1]\n"]


@pytest.fixture(scope="module")
def everything():
    return making.make()


def test_every_script_has_mutants_and_every_mutant_is_a_script(everything):
    assert {mutant.script for mutant in everything} == set(making.scripts())
    originals = {name: path.read_text() for name, path in making.scripts().items()}
    for mutant in everything:
        assert mutant.text != originals[mutant.script]
        assert not parse(mutant.text).root.has_error, mutant.name


def test_mutant_names_are_unique_and_stable(everything):
    names = [mutant.name for mutant in everything]
    assert len(set(names)) == len(names)
    assert names == [mutant.name for mutant in making.make()]


def test_mutant_names_survive_edits_elsewhere_in_the_script():
    source = making.scripts()["lib/queue"].read_text()
    names = {mutant.name for mutant in making.mutants_of("lib/queue", source)}
    edited = source.replace("local function leave_", "local function more()\n  return 7\nend\n\nlocal function leave_")
    edited = "-- one more line\n\n" + edited.replace("if added == 0 then", "if added <= 0 then")
    assert edited.count("\n") == source.count("\n") + 6
    gone = names - {mutant.name for mutant in making.mutants_of("lib/queue", edited)}
    assert gone
    assert all("if added == 0 then" in name for name in gone)


def test_a_mutant_is_shown_as_a_patch(everything, capsys):
    name = "permit_renew: if not text or its_end <= now then: its_end <= now -> <"
    assert name in {mutant.name for mutant in everything}
    assert mutate_scripts.main(["--show", name]) == 0
    assert {line for line in capsys.readouterr().out.splitlines() if line[:1] in "+-"} == {
        "--- permit_renew",
        f"+++ {name}",
        "-  if not text or its_end <= now then",
        "+  if not text or its_end < now then",
    }
    assert mutate_scripts.main(["--show", "unknown"]) == 1


def test_mutants_are_selected_by_a_part_of_their_names(capsys):
    assert mutate_scripts.main(["--list", "--only", "permit_renew: return"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names
    assert all(name.startswith("permit_renew: return") for name in names)


# --- justifications and figures


def test_every_justification_names_a_mutant_and_a_reason(everything):
    reasons = mutate_scripts.justified(mutate_scripts.JUSTIFIED.read_text())
    assert mutate_scripts.faults_of([], reasons, {mutant.name for mutant in everything}) == []
    assert all(len(reason) > 20 for reason in reasons.values())


def test_every_survivor_needs_a_reason_and_every_reason_a_survivor():
    reasons = mutate_scripts.justified(
        '[[justified]]\nreason = "no test can tell"\nmutants = ["a", "b", "gone", "slow"]'
    )
    verdicts = [
        Verdict("a", "survived"),
        Verdict("b", "killed", "test_x"),
        Verdict("c", "survived"),
        Verdict("d", "killed", "test_x"),
        Verdict("slow", "timed out", "test_y"),
    ]
    assert mutate_scripts.faults_of(verdicts, reasons, {"a", "b", "c", "d", "slow"}) == [
        "survived: c",
        "justified, but there is no such mutant: gone",
        "justified, but killed by test_x: b",
        "justified, but killed by test_y: slow",
    ]
    assert mutate_scripts.faults_of(verdicts[:1], {"a": "no test can tell"}, {"a", "c"}) == []


def test_no_mutant_is_justified_twice():
    twice = '[[justified]]\nreason = "one"\nmutants = ["a"]\n[[justified]]\nreason = "two"\nmutants = ["a"]'
    with pytest.raises(ValueError, match="justified twice"):
        mutate_scripts.justified(twice)


def test_figures_count_each_mutant_once():
    mutants = [Mutant(name, script, kind, "") for name, script, kind in
               (("a", "x", "drop"), ("b", "x", "key"), ("c", "y", "key"), ("d", "y", "key"))]  # fmt: skip
    verdicts = [
        Verdict("a", "killed", "tests/test_1.py::test", 1.0),
        Verdict("b", "survived", "", 2.0),
        Verdict("c", "survived", "", 4.0),
        Verdict("d", "timed out", "tests/test_2.py::test", 8.0),
    ]
    figures = mutate_scripts.figures_of(mutants, verdicts, {"b": "no test can tell"}, 10.0)
    assert figures["all"] == {
        "mutants": 4,
        "killed": 1,
        "killed by": {"tests/test_1.py": 1},
        "timed out": 1,
        "justified": 1,
        "survived": 1,
        "seconds": 15.0,
    }
    assert [figures["scripts"][name]["mutants"] for name in "xy"] == [2, 2]
    assert figures["justified"] == {"b": "no test can tell"}
    assert figures["survived"] == ["c"]


def test_every_script_has_tests_and_its_tests_exist():
    for name in making.scripts():
        assert all((ROOT / file.partition("::")[0]).is_file() for file in suites(name))
    with pytest.raises(KeyError, match="no tests are known for brand_new"):
        suites("brand_new")


def test_the_folders_of_plain_tests_exist():
    files = {file for name in making.scripts() for file in suites(name)}
    assert all(any(file.startswith(f"tests/gate/{name}") for file in files) for name in running.PLAIN)


# --- test runs


def mutant(script, old, new):
    text = making.scripts()[script].read_text()
    assert old in text
    return Mutant(f"{script}: {old} -> {new}", script, "made up", text.replace(old, new, 1))


@pytest.fixture
def judged(monkeypatch):
    """Return a function that runs some tests on mutants and returns the verdicts."""

    def judge(*mutants, files=("tests/gate/lua/test_names_unrank.py",)):
        monkeypatch.setattr(
            "handfast_lab.mutants.running.SUITES", {"": [file[len("tests/gate/") : -3] for file in files]}
        )
        with MutationRun(1, lambda _: None) as run:
            return [(verdict.outcome, verdict.by) for verdict in run.judge(mutants, lambda _: None)]

    return judge


def test_mistakes_and_hangs_are_killed_and_an_equivalent_mutant_survives(judged):
    (killed, by), (hung, by_hang), *lived = judged(
        mutant("names_unrank", "redis.call('ZREM', ranks, unpack(ARGV))", ""),
        mutant("names_unrank", "return {'unranked'}", "while true do end"),
        mutant("names_unrank", "return {'unranked'}", "return {'unranked'} -- as it was"),
        mutant("permit_renew", "return 'lost '", "return 'found '"),
    )
    assert killed == "killed"
    assert by.startswith("tests/gate/lua/test_names_unrank.py::")
    assert hung == "killed", "a test that hangs fails by itself"
    assert by_hang.startswith("tests/gate/lua/test_names_unrank.py::")
    assert lived == [("survived", "")] * 2, "the last one is of a script that these tests do not run"


def test_a_library_file_is_mutated_in_every_script_that_includes_it(judged):
    outcomes = judged(
        mutant("lib/state", "redis.call('PEXPIRE', state, math.floor((raised - now) / 1000))", ""),
        mutant("lib/clock", "local clock", "local clock, more"),
        files=("tests/gate/lua/test_time_to_live.py",),
    )
    assert [outcome for outcome, _ in outcomes] == ["killed", "survived"]


def test_tests_that_keep_the_original_script_give_no_verdict(judged):
    folder = ROOT / "tests/gate"
    failing = folder / "test_zz_made_up_for_mutants.py"
    failing.write_text(
        "from handfast._engine.script import load\n\nKEPT = [(load('names_unrank').source,)]\n\n\n"
        "def test_kept():\n    assert load('names_unrank').source in KEPT[0]\n"
    )
    try:
        with pytest.raises(SuiteFails, match="test_kept"):
            judged(mutant("names_unrank", "return", "return"), files=(f"tests/gate/{failing.name}",))
    finally:
        failing.unlink()


@pytest.mark.timeout(420)
def test_a_random_sample_of_mutants_has_no_survivor(tmp_path):
    file = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "handfast_lab.mutants",
        "--only",
        "names_",
        "--sample",
        "10",
        "--seed",
        "6",
        "--json",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(file.read_text())["all"]
    assert counts["mutants"] == 10
    assert counts["survived"] == 0
    assert counts["killed"] + counts["timed out"] + counts["justified"] == 10
