"""The trial of what does something once: a few tries, and planted faults: late results that count, and several runs."""

from __future__ import annotations

import random

import pytest

from handfast.testing import ServerController
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.once_users import OnceUser
from handfast_lab.chaos.report import render
from handfast_lab.chaos.results import Results
from handfast_lab.chaos.trials import once
from handfast_lab.rivals.once import RUNNERS
from lab.tests._support.planted_once import Hasty, Stubborn

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server():
    with ServerController() as server:
        yield server


@pytest.fixture
def test_of(server, monkeypatch):
    """Return a function that makes the trial's test of Handfast, with few processes."""
    server.admin.flushall()
    monkeypatch.setattr(once, "PROCESSES", 3)

    def make(kind=OnceUser):
        return once._Test(RUNNERS["handfast"], server, random.Random(1), 1, lambda: None, kind)

    return make


@pytest.mark.parametrize("contender", [RUNNERS["handfast"], RUNNERS["handfast (asyncio)"]], ids=lambda one: one.name)
def test_a_short_trial_has_no_finding(contender):
    figures = once.trial(contender, 10, 1, lambda _: None)
    assert [figure.id for figure in figures] == list(once.ROWS)
    assert [figure.bad for figure in figures] == [0] * 4, figures
    killed, stopped, stampede, hot = figures
    assert killed.measured["killed"] > 0
    assert stopped.measured["late results that were refused"] == stopped.tried == 2
    assert stampede.measured["calls of the server for a caller"] <= 3
    assert hot.measured["runs"] <= hot.measured["runs that the time asks for"] + 1


@pytest.mark.parametrize("name", ["dogpile.cache", "cashews"])
def test_rivals_are_tried_in_the_same_rows(name, monkeypatch):
    if RUNNERS[name].version is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(once, "SHARE", 0.0)  # the lock of one of them outlives its process for two minutes
    monkeypatch.setattr(once, "RETRY_FOR_S", 3.0)
    figures = once.trial(RUNNERS[name], 4, 1, lambda _: None)
    assert [figure.id for figure in figures] == list(once.ROWS)[: len(figures)]
    assert [figures[0].bad, figures[1].bad] == [0, 1], "a result that comes late counts, or its caller gets an error"


def test_several_runs_are_detected(test_of):
    figure = test_of(Hasty).killed(2)
    assert figure.bad == 2
    assert "results" in figure.examples[0]
    assert test_of(Hasty).stampedes(1).bad == 1


def test_a_late_result_that_counts_is_detected(test_of):
    assert test_of(Stubborn).stopped(1).bad == 1


def test_the_rivals_have_a_table_of_their_own_in_the_report(tmp_path):
    results, machine = Results(tmp_path), {"server": "valkey 9", "python": "3.11", "redis": "8.1", "cores": 2}
    machine |= {"date": "2026-11-24T00:00:00", "dogpile.cache": "1.5.0"}
    for contender, bad in (("handfast", 0), ("dogpile.cache", 7)):
        figure = Figure("R43", "runners stopped", contender, 90, bad, "keys", {"late results that were refused": 83})
        results.add_trial("once", "handfast torture", machine, [figure], count=1)
    page = render(results)
    assert "## The rivals" not in page
    _, _, section = page.partition("## Once\n")
    assert "| R43 | runners stopped | 0 / 90 | 7 / 90 |" in section
