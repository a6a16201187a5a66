"""The trial of waiters whose connections are cut: a few, and planted mistakes: places that are lost, and stuck waiters."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast_lab.chaos.trials import places
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)


def figure_of(contender, count=3):
    seen = []
    (figure,) = places.trial(contender, count, 1, seen.append)
    assert seen == list(range(1, count + 1))
    assert figure.tried == count * (places.EARLIER + places.LATER)
    return figure


def test_the_trial_applies_to_all():
    assert all(places.applies(one) for one in CONTENDERS.values())


@BOTH
def test_waiters_come_back_to_their_places(contender):
    figure = figure_of(contender)
    assert figure.bad == 0, figure
    assert figure.measured["served while the earlier ones were away, as allowed"] <= 3


@BOTH
def test_waiters_that_come_back_to_the_end_are_detected(contender, monkeypatch):
    good = calls.PermitRequest.acquire
    monkeypatch.setattr(calls.PermitRequest, "acquire", lambda self, token, _=0, **more: good(self, token, **more))
    figure = figure_of(contender)
    assert figure.measured["served before an earlier one"] > 0
    assert "served in the order" in figure.examples[0]


@pytest.mark.slow
def test_the_waiters_of_a_rival_are_served_in_any_order():
    figure = figure_of(CONTENDERS["redis-py"])
    assert figure.measured["waiters that failed"] == 0


def test_stuck_waiters_are_detected(monkeypatch):
    monkeypatch.setattr(places, "RETRY_FOR", 1.0)
    nothing = "return 'released ' .. struct.pack('<d', 0)"
    monkeypatch.setattr(calls, "RELEASE", calls.RELEASE.__class__("permit_release", nothing, calls.RELEASE.header))
    figure = figure_of(OURS_AIO, 1)
    assert figure.measured["waiters that failed"] == places.EARLIER + places.LATER
