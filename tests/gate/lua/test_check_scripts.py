"""tools/check_scripts.py finds what it says it finds in the scripts, and finds nothing in them now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from handfast._engine import script as registry

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools/check_scripts.py"), run_name="tool")
LUA = TOOL["LUA"]

PLANTED = [
    (
        "permit_lower",
        r"^-- ARGV token weight",
        "-- ARGV weight token",
        "ARGV[1] is 'token' here and 'weight' in the header",
    ),
    (
        "permit_revoke",
        r"^-- ARGV up_to_fence reason",
        "-- ARGV reason up_to_fence",
        "ARGV[1] is 'up_to_fence' here and 'reason' in the header",
    ),
    ("permit_release", r"^-- REPLY lost\n", "", "the header lists no reply 'lost'"),
    ("permit_release", r"^-- REPLY lost", "-- REPLY lost\n-- REPLY gone", "never returns 'gone'"),
    (
        "permit_release",
        r"return 'lost '",
        r"return 'lost ' .. struct.pack('<d', 1)",
        "'lost' has 1 numbers here, and the header names 0",
    ),
    ("permit_renew", r"return 'lost '", "return false", "never returns 'lost'"),
    ("permit_release", r"^-- TWICE", "-- THRICE", "TWICE"),
    ("permit_release", r"^-- LATE", "-- SOON", "LATE"),
    ("permit_release", r"^-- MEMORY", "-- SPACE", "MEMORY"),
    (
        "permit_release",
        r"'ZREM', KEYS\[2\], token",
        "'ZREM', 'x:' .. token, token",
        "ZREM is called on a key that the script builds",
    ),
    ("permit_release", r"'ZREM', KEYS\[2\], token", "'SPOP', KEYS[2]", "SPOP replies at random"),
    ("permit_lower", r"tonumber\(ARGV\[2\]\)", "ARGV[2]", "weight is a string"),
    ("permit_renew", r"tonumber\(ARGV\[2\]\)", "ARGV[2]", "ttl_ms is a string"),
    ("permit_resize", r" \.\. ARGV\[2\]", "", "never uses the argument 'by'"),
    (
        "permit_release",
        r"^-- @include record\n",
        "",
        "uses ['weight_of'], which nothing before it defines",
    ),
    ("permit_inspect", r"^local function list", "local j = cjson\nlocal function list", "does not use cjson"),
    (
        "permit_inspect",
        r"^local function list",
        "math.random()\nlocal function list",
        "math.random returns the same numbers",
    ),
]


def faults_after(name, pattern, replacement):
    text = (LUA / f"{name}.lua").read_text()
    broken, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1, "the fault was not planted"
    whole = registry.LuaScript(name, registry.include_parts(broken), registry.read_header(broken))
    return list(TOOL["faults_of"](whole, broken))


@pytest.mark.parametrize(("name", "pattern", "replacement", "words"), PLANTED)
def test_a_planted_fault_is_found(name, pattern, replacement, words):
    assert any(words in fault for fault in faults_after(name, pattern, replacement))


def test_a_part_that_does_not_give_or_use_what_its_header_says_is_found():
    text = (LUA / "lib/record.lua").read_text()
    assert list(TOOL["part_faults"](text)) == []
    assert list(TOOL["part_faults"](text.replace("-- GIVES", "-- GIVES hold"))) == ["it does not give hold"]
    assert list(TOOL["part_faults"](text.replace("-- USES", "-- USES weight"))) == ["it does not use weight"]
