"""The linter finds what its rules are about, on the right line, and nothing else.

Each file of ``lint_cases/`` holds scripts for one rule, parted by lines with a title. ``--! rule`` marks a line with an
error and ``--? rule`` one with a warning; behind the dashes, ``^`` means the line above, ``^^`` the one above that. What is
not marked must not be found.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import handfast
import handfast_lint
from handfast._engine.script import load
from handfast_lint import FIXED, RULES, Finding, check

CASES = Path(__file__).parent / "cases"
SOURCE = Path(handfast.__file__).parent
TITLE = re.compile(r"^-- === (.+)\n", re.MULTILINE)
MARK = re.compile(r"--([!?])(\^*) ([\w -]+)")
SEVERITIES = {"!": "error", "?": "warning"}


def scripts(rule):
    """Titles and sources of a rule's file."""
    _, *parts = TITLE.split((CASES / f"{rule.replace('-', '_')}.lua").read_text())
    return list(zip(parts[::2], parts[1::2], strict=True))


def marked(source):
    """Return the findings that the marks promise: line, severity and rule."""
    return sorted(
        (number - len(back), SEVERITIES[kind], rule)
        for number, line in enumerate(source.split("\n"), 1)
        for kind, back, rules in MARK.findall(line)
        for rule in rules.split()
    )


ALL = [pytest.param(rule, source, id=f"{rule}: {title}") for rule in RULES for title, source in scripts(rule)]


@pytest.mark.parametrize(("rule", "source"), ALL)
def test_check_finds_what_is_marked_and_nothing_else(rule, source):
    found = check(source)
    assert sorted((finding.line, finding.severity, finding.rule) for finding in found) == marked(source), found


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_cases_with_and_without_findings(rule):
    expected = [marked(source) for _, source in scripts(rule)]
    assert any(rule in [one[2] for one in marks] for marks in expected)
    assert any(rule not in [one[2] for one in marks] for marks in expected)


def test_each_rule_has_a_file_of_cases():
    assert {path.stem.replace("_", "-") for path in CASES.glob("*.lua")} == set(RULES)


@pytest.mark.parametrize("name", sorted(path.stem for path in (SOURCE / "_engine/lua").glob("*.lua")))
def test_engine_scripts_have_no_findings(name):
    """Most of their replies are packed: tools/check_scripts.py compares those with the headers."""
    found = check(load(name).source, name=name)
    assert [finding for finding in found if finding.rule != "reply" or "struct.pack" not in load(name).source] == []


OTHERS = [*(SOURCE / "classic/lua").glob("*.lua"), *(Path(__file__).parents[3] / "examples").rglob("*.lua")]


@pytest.mark.parametrize("path", sorted(OTHERS), ids=lambda path: path.stem)
def test_listings_and_examples_have_no_findings(path):
    assert check(path.read_text(), name=path.name) == []


def test_finding_has_a_position_and_a_message():
    (finding,) = check("return redis.call('GET', 'x')", name="get.lua")
    assert finding == Finding(
        "get.lua",
        1,
        26,
        "undeclared-key",
        "error",
        "GET is called on the fixed key 'x': pass it as one of KEYS, because a cluster must know every key before the script runs",
    )
    assert str(finding).startswith("get.lua:1:26: error [undeclared-key] GET is called on the fixed key 'x'")


def test_columns_count_characters():
    (finding,) = check("local a = 'äöü' return redis.call('GET', 'x') .. a")
    assert finding.column == 42


def test_findings_are_sorted_by_line():
    found = check("local b = y\nlocal a = x\nreturn redis.call('KEYS', a .. b)")
    assert [finding.line for finding in found] == [1, 2, 3]


def test_oldest_servers_can_be_passed():
    source = "return redis.call('LMPOP', 1, KEYS[1], 'LEFT')"
    assert [finding.rule for finding in check(source)] == ["too-new"]
    assert check(source, oldest={"redis": (7, 0), "valkey": (8, 0)}) == []
    assert check(source, oldest={"valkey": (7, 2)}) == []
    assert check("-- NEEDS redis 6.2\n" + source, oldest={"redis": (7, 0)})[0].rule == "too-new"


def test_fixed_rules_cannot_be_suppressed():
    for rule in FIXED:
        found = check(f"-- @allow {rule}: because\nreturn 1")
        assert [finding.rule for finding in found] == ["allow"], rule


