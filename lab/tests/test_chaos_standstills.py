"""Histories in which clients, connections or the server stand still: planted mistakes that they must find."""

from __future__ import annotations

import pytest

from handfast._drivers.sync.callbacks import CallbackThread
from handfast_lab.chaos import history_run
from handfast_lab.chaos.history_run import Cell, HistoryRunner

pytestmark = pytest.mark.timeout(300)

UNCONFIRMED = "lab.tests._support.planted_unconfirmed"
"""Imported by the processes of a history, it plants a mistake there."""

SEEDS = 12
"""Histories within which each mistake must be found."""


def first_finding(primitive, api, fault):
    """Run histories until one has a finding, and return it."""
    with HistoryRunner() as runner:
        for seed in range(SEEDS):
            if found := runner.run(Cell(primitive, api, fault), seed).findings:
                return found[0]
    return "nothing"


def test_a_grant_that_is_not_confirmed_is_lost_by_a_client_that_freezes(monkeypatch):
    monkeypatch.setattr(history_run, "PRELOADED", (*history_run.PRELOADED, UNCONFIRMED))
    assert first_finding("lock", "sync", "frozen clients").startswith("kept: ")


def test_callbacks_that_hold_up_renewals_cost_other_leases(monkeypatch):
    monkeypatch.setattr(CallbackThread, "call", lambda _, callback, name: callback())  # noqa: ARG005 -- as the method
    assert first_finding("lock", "sync", "blocking callbacks").startswith(("kept: ", "told: "))  # both are held up
