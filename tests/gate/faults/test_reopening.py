"""A session that another thread opens: who learns of its end, and what stays open."""

from __future__ import annotations

import threading

import pytest
import redis

from handfast._drivers.sync.reopening import Reopening
from tests._support.helpers import BOUND_S, eventually


class Session:
    """Opens when the gate does, or fails then."""

    def __init__(self, gate, error):
        self._gate, self._error = gate, error
        self.is_open, self.thread = False, None

    def open(self, _within):
        self.thread = threading.current_thread()
        assert self._gate.wait(BOUND_S)
        if self._error is not None:
            raise self._error
        self.is_open = True

    def close(self):
        self.is_open = False


@pytest.fixture
def gate():
    return threading.Event()


def reopening(gate, error=None):
    """A session that is closed, with the ones that were made, and the times that its user was told."""
    made, told = [], []

    def make():
        made.append(Session(gate, error))
        return made[-1]

    return Reopening(make, lambda: told.append(1)), made, told


def test_who_gets_it_in_time_is_not_woken(gate):
    gate.set()
    link, made, told = reopening(gate)
    assert link.open(BOUND_S, BOUND_S)
    made[-1].thread.join(BOUND_S)
    assert (link.session, link.session.is_open, told) == (made[-1], True, [])
    assert link.open(BOUND_S, 0)
    assert len(made) == 2, "it is open"


def test_nor_is_who_gets_its_error_in_time(gate):
    """Else it would try again at once, and use a whole processor in an outage."""
    gate.set()
    link, made, told = reopening(gate, redis.ConnectionError("refused"))
    for number in (2, 3):
        with pytest.raises(redis.ConnectionError, match="refused"):
            link.open(BOUND_S, BOUND_S)
        made[-1].thread.join(BOUND_S)
        assert (len(made), told) == (number, [])


@pytest.mark.parametrize("error", [None, redis.ConnectionError("refused")])
def test_who_goes_on_without_it_learns_of_it_once(gate, error):
    link, made, told = reopening(gate, error)
    assert not link.open(BOUND_S, 0)
    assert not link.open(BOUND_S, 0)
    assert len(made) == 2, "one at a time"
    gate.set()
    eventually(lambda: told)
    if error is None:
        assert link.open(BOUND_S, 0)
    else:
        with pytest.raises(redis.ConnectionError, match="refused"):
            link.open(BOUND_S, 0)
    assert told == [1]


def test_one_that_takes_too_long_counts_as_silent_and_goes_on(gate):
    link, made, _ = reopening(gate)
    with pytest.raises(redis.TimeoutError):
        link.open(0, 0)
    gate.set()
    made[-1].thread.join(BOUND_S)
    assert link.open(0, 0)


def test_one_that_is_given_up_does_not_stay_open(gate):
    link, made, told = reopening(gate)
    assert not link.open(BOUND_S, 0)
    link.close()
    gate.set()
    made[-1].thread.join(BOUND_S)
    assert (made[-1].is_open, told) == (False, [])


def test_without_another_thread_it_is_opened_here(gate, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    gate.set()
    link, made, _ = reopening(gate)
    monkeypatch.setattr(threading.Thread, "start", fail)
    assert link.open(BOUND_S, 0)
    assert made[-1].thread is threading.current_thread()