def test_every_message_says_what_to_do():
    for rule in RULES:
        for _, source in scripts(rule):
            for finding in check(source):
                assert ": " in finding.message, finding
                assert not finding.message.endswith("."), finding


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("return redis.call('GET', ARGV[1])", "GET is called on ARGV[1], which is not a key:"),
        ("return redis.call('DEL', unpack(ARGV))", "DEL is called on one of ARGV, which is not a key:"),
        ("return redis.call('GET', 'a' .. ARGV[1])", "a key that the script builds, 'a' .. ARGV[1]:"),
        ("return redis.call('GET', redis.call('GET', KEYS[1]))", "a key that the script has read:"),
        ("return redis.call('GET', redis.call('LRANGE', KEYS[1], 0, 0)[1])", "a key that the script has read:"),
        ("return redis.call('GET', cjson.decode(ARGV[1]).key)", "a key that the script makes:"),
        ("return redis.call('GET', 5)", "GET is called on 5, which is not one of KEYS:"),
        ("return redis.call('GET', 'a' .. '" + 50 * "b" + "')", "builds, 'a' .. 'bbb"),
        ("return ARGV[1] ~= 5 and 1", "~= with a number is always true: write tonumber(ARGV[1])"),
        ("return ARGV[1] == 5 and 1", "== with a number is never true"),
        ("return redis.call('HEGT', KEYS[1], 'a')", "did you mean HGET?"),
        ("return redis.call('QQQQQQ', KEYS[1], 'a')", "has a command QQQQQQ: check its spelling"),
        ("local names = 1 return name", "there is no variable 'name' here: did you mean 'names'?"),
        ("if KEYS[1] then local a = 1 end return a", "'a' is a local of another block"),
        ("return require('x')", "servers do not provide 'require' to scripts"),
        ("return string.gmach('a', 'b')", "did you mean string.gmatch?"),
        ("-- REPLY a\nreturn {'a', 1}", "the reply 'a' has 1 field here, and the header names no fields: none"),
        ("-- KEYS a\nreturn KEYS[2] .. KEYS[1]", "the header names 1 key: name it there"),
        ("if f(\n", "this '(' is never closed"),
        ("return {a = 1 b = 2}", "';' is missing here"),
        ("return a.", "a value is missing here"),
        ("-- @allow randon: it is\nreturn 1", "there is no rule 'randon' to allow: did you mean 'random'?"),
        ("-- @allow x: it is\nreturn 1", "the rules are header-name, "),
    ],
)
def test_messages_name_the_code_and_the_remedy(source, words):
    assert any(words in finding.message for finding in check(source)), check(source)


def test_linter_imports_only_the_header_of_the_engine_and_the_naming():
    folder = Path(handfast_lint.__file__).parent
    imported = {
        node.module
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("handfast.") and "command" not in path.parts
    }
    assert imported == {"handfast._engine.header", "handfast._naming"}


def test_self_references_and_recursion_end():
    source = """
local list = {}
list[1] = list
local x = 1
for _ = 1, 3 do x = x * 10000000 end
local function walk(node, depth) return depth > 3 and node or walk(node[1], depth + 1) end
return redis.call('GET', walk(list, 0)) .. x
"""
    assert {finding.rule for finding in check(source)} == {"undeclared-key"}


def test_shared_sources_are_followed_once():
    lines = ["local x0, y0 = KEYS[1], KEYS[1]", "local a0 = 1"]
    for place in range(1, 60):
        lines.append(
            f"local x{place}, y{place} = ARGV[1] and x{place - 1} or y{place - 1}, x{place - 1} or y{place - 1}"
        )
        lines.append(f"local a{place} = a{place - 1} + a{place - 1}")
    found = check("\n".join([*lines, "return redis.call('SET', x59, a20 .. a59)"]))
    assert [(finding.rule, finding.column) for finding in found] == [("number-as-text", 38)]


def test_cyclic_assignments_end():
    names = [f"v{place}" for place in range(15)]
    given = [f"{one} = {other}" for one in names for other in names]
    added = [f"{one} = {other} + {one}" for one in names for other in names]
    for lines in (given, added):
        source = "\n".join(
            [f"local {', '.join(names)} = KEYS[1]", *lines, "return redis.call('SET', KEYS[1], v0 .. '')"]
        )
        assert check(source) == []


def test_too_deep_nesting_is_a_warning():
    (finding,) = check("return " + " + ".join(["1"] * 5000))
    assert (finding.rule, finding.severity) == ("syntax", "warning")
