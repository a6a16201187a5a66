"""The trial of stalls: a few, and planted faults: lost updates, unnoticed losses, missing polls and overrun timeouts."""

from __future__ import annotations

import time

import pytest

from handfast import AcquireTimeout
from handfast._protocol import acquire
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import stalls
from handfast_lab.chaos.writers import FENCED, PLAIN, Task, Writer, write
from handfast_lab.children import ProcessFailed
from handfast_lab.clocks import find_compiler
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted_writers import Believing, Lawless, Silenced

BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="a clock can be shifted only with a C compiler")


@pytest.fixture
def chance():
    return stalls.random.Random(1)


def ignore():
    pass


def test_the_trial_applies_to_handfast_only():
    assert [one for one in CONTENDERS.values() if stalls.applies(one)] == [OURS, OURS_AIO]


@needs_compiler
@BOTH
def test_a_few_stalls_lead_to_no_finding(contender, monkeypatch):
    monkeypatch.setattr(stalls, "WAIT_LEASES", 1)
    seen = []
    figures = stalls.trial(contender, 4, 1, seen.append)
    rows = [figure.id for figure in figures]
    assert rows == ["R10", "R11", "R14"] + ["R31"] * len(stalls.LINKS)
    updates, resumed, long_waits, *deadlines = figures
    for figure in (updates, resumed, long_waits):
        assert figure.bad == 0, figure
        assert figure.seed == 1
    assert updates.tried > 10
    assert resumed.tried == 4
    assert long_waits.measured["waited by the server's clock, s"] >= 60
    assert all(figure.tried == 1 for figure in deadlines), "their durations are not checked here"
    assert seen == sorted(seen)


# --- R10 and R11


@BOTH
def test_writers_count_their_writes(contender, server, raw):
    with LockUsers(server.url, Writer) as users:
        total = write(users, contender, Task(0.2, 5.0, 20.0))
    assert total.fenced == int(raw.get(FENCED)) > 0
    assert total.plain == int(raw.get(PLAIN)) == total.fenced
    assert (total.refused, total.lost, total.errors) == (0, 0, 0)
    assert (total.fenced_lost, total.plain_lost, total.failures) == (0, 0, [])
    raw.delete(PLAIN, FENCED, "hf:fence:" + FENCED, *raw.scan_iter(f"*{FENCED}*"))


def test_lost_updates_are_detected(monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Lawless)
    figure = stalls._updates(OURS, 1, chance, ignore)
    assert figure.bad > 0
    assert "fenced updates were lost" in figure.examples[0]
    assert figure.measured["updates lost without a fence"] > 0


def test_writers_that_do_not_answer_are_reported(monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Silenced)
    monkeypatch.setattr(stalls, "RETRY_FOR", 0.1)
    figure = stalls._updates(OURS, 1, chance, ignore)
    assert figure.bad == 1
    assert "reported nothing" in figure.examples[0]


@BOTH
def test_a_write_under_an_expired_lease_is_detected(contender, monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Believing)
    figure = stalls._resumed(contender, 1, chance, ignore)
    assert figure.bad >= stalls.FROZEN
    assert "took its expired lease for valid" in figure.examples[0]


# --- R14


@needs_compiler
@pytest.mark.parametrize("contender", [OURS_AIO], ids=lambda one: one.name)
def test_waiters_that_are_silent_for_too_long_are_detected(contender, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", 600)
    monkeypatch.setattr(acquire, "MAX_POLL_S", 600)
    monkeypatch.setattr(stalls, "RETRY_FOR", 0.2)
    monkeypatch.setattr(stalls, "WAITERS", 2)
    figure = stalls._long_waits(contender, ignore)
    assert figure.bad > 0
    assert "not all waiters have polled" in figure.examples[0]


# --- R31


def test_late_and_early_grants_are_detected():
    seen = stalls._Overruns(AcquireTimeout, [-0.02, 0.0, 0.05, 0.051], ["acquired a held lock"])
    figure = stalls._overrun_figure(OURS, "a link", 0.05, seen)
    assert (figure.tried, figure.bad) == (5, 3)
    assert figure.examples == ("acquired a held lock", "51 ms longer than asked", "-20.0 ms too early"[1:])


@BOTH
def test_an_overrun_timeout_is_detected(contender, monkeypatch, chance):
    good = acquire.cancel

    def slow(attempt):
        time.sleep(0.2)
        return (yield from good(attempt))

    monkeypatch.setattr(acquire, "cancel", slow)
    monkeypatch.setattr(stalls, "LINKS", {"held by others": stalls.LINKS["held by others"]})
    (figure,) = stalls._deadlines(contender, 1, chance, ignore)
    assert (figure.tried, figure.bad) == (1, 1)


def test_a_grant_of_a_held_lock_is_detected(monkeypatch, chance):
    monkeypatch.setattr(stalls, "LINKS", {"released": (released, 0.0, AcquireTimeout)})
    (figure,) = stalls._deadlines(OURS, 1, chance, ignore)
    assert figure.examples[0] == "acquired a held lock"


def released(setup):
    """Return a link on which the lock is free."""
    setup.server.admin.flushall()
    return stalls.contextlib.nullcontext()


def test_the_death_of_a_process_is_recorded():
    wrong = []
    with stalls._recording_failures(wrong):
        raise ProcessFailed("it is gone")
    assert wrong == ["it is gone"]
