"""The trial of primaries that are cut off: one, and a planted mistake: clients that do not look how many replicas have it."""

from __future__ import annotations

import time

import pytest

from handfast._engine.calls import Request
from handfast_lab.chaos.trials import cutoffs
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

pytestmark = pytest.mark.timeout(120)


def figure_of(contender, count):
    seen = []
    (figure,) = cutoffs.trial(contender, count, 1, seen.append)
    assert seen == [*range(1, count + 1)]
    return figure


def test_the_trial_applies_to_us():
    assert [one for one in CONTENDERS.values() if cutoffs.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_no_lease_that_a_replica_has_acknowledged_is_lost_with_the_primary(contender, monkeypatch):
    monkeypatch.setattr(cutoffs, "CUT_OFF", (0.3, 0.3))
    figure = figure_of(contender, 3)
    assert (figure.tried, figure.bad) == (3, 0), figure
    assert figure.measured["acknowledged leases"] > 20
    assert figure.measured["other leases lost"] > 20


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_clients_that_do_not_look_how_many_replicas_have_it_are_detected(contender, monkeypatch):
    monkeypatch.setattr(Request, "is_acknowledged", lambda _request, _answer: True)
    monkeypatch.setattr(cutoffs, "CUT_OFF", (0.5, 0.5))
    figure = figure_of(contender, 2)
    assert figure.bad > 0
    assert "its replica does not have acknowledged-" in figure.examples[0]


def test_callers_that_do_not_end_are_reported(monkeypatch):
    acquire = cutoffs._CutOffs._acquire

    async def acquire_and_stay(*args):
        await acquire(*args)
        time.sleep(0.5)  # noqa: ASYNC251 -- in a thread of its own

    monkeypatch.setattr(cutoffs._CutOffs, "_acquire", acquire_and_stay)
    monkeypatch.setattr(cutoffs, "WITHIN", 0.0)
    figure = figure_of(OURS, 1)
    assert figure.bad > 0
    assert "did not end" in figure.examples[0]
