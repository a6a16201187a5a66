"""The trial of holders that compute right after their grants: a few, and planted mistakes: lost leases and overlaps."""

from __future__ import annotations

import pytest

from handfast_lab.chaos.trials import handoffs
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted_handoffs import Unconfirmed

pytestmark = pytest.mark.timeout(120)


def figure_of(contender, count=6):
    seen = []
    (figure,) = handoffs.trial(contender, count, 1, seen.append)
    assert seen == sorted(seen)
    return figure


@pytest.fixture(autouse=True)
def few_locks(monkeypatch):
    monkeypatch.setattr(handoffs, "LOCKS", 2)


def test_the_trial_applies_to_all():
    assert all(handoffs.applies(one) for one in CONTENDERS.values())


@pytest.mark.parametrize("contender", [OURS, OURS_AIO, CONTENDERS["redis-py"]], ids=lambda one: one.name)
def test_a_few_handoffs_lead_to_no_finding(contender):
    figure = figure_of(contender)
    assert (figure.tried, figure.bad) == (6, 0), figure


def test_a_grant_that_is_not_confirmed_is_detected(monkeypatch):
    monkeypatch.setattr(handoffs, "Computing", Unconfirmed)
    figure = figure_of(OURS)
    assert figure.bad > 0  # the renewal thread may save some, if it runs before the holder begins to compute
    assert figure.bad == figure.measured["leases lost"] + figure.measured["overlaps"]


def test_a_process_that_does_not_answer_is_reported(monkeypatch):
    monkeypatch.setattr(handoffs, "RETRY_FOR", -20.0)
    figure = figure_of(OURS, 1)
    assert figure.bad == figure.tried == 1
    assert "reported nothing" in figure.examples[0]
