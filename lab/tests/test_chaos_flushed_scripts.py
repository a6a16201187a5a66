"""The trial of flushed scripts: a few operations, and planted faults: errors and lost leases."""

from __future__ import annotations

import pytest

from handfast._protocol import lease
from handfast_lab.chaos.trials import flushed_scripts
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO


def figure_of(contender, count):
    seen = []
    (figure,) = flushed_scripts.trial(contender, count, 1, seen.append)
    assert len(seen) == figure.tried >= count
    return figure


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if flushed_scripts.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [pytest.param(OURS, id="sync"), pytest.param(OURS_AIO, id="asyncio")])
def test_a_few_handfast_operations_lead_to_no_finding(contender):
    figure = figure_of(contender, 150)
    assert figure.bad == 0, figure.examples
    assert figure.measured["flushes"] > 0
    assert figure.measured["scripts the server did not know"] > 0
    assert figure.measured["kinds of operations"] > 10


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_errors_are_detected(contender, monkeypatch):
    for api in ("sync", "aio"):
        monkeypatch.setattr(f"handfast._drivers.{api}.session.is_noscript", lambda _: False)
        monkeypatch.setattr(f"handfast._drivers.{api}.driver.UNDO_WAIT", 0.01)
    figure = figure_of(contender, 20)
    assert figure.bad > 0
    assert "ServerRefused" in figure.examples[0]


def test_leases_that_are_not_renewed_are_detected(monkeypatch):
    monkeypatch.setattr(lease, "RENEWALS_PER_TTL", 0.5)
    figure = figure_of(OURS, 500)
    assert any("renewals: the lease was lost" in example for example in figure.examples), figure
