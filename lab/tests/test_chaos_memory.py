"""The trial of a server at maxmemory: one round, and planted faults: grants, changed state, and failed releases."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast._engine.script import LuaScript
from handfast_lab.chaos.trials import memory
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO


def figures_of(contender):
    seen = []
    figures = memory.trial(contender, 1, 1, seen.append)
    assert seen == [1]
    return figures


@pytest.fixture
def hasty(monkeypatch):
    """Try one kind of lock only, with short waits for grants that never arrive."""
    monkeypatch.setattr(memory, "WHOLE", {"lock": memory.WHOLE["lock"]})
    monkeypatch.setattr(memory, "RETRY_FOR", 0.3)
    monkeypatch.setattr("handfast._drivers.aio.driver.UNDO_WAIT", 0.01)


def plant(monkeypatch, script, line):
    """Insert this code at the beginning of a script."""
    good = getattr(calls, script)
    monkeypatch.setattr(calls, script, LuaScript(good.name, f"{line}\n{good.source}", good.header))


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if memory.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [pytest.param(OURS, id="sync"), pytest.param(OURS_AIO, id="asyncio")])
def test_a_round_leads_to_no_finding(contender):
    gives, takes = figures_of(contender)
    assert (gives.bad, takes.bad) == (0, 0), gives.examples + takes.examples
    kinds = len(memory.WHOLE)
    assert takes.tried == sum(takes.measured.values()) == 2 * (5 * kinds + len(memory.PARTS))
    assert gives.measured["hand-off"] == 2 * kinds
    assert gives.measured["extend"] == kinds
    assert gives.tried == sum(gives.measured.values())


def test_a_grant_at_maxmemory_is_detected(monkeypatch, hasty):
    plant(monkeypatch, "ACQUIRE", "redis.call('HDEL', KEYS[1], '')")
    _, takes = figures_of(OURS_AIO)
    assert takes.bad > 0
    assert any("the answer was <" in example for example in takes.examples)


def test_a_refusal_that_changes_state_is_detected(monkeypatch, hasty):
    plant(monkeypatch, "ACQUIRE", "redis.call('PEXPIRE', KEYS[1], 100000) redis.call('HDEL', KEYS[1], 's')")
    assert any("it changed" in example for example in figures_of(OURS)[1].examples)


@pytest.mark.parametrize("script", ["RELEASE", "RENEW", "CANCEL"])
def test_a_release_renewal_or_cancel_refused_at_maxmemory_is_detected(monkeypatch, hasty, script):
    plant(monkeypatch, script, "if ARGV[1] ~= '' then redis.call('SET', KEYS[1] .. ':planted', 1, 'PX', 1) end")
    gives, _ = figures_of(OURS_AIO)
    assert gives.bad > 0
    assert any("out of memory" in example or "waits still" in example for example in gives.examples)
