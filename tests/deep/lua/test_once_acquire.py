"""Test once_acquire, once_record and once_cancel: a record answers, and only a run that holds its key records.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import time

from tests.gate.lua import test_once_acquire as gate
from tests.gate.lua.test_once_acquire import RECORDED, state_of

once = gate.once


def test_one_refreshes_and_a_failure_leaves_the_old_value(once):
    once.acquire("a")
    once.record("a")
    time.sleep(0.005)
    assert isinstance(once.acquire("b", refresh_ms=1), int)
    assert state_of(once.acquire("c", refresh_ms=1)) == [b"done", b"done"]
    assert once.record("b", "failed") == RECORDED
    assert state_of(once.acquire("c")) == [b"done", b"done"]


def test_at_maxmemory_an_old_record_is_the_answer(once):
    once.acquire("a")
    once.record("a")
    time.sleep(0.005)
    once.raw.config_set("maxmemory", 1)
    assert state_of(once.acquire("b", refresh_ms=1)) == [b"done", b"done"]
    once.raw.config_set("maxmemory", 0)
    assert isinstance(once.acquire("b", refresh_ms=1), int)
    once.raw.config_set("maxmemory", 1)
    assert state_of(once.acquire("b", refresh_ms=1)) == b"granted"
    assert state_of(once.acquire("c", refresh_ms=1)) == [b"done", b"done"]
    assert once.record("b", value=b"new") == RECORDED
