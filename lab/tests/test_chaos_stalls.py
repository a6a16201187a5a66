"""The trial of stalls: few of them, and that it sees lost updates, leases believed in, places lost, and timeouts overrun."""

from __future__ import annotations

import time

import pytest

from handfast._protocol import acquire
from handfast.testing import ProcessFailed
from handfast.testing.clock import find_compiler
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import stalls
from handfast_lab.chaos.writers import FENCED, PLAIN, Writer, counts_of
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted_writers import Believing, Lawless, Silenced

BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="a clock can be shifted only with a C compiler")


@pytest.fixture
def chance():
    return stalls.random.Random(1)


def ignore():
    pass


def test_it_is_about_ours_alone():
    assert [one for one in CONTENDERS.values() if stalls.applies(one)] == [OURS, OURS_AIO]


@pytest.mark.slow
@needs_compiler
@BOTH
def test_a_few_stalls_of_ours(contender, monkeypatch):
    monkeypatch.setattr(stalls, "LIVES", 1)
    seen = []
    figures = stalls.trial(contender, 4, 1, seen.append)
    rows = [figure.id for figure in figures]
    assert rows == ["R10", "R11", "R14"] + ["R31"] * len(stalls.LINKS)
    updates, wakings, patience, *deadlines = figures
    for figure in (updates, wakings, patience):
        assert figure.bad == 0, figure
        assert figure.seed == 1
    assert updates.tried > 10
    assert wakings.tried == 4
    assert patience.measured["waited by the server's clock, s"] >= 60
    assert all(figure.tried == 1 for figure in deadlines), "what they took is not judged here"
    assert seen == sorted(seen)


# --- R10 and R11


@BOTH
def test_writers_count_what_they_do(contender, server, raw):
    with LockUsers(server.url, Writer) as users:
        writers = users.new(contender, 2)
        for writer in writers:
            writer.order("write", "counter", 5.0, time.monotonic() + 0.2)
        total = counts_of(writers, 20)
    assert total.fenced == int(raw.get(FENCED)) > 0
    assert total.plain == int(raw.get(PLAIN)) == total.fenced
    assert (total.refused, total.lost, total.errors) == (0, 0, 0)
    raw.delete(PLAIN, FENCED, "hf:fence:" + FENCED, *raw.scan_iter(f"*{FENCED}*"))


@pytest.mark.slow
def test_updates_that_are_lost_are_seen(monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Lawless)
    figure = stalls._updates(OURS, 1, chance, ignore)
    assert figure.bad > 0
    assert "fenced updates were lost" in figure.examples[0]
    assert figure.measured["updates lost without a fence"] > 0


@pytest.mark.slow
def test_writers_that_do_not_answer_are_told_of(monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Silenced)
    monkeypatch.setattr(stalls, "RETRY_FOR", 0.1)
    figure = stalls._updates(OURS, 1, chance, ignore)
    assert figure.bad == 1
    assert "reported nothing" in figure.examples[0]


@pytest.mark.slow
@BOTH
def test_a_lease_that_is_believed_in_is_seen(contender, monkeypatch, chance):
    monkeypatch.setattr(stalls, "Writer", Believing)
    figure = stalls._wakings(contender, 1, chance, ignore)
    assert figure.bad >= stalls.SLEEPERS
    assert "believed in its lease" in figure.examples[0]


# --- R14


@needs_compiler
@pytest.mark.parametrize("contender", [OURS_AIO], ids=lambda one: one.name)
def test_waiters_that_say_nothing_for_too_long_are_seen(contender, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", 600)
    monkeypatch.setattr(acquire, "MAX_POLL_S", 600)
    monkeypatch.setattr(stalls, "RETRY_FOR", 0.2)
    monkeypatch.setattr(stalls, "WAITERS", 2)
    figure = stalls._patience(contender, ignore)
    assert figure.bad > 0
    assert "not all of them have asked again" in figure.examples[0]


# --- R31


def test_who_takes_too_long_or_comes_too_early_is_seen():
    seen = stalls._Overshoots([-0.02, 0.0, 0.05, 0.051], ["got what others held"])
    figure = stalls._overshoot_figure(OURS, "a link", 0.05, seen)
    assert (figure.tried, figure.bad) == (5, 3)
    assert figure.examples == ("got what others held", "51 ms longer than asked", "-20.0 ms too early"[1:])


@BOTH
def test_a_timeout_that_is_overrun_is_seen(contender, monkeypatch, chance):
    good = acquire.cancel

    def slow(attempt):
        time.sleep(0.2)
        return (yield from good(attempt))

    monkeypatch.setattr(acquire, "cancel", slow)
    monkeypatch.setattr(stalls, "LINKS", {"others hold it": stalls.LINKS["others hold it"]})
    (figure,) = stalls._deadlines(contender, 1, chance, ignore)
    assert (figure.tried, figure.bad) == (1, 1)


def test_a_lock_that_others_hold_and_one_gets_is_seen(monkeypatch, chance):
    monkeypatch.setattr(stalls, "LINKS", {"released": (released, 0.0)})
    (figure,) = stalls._deadlines(OURS, 1, chance, ignore)
    assert figure.examples[0] == "got what others held"


def released(scene):
    """A link over which the lock comes free."""
    scene.server.admin.flushall()
    return stalls.contextlib.nullcontext()


def test_a_process_that_dies_is_noted():
    wrong = []
    with stalls._noting(wrong):
        raise ProcessFailed("it is gone")
    assert wrong == ["it is gone"]
