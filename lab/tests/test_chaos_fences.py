"""The trial of fences: a few data losses, and a planted fault: fences from a counter, which fall when data is lost."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast._engine.script import LuaScript
from handfast_lab.chaos.trials import fences
from handfast_lab.clocks import find_compiler
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

KINDS = len(fences.KINDS)
FORGETTING = "FLUSHALL", "keys evicted", "restart without data", "failover to a stale replica, and back"

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="a clock can be shifted only with a C compiler")


def figures_of(contender, count):
    figures = fences.trial(contender, count, 1, lambda _: None)
    return {figure.what.removeprefix("fences: "): figure for figure in figures}


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if fences.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [pytest.param(OURS, id="sync"), pytest.param(OURS_AIO, id="asyncio")])
def test_handfast_fences_grow_across_data_loss(contender):
    found = figures_of(contender, 2)
    assert [figure.bad for figure in found.values()] == [0] * len(found)
    assert found["FLUSHALL"].tried == 2 * KINDS
    assert found["keys evicted"].measured["of which left no key"] == 2
    assert found["restart without data"].tried == KINDS
    failover = found["failover to a stale replica, and back"]
    assert failover.tried == 4 * KINDS
    assert failover.measured["stale replicas"] == 2
    for documented in ("clock back 1 h with all data lost", "stale replica, clock 1 min behind"):
        assert found[f"{documented} (documented)"].measured["smaller fences, as documented"] == KINDS


def test_fences_from_a_counter_are_detected_when_they_fall(monkeypatch):
    edits = {
        "math.max(fence + 1, now, min_fence or 0)": "fence + 1",
        "fence < now and now or fence + 1": "fence + 1",
        "min_fence, all_free = {}, now, ": "min_fence, all_free = {}, 0, ",
    }
    for script in ("ACQUIRE", "RELEASE", "MULTI_ACQUIRE"):
        good = getattr(calls, script)
        source = good.source
        for old, new in edits.items():
            source = source.replace(old, new)
        assert sum(old in good.source for old in edits) == 2
        monkeypatch.setattr(calls, script, LuaScript(good.name, source, good.header))
    found = figures_of(OURS, 2)
    for what in FORGETTING:
        assert found[what].bad > 0, what
    assert "came after" in found["FLUSHALL"].examples[0]


def test_a_lock_that_cannot_be_acquired_is_reported(monkeypatch):
    monkeypatch.setattr(fences, "KINDS", {"ownerless": lambda client, name: client.lock(name, ttl=0)})
    found = figures_of(OURS, 1)
    assert all(figure.bad == figure.tried > 0 for figure in found.values())
    assert "ValueError" in found["FLUSHALL"].examples[0]
