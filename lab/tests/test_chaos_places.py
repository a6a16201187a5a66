"""The trial of waiters that are taken out of a queue: a few, and planted mistakes: places that are lost, and stuck waiters."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast_lab.chaos import disturbances
from handfast_lab.chaos.trials import places
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
OTHERS = [kind for kind in disturbances.DISTURBANCES if kind != disturbances.CUT]
EARLIER = "served before an earlier one"


def figure_of(contender, monkeypatch, kind=disturbances.CUT, count=3):
    seen = []
    monkeypatch.setattr(places, "DISTURBANCES", {kind: disturbances.DISTURBANCES[kind]})
    (figure,) = places.trial(contender, count if kind == disturbances.CUT else 5 * count, 1, seen.append)
    without = figure.measured.get("waiters without tickets", 0)
    assert figure.what == kind
    assert figure.tried >= 8 * count
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == count + bool(without) * (1 if kind == disturbances.CUT else count)
    return figure


def test_the_trial_applies_to_all():
    assert all(places.applies(one) for one in CONTENDERS.values())


@BOTH
def test_waiters_come_back_to_their_places(contender, monkeypatch):
    figure = figure_of(contender, monkeypatch)
    assert figure.bad == 0, figure
    assert figure.measured["served while the earlier ones were away, as allowed"] <= 3


@BOTH
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", OTHERS)
def test_waiters_come_back_to_their_places_when_the_server_has_forgotten_them(contender, kind, monkeypatch):
    figure = figure_of(contender, monkeypatch, kind, 2)
    assert (figure.tried, figure.bad) == (16, 0), figure
    assert figure.measured["waiters without tickets"] == 16


@BOTH
def test_waiters_that_come_back_to_the_end_are_detected(contender, monkeypatch):
    good = calls.PermitRequest.acquire
    monkeypatch.setattr(calls.PermitRequest, "acquire", lambda self, token, _=0, **more: good(self, token, **more))
    figure = figure_of(contender, monkeypatch)
    assert figure.measured[EARLIER] > 0
    assert "served in the order" in figure.examples[0]


@BOTH
def test_what_tickets_are_good_for_is_measured(contender, monkeypatch):
    figures = (figure_of(contender, monkeypatch) for _ in range(10))  # newcomers may arrive in the old order by chance
    assert any(figure.measured[f"of these {EARLIER}"] for figure in figures)


def test_the_waiters_of_a_rival_are_served_in_any_order(monkeypatch):
    figure = figure_of(CONTENDERS["redis-py"], monkeypatch)
    assert figure.measured["waiters that failed"] == 0
    assert f"of these {EARLIER}" not in figure.measured


def test_stuck_waiters_are_detected(monkeypatch):
    monkeypatch.setattr(places, "RETRY_FOR", 1.0)
    nothing = "return 'released ' .. struct.pack('<d', 0)"
    monkeypatch.setattr(calls, "RELEASE", calls.RELEASE.__class__("permit_release", nothing, calls.RELEASE.header))
    figure = figure_of(OURS_AIO, monkeypatch, count=1)
    assert figure.measured["waiters that failed"] == disturbances.EARLIER + disturbances.LATER
