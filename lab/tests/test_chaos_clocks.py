"""The trial of clocks: a few jumps, and planted faults: lost updates and a lease of a dead process that never ends."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast._engine.script import LuaScript
from handfast_lab.chaos.trials import clocks
from handfast_lab.clocks import find_compiler
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted_writers import Lawless, Silenced

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="a clock can be shifted only with a C compiler")


@pytest.fixture
def chance():
    return clocks.random.Random(1)


def ignore():
    pass


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if clocks.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_a_few_clock_jumps_lead_to_no_finding(contender):
    jumps, stretched, wrong_clients = figures = clocks.trial(contender, 4, 1, lambda _: None)
    assert [figure.bad for figure in figures] == [0, 0, 0], figures
    assert [figure.id for figure in figures] == ["R22", "R22", "R23"]
    assert jumps.tried > 10
    assert stretched.tried == 1
    assert stretched.measured["lease of the dead holder, as documented, s"] > 3599
    assert wrong_clients.tried > 10


def test_lost_updates_are_detected(monkeypatch, chance):
    monkeypatch.setattr(clocks, "Writer", Lawless)
    assert clocks._jumps(OURS, 1, chance, ignore).bad > 0


def test_clients_that_behave_differently_are_detected(monkeypatch):
    monkeypatch.setattr(clocks, "Writer", Lawless)
    runs = (clocks._wrong_clients(OURS, 0.2, ignore) for _ in range(20))  # on a busy machine the writers may not meet
    found = next(figure for figure in runs if figure.bad)
    assert "updates lost" in found.examples[0]


def test_writers_that_do_not_answer_are_reported(monkeypatch, chance):
    monkeypatch.setattr(clocks, "Writer", Silenced)
    monkeypatch.setattr(clocks, "RETRY_FOR", 0.1)
    for figure in (clocks._jumps(OURS, 1, chance, ignore), clocks._wrong_clients(OURS, 0.1, ignore)):
        assert figure.bad == 1
        assert "reported nothing" in figure.examples[0]


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_a_lease_of_a_dead_process_that_remains_is_detected(contender, monkeypatch):
    good = calls.REVOKE
    source = f"if ARGV[1] then return {{'revoked', 0, 0, '+inf'}} end\n{good.source}"
    monkeypatch.setattr(calls, "REVOKE", LuaScript(good.name, source, good.header))
    figure = clocks._stretched(contender, 1, ignore)
    assert figure.bad == 1
    assert "after force_release" in figure.examples[0]
