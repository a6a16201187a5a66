"""The trial of lost wake-ups: a few, and planted faults: waiters that retry too late or never, and expired leases."""

from __future__ import annotations

import re

import pytest

from handfast._engine import calls
from handfast._protocol import acquire
from handfast_lab.chaos.trials import wakeups
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO


def figure_of(contender, count=4):
    seen = []
    (figure,) = wakeups.trial(contender, count, 1, seen.append)
    assert seen[-1] == figure.tried - figure.measured["stuck"]
    return figure


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if wakeups.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.parametrize("contender", [pytest.param(OURS, id="sync"), pytest.param(OURS_AIO, id="asyncio")])
def test_a_few_lost_messages_leave_no_waiter_stuck(contender):
    figure = figure_of(contender)
    assert figure.tried == wakeups.WAITERS - 1, "the first waiter received its message"
    assert figure.measured["stuck"] == figure.measured["leases that ended at once"] == 0
    assert figure.measured["messages lost"] >= figure.tried


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_waiters_that_retry_too_late_are_detected(contender, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", 2.5)
    figure = figure_of(contender)
    assert figure.bad > 0
    assert figure.measured["longest from release to hold, s"] > 2


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_waiters_that_never_retry_are_detected(contender, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", 600)
    monkeypatch.setattr(acquire, "MAX_POLL_S", 600)
    monkeypatch.setattr(wakeups, "RETRY_FOR", 1.0)
    figure = figure_of(contender)
    assert figure.measured["stuck"] == figure.bad == wakeups.WAITERS - 1
    assert "AcquireTimeout" in figure.examples[0]


def test_a_lease_that_ends_at_once_is_detected(monkeypatch):
    source = re.sub(r"return 'released .*", "return 'lost '", calls.RELEASE.source)
    assert source.count("return 'lost '") == 5
    monkeypatch.setattr(calls, "RELEASE", calls.RELEASE.__class__("permit_release", source, calls.RELEASE.header))
    figure = figure_of(OURS_AIO)
    assert figure.bad == figure.measured["leases that ended at once"] == wakeups.WAITERS
