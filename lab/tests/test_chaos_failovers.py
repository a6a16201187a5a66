"""The trial of failovers by a Sentinel: one, and a planted mistake: clients that stay at the old primary."""

from __future__ import annotations

import pytest

from handfast._drivers.primary_watch import News
from handfast_lab.chaos.trials import failovers
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

pytestmark = pytest.mark.timeout(120)


def figure_of(contender):
    seen = []
    (figure,) = failovers.trial(contender, 1, 1, seen.append)
    assert seen == [1]
    return figure


def test_the_trial_applies_to_us():
    assert [one for one in CONTENDERS.values() if failovers.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_a_failover_leads_to_no_finding(contender):
    figure = figure_of(contender)
    assert (figure.tried, figure.bad) == (1, 0), figure
    assert figure.measured["grants"] > 100


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_clients_that_stay_at_the_old_primary_are_detected(contender, monkeypatch):
    hear = News.is_switch
    monkeypatch.setattr(News, "is_switch", lambda news, frame: hear(news, frame) and False)
    monkeypatch.setattr(failovers, "LATE", (0.3, 0.3))
    figure = figure_of(contender)
    assert figure.measured["holds that overlap"] > 50


def test_workers_that_do_not_end_are_reported(monkeypatch):
    monkeypatch.setattr(failovers, "RETRY_FOR", -failovers.SECONDS)
    figure = figure_of(OURS)
    assert figure.bad > 0
    assert "stuck" in figure.examples[0]
