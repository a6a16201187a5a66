"""The trials of single calls (lost replies, cancellations):

Handfast passes, and planted faults are detected.
"""

from __future__ import annotations

import pytest

from handfast_lab.chaos.trials import TRIALS, cancellations, load, lost_replies
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted import Lock, planted

OURS_IN_BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda contender: contender.name)


def by_row(figures):
    return {figure.id: figure for figure in figures}


def recorder():
    """A `Progress` that keeps its messages."""
    steps = []
    return steps, steps.append


@OURS_IN_BOTH
def test_handfast_recovers_from_lost_replies(contender):
    steps, progress = recorder()
    figures = lost_replies.trial(contender, 8, 1, progress)
    assert [figure.id for figure in figures] == list(lost_replies.ROWS)
    assert [figure.tried for figure in figures] == [8] * 4
    assert [(figure.bad, figure.examples) for figure in figures] == [(0, ())] * 4
    assert all(figure.measured.get("wrong answers", 0) == 0 for figure in figures)
    assert steps == list(range(1, 33))


def test_wrong_results_after_lost_replies_are_detected():
    figures = by_row(lost_replies.trial(CONTENDERS["redis-py"], 4, 1, lambda _: None))
    assert figures["R4"].bad == 3, "one of four finds the lock held"
    assert figures["R5"].bad == 4
    assert figures["R6"].bad == 4
    assert figures["R6"].measured["longest excess, ms"] > 50_000
    assert "R7" not in figures, "redis-py has no semaphore"


def test_leaked_permits_are_detected():
    figures = by_row(lost_replies.trial(planted(Lock, "semaphore"), 4, 1, lambda _: None))
    assert figures["R7"].bad >= 2
    assert "permits-" in figures["R7"].examples[0]


def test_cancellations_leave_no_state_of_handfast():
    steps, progress = recorder()
    everywhere, random = cancellations.trial(OURS_AIO, 30, 1, progress)
    assert everywhere.bad == random.bad == 0
    assert everywhere.tried > 10
    assert random.tried == 30
    assert steps


@pytest.mark.timeout(300)
def test_every_handfast_operation_is_cancelled():
    everywhere, _ = cancellations.trial(OURS_AIO, 300, 1, lambda _: None)
    assert everywhere.bad == 0
    assert everywhere.tried > 200
    assert len(everywhere.details) == 33


def test_a_lock_left_by_a_cancellation_is_detected():
    tries = (cancellations.trial(CONTENDERS["redis-py (asyncio)"], 50, seed, lambda _: None) for seed in range(1, 6))
    everywhere, random = next(one for one in tries if one[0].bad)  # which awaits there are depends on the load
    assert everywhere.measured["orphans"] >= 1
    assert random.tried == 50


def test_a_leftover_task_and_a_wrong_answer_are_detected(monkeypatch):
    """A client that returns wrong results and leaves a task running."""
    real = cancellations._our_setup

    async def broken(contender, server):
        setup = await real(contender, server)
        checked = []

        async def check(name):
            checked.append(name)
            return "" if len(checked) == 1 else "the answer was 42"

        return setup._replace(check=check)

    monkeypatch.setattr(cancellations, "_our_setup", broken)
    everywhere, _ = cancellations.trial(OURS_AIO, 2, 1, lambda _: None)
    assert everywhere.measured["wrong answers afterwards"] >= 1


def test_each_trial_applies_to_its_contenders():
    assert [cancellations.applies(one) for one in (OURS, OURS_AIO)] == [False, True]


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_has_the_same_interface(name):
    trial = load(name)
    assert trial.COUNT > 0
    assert trial.ROWS
    assert isinstance(trial.applies(OURS), bool)
