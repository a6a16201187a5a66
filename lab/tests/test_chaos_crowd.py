"""The trial of crowds: a small one, and planted faults: slow scripts, overtaking, and a queue that exceeds its limit."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast._engine.script import LuaScript
from handfast_lab.bench.crowd import Crowd, ScriptTimes
from handfast_lab.chaos.trials import crowd
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if crowd.applies(one)] == [OURS, OURS_AIO]


def test_threads_fill_the_queue():
    (full,) = crowd.trial(OURS, 10, 1, lambda _: None)
    assert (full.tried, full.bad) == (20, 0), full.examples


def test_a_small_crowd_leads_to_no_finding():
    seen = []
    line, scripts, full = crowd.trial(OURS_AIO, 30, 1, seen.append)
    assert (line.tried, line.bad) == (30, 0), line.examples
    assert line.measured["connections"] == 1
    assert scripts.tried >= 60
    assert scripts.measured["permit_acquire p50, µs"] > 0
    assert (full.tried, full.bad) == (60, 0), full.examples
    assert full.measured["bytes a waiter, in the server"] > 50
    assert seen == [30]


def test_slow_scripts_and_scripts_that_never_ran_are_detected():
    times = [ScriptTimes("fast", 9, 1, 2, 999, 5000), ScriptTimes("slow", 9, 1, 2, 1000, 5000)]
    times.append(ScriptTimes("absent", 0, 0, 0, 0, 0))
    figure = crowd._scripts(OURS_AIO, times, 1, 1)
    assert figure.bad == 2
    assert figure.examples == ("slow: p99.9 of 1000 µs", "absent was never called")


@pytest.mark.parametrize(("order", "bad"), [([0, 2, 1, 3], 1), ([0, 1, 3], 1), ([], 4)])
def test_overtaking_and_missing_waiters_are_detected(order, bad, monkeypatch):
    monkeypatch.setattr(crowd.crowd, "run", lambda *_: (Crowd(1, None, 1.0, order), []))
    assert crowd._crowds(OURS_AIO, 4, 1)[0].bad == bad


def test_a_measurement_on_a_slow_machine_is_repeated(monkeypatch):
    times = iter([1500.0, 1200.0, 900.0])
    line = crowd.Figure("R28", "order", "ours", 1, 0, "inversions")
    monkeypatch.setattr(crowd, "_crowd", lambda *_: (line, [ScriptTimes("a", 9, 1, 2, next(times), 5000)]))
    scripts = crowd._crowds(OURS_AIO, 1, 1)[1]
    assert (scripts.bad, scripts.measured["crowds"], scripts.measured["a p99.9, µs"]) == (0, 3, 900)
    monkeypatch.setattr(crowd, "_crowd", lambda *_: (line, [ScriptTimes("a", 9, 1, 2, 1000, 5000)]))
    assert crowd._crowds(OURS_AIO, 1, 1)[1].bad == 1


def test_a_crowd_that_could_not_be_observed_is_reported(monkeypatch):
    monkeypatch.setattr(crowd.crowd, "run", lambda *_: (None, ["it was killed"]))
    line = crowd._crowd(OURS_AIO, 4, 1)[0]
    assert line.bad == 5
    assert line.examples == ("it was killed", "4 did not acquire")


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_a_queue_without_a_limit_is_detected(contender, monkeypatch):
    source = calls.ACQUIRE.source
    for check in ("length < max_waiters", "length >= max_waiters"):
        assert check in source
        source = source.replace(check, "true" if "<" in check else "false")
    monkeypatch.setattr(calls, "ACQUIRE", LuaScript("permit_acquire", source, calls.ACQUIRE.header))
    monkeypatch.setattr(crowd, "RETRY_FOR", 0.3)
    monkeypatch.setattr(crowd, "BEYOND", 1)
    full = crowd._full(contender, 4, 1)
    assert full.bad > 0
    assert "raised AcquireTimeout" in full.examples[0]
