"""lib/record.lua: Python reads the record of a token as the scripts do, and both sides have the same numbers."""

from __future__ import annotations

import re

import pytest

from handfast._engine import calls
from handfast._engine.records import Record, owner_text, read_record
from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

LIB = (LUA / "lib/record.lua").read_text()

WRITE = f"{LIB} return write_record(unpack(ARGV))"
READ = f"""{LIB}
local record = read_record(ARGV[1])
local function text(number) return string.format('%.0f', number) end
return record and {{
  text(record.weight), text(record.limit), text(record.claim_ms), text(record.wait_until), text(record.fence),
  record.since, record.inbox, record.owner, text(weight_of(ARGV[1])),
}}"""

RECORDS = [
    Record(1, 1, 2000, 0, 1_700_000_000_123_456, 1_700_000_000_123_456, "hf:inbox:a:1", "hf:control:a", "host:42"),
    Record(3, 10**9, 0, 1_700_000_000_123_457, 0, 9, "i", "c", "a label of several words"),
    Record(1, 2, 3, 4, 5, 6, "i", "c", ""),
    Record(1, 2, 3, 4, 5, 6, "i", "c", " two  spaces\nand a line"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_what_lua_writes_python_and_lua_read(raw, record):
    owner = owner_text(record.inbox, record.control, record.label)
    text = raw.execute_command("EVAL", WRITE, 0, *record[:6], owner)
    assert read_record(text.encode()) == record
    *numbers, inbox, owner_read, weight = raw.execute_command("EVAL", READ, 0, text)
    assert tuple(map(int, numbers)) == record[:6]
    assert (inbox, owner_read, int(weight)) == (record.inbox, owner, record.weight)


def test_a_record_that_was_evicted_is_none(raw):
    assert read_record(b"") is None
    assert raw.execute_command("EVAL", READ, 0, "") is None


def test_the_claim_window_is_the_same_for_waiters_of_one_and_of_several_names():
    (window_us,) = re.findall(r"CLAIM_WINDOW_US = (\d+)", load("multi_acquire").source)
    assert int(window_us) == calls.CLAIM_MS * 1000
