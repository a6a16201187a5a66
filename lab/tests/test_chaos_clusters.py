"""The trial of clusters: some changes of each kind, and a planted mistake: clients that follow no redirection."""

from __future__ import annotations

import pytest

from handfast_lab.chaos.trials import clusters
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

pytestmark = pytest.mark.timeout(240)


def figure_of(contender, count):
    seen = []
    (figure,) = clusters.trial(contender, count, 1, seen.append)
    assert seen == [*range(1, figure.tried + 1)]
    return figure


@pytest.fixture
def short(monkeypatch):
    """Make the runs as short as one change of each kind allows."""
    monkeypatch.setattr(clusters, "SECONDS", 4.0)


def test_the_trial_applies_to_us():
    assert [one for one in CONTENDERS.values() if clusters.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_names_are_found_while_slots_move_and_primaries_are_replaced(contender):
    figure = figure_of(contender, 2)
    assert figure.bad == 0, figure
    assert figure.tried == 2 * len([kind for kind in clusters.KINDS if kind in figure.measured]) >= 6
    assert figure.measured["grants"] > 500


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_clients_that_follow_no_redirection_are_detected(contender, monkeypatch):
    kinds = {kind: change for kind, change in clusters.KINDS.items() if kind == "slots moved key by key"}
    monkeypatch.setattr(clusters, "KINDS", kinds)
    for module in ("aio.router", "sync.routed", "sync.renewers"):
        monkeypatch.setattr(f"handfast._drivers.{module}.read_redirection", lambda _: None)
    figure = figure_of(contender, 6)
    assert figure.bad > 0
    assert "slots moved key by key" in figure.examples[0]
