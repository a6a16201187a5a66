"""The trial of short jobs that run once: a few, and planted mistakes: a lock that is free at once, or kept for another time."""

from __future__ import annotations

import pytest

from handfast._engine import calls
from handfast_lab.chaos.trials import periods
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO

BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)


def figure_of(contender, count=24):
    seen = []
    (figure,) = periods.trial(contender, count, 1, seen.append)
    assert seen == list(range(1, count + 1))
    assert figure.tried == 2 * count
    return figure


def test_the_trial_applies_to_handfast():
    assert [one for one in CONTENDERS.values() if periods.applies(one)] == [OURS, OURS_AIO]


@BOTH
def test_each_job_runs_once(contender):
    figure = figure_of(contender)
    assert figure.bad == 0, figure


@pytest.mark.parametrize(
    ("good", "bad", "found"),
    [
        ("local rests = at_least_us > 0", "local rests = at_least_us < 0", "ran 3 times"),
        ("now) + at_least_us", "now) + 2 * at_least_us", "stays taken for"),
    ],
)
def test_a_lock_that_is_kept_for_another_time_is_detected(monkeypatch, good, bad, found):
    source = calls.RELEASE.source.replace(good, bad)
    assert source != calls.RELEASE.source
    monkeypatch.setattr(calls, "RELEASE", calls.RELEASE.__class__("permit_release", source, calls.RELEASE.header))
    figure = figure_of(OURS, 4)
    assert figure.bad >= 4
    assert found in figure.examples[0]
