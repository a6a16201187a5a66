"""The trial of rate limiters: a few tries, and planted faults: admissions counted twice, a limit that is too high, and others."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from click.testing import CliRunner

from handfast.testing import ServerController
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.report import render
from handfast_lab.chaos.results import Results
from handfast_lab.chaos.trials import limiters
from handfast_lab.commands import torture
from handfast_lab.rivals.limiters import LIMITERS
from lab.tests._support.planted_limiters import Belated, Generous, Silent

OURS = pytest.mark.parametrize(
    "contender", [LIMITERS["handfast"], LIMITERS["handfast (asyncio)"]], ids=lambda one: one.name
)
RIVALS = [one for one in LIMITERS.values() if not one.is_ours]


@pytest.fixture(scope="module")
def server():
    with ServerController() as server:
        yield server


@pytest.fixture
def test_of(server):
    """Return a function that makes the trial's test of a contender."""
    server.admin.flushall()

    def make(contender, kind=limiters.LimiterUser):
        return limiters._Test(contender, server, random.Random(1), 1, lambda: None, kind)

    return make


@OURS
def test_a_short_trial_has_no_finding(contender):
    seen = []
    figures = limiters.trial(contender, 60, 1, seen.append)
    assert seen == list(range(1, len(seen) + 1))
    assert [figure.id for figure in figures] == ["R38", "R39", "R39", "R39", "R40", "R40", "R41"]
    assert [figure.bad for figure in figures] == [0] * 7, figures
    assert figures[0].measured["calls that sent nothing to lose"] == 0
    assert all(figure.tried > 20 for figure in figures[1:4])
    assert (figures[4].tried, figures[5].tried, figures[6].tried) == (5, 5, 1)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("contender", RIVALS, ids=lambda one: one.name)
def test_rivals_are_tried_in_the_same_rows(contender):
    if contender.version is None:
        pytest.skip(f"{contender.distribution} is not installed")
    figures = limiters.trial(contender, 20, 1, lambda _: None)
    assert {figure.id for figure in figures} == {"R38", "R39", *(["R40"] if contender.waits else []), "R41"}
    assert not any("not report" in example for figure in figures for example in figure.examples), figures


# Results


def test_a_trial_has_the_contenders_of_its_kind(tmp_path):
    if LIMITERS["limits"].version is None:
        pytest.skip("limits is not installed")
    words = ["--trial", "limiters", "--trial", "lost_replies", "--rival", "limits", "--count", "4"]
    done = CliRunner().invoke(
        torture.command, [*words, "--results", str(tmp_path), "--report", str(tmp_path / "page.md")]
    )
    assert done.exit_code == 0, done.output
    found = Results(tmp_path).figures()
    assert {(figure["id"], figure["contender"]) for figure in found} == {(r, "limits") for r in ("R38", "R39", "R41")}
    assert "## Rate limiters" in (tmp_path / "page.md").read_text()


def test_rate_limiters_have_a_table_of_their_own_in_the_report(tmp_path):
    results, machine = Results(tmp_path), {"server": "valkey 9", "python": "3.11", "redis": "8.1", "cores": 2}
    machine |= {"date": "2026-11-24T00:00:00", "throttled-py": "3.5.0"}
    for contender, bad in (("handfast", 0), ("throttled-py (GCRA)", 7)):
        figure = Figure("R39", "1 rate", contender, 90, bad, "windows above the limit", {"largest window of 1 s": 11})
        results.add_trial("limiters", "handfast torture", machine, [figure], count=1)
    page = render(results)
    assert "## The rivals" not in page
    _, _, section = page.partition("## Rate limiters\n")
    assert "|  | what | handfast | throttled-py (GCRA) |" in section
    assert "| R39 | 1 rate | 0 / 90 | 7 / 90 |" in section
    assert "throttled-py 3.5.0. A `-` means" in section
    assert "- throttled-py (GCRA), 1 rate: largest window of 1 s 11" in section


# Planted faults


def test_an_admission_that_is_counted_twice_is_detected(test_of):
    ours = LIMITERS["handfast"]

    class Twice:
        def __init__(self, limiter):
            self.limiter = limiter
            self.acquire, self.used = limiter.acquire, limiter.used

        def try_acquire(self, cost=1):
            return self.limiter.try_acquire(cost) and self.limiter.try_acquire(cost)

    def opened(url):
        class Opened:
            def __enter__(self):
                self.inner = ours.open(url)
                make = self.inner.__enter__()
                return lambda name, rates: Twice(make(name, rates))

            def __exit__(self, *error):
                self.inner.__exit__(*error)

        return Opened()

    figure = test_of(replace(ours, open=opened)).lost_replies(4)
    assert figure.bad == 3  # the first call and two of four do not wait
    assert "counted, and no caller knows of it" in figure.examples


def test_a_limit_that_is_too_high_is_detected(test_of):
    figure = test_of(LIMITERS["handfast"], Generous)._windows(limiters.RATES[0], 0.5)
    assert figure.bad > 0
    assert "within 1 s, where 60 are allowed" in figure.examples[0]


def test_processes_that_do_not_answer_are_reported(test_of, monkeypatch):
    monkeypatch.setattr(limiters, "RETRY_FOR_S", 0.1)
    test = test_of(LIMITERS["handfast"], Silent)
    for figure in (test._windows(limiters.RATES[0], 0.1), test.clocks(1), test.killed_waiters(1)[1]):
        assert figure.bad > 0
        assert "reported nothing" in figure.examples[0]


def test_waiters_that_overtake_are_detected(test_of):
    order, idle = test_of(LIMITERS["handfast"], Belated).killed_waiters(1)
    assert order.bad > 0
    assert "admitted in the order" in order.examples[0]
    assert idle.tried == order.tried == limiters.WAITERS - limiters.KILLED


def test_clients_that_follow_their_own_clock_are_detected(test_of):
    figure = test_of(LIMITERS["handfast"], Generous).clocks(1)
    assert figure.bad == 1
    assert "were admitted" in figure.examples[0]
