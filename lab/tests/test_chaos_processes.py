"""The trials of processes and of what lasts: forks, leaks, keys without an end, late renewals. None of ours, all planted ones."""

from __future__ import annotations

import os
import time

import pytest

from handfast_lab.chaos.apart import apart
from handfast_lab.chaos.contenders import CONTENDERS, OURS, OURS_AIO
from handfast_lab.chaos.trials import forks, immortals, leaks, renewals
from lab.tests._support.planted import Immortal, Late, Leaky, planted

OURS_IN_BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda contender: contender.name)


def only(figures):
    (figure,) = figures
    return figure


# --- a process of its own


def double(number, tell):
    tell(1)
    return 2 * number


def fail(tell):
    raise ZeroDivisionError("on purpose")


def die(tell):
    print("so long")
    os._exit(3)


def multiply(tell):
    """Fork, and leave the child to itself."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def test_what_is_done_apart_comes_back():
    told = []
    assert apart(double, 21, tell=told.append) == 42
    assert told == [1]


@pytest.mark.slow
def test_what_fails_apart_fails_here():
    with pytest.raises(RuntimeError, match="on purpose"):
        apart(fail, tell=lambda _: None)


@pytest.mark.slow
def test_a_process_that_dies_is_told_of():
    with pytest.raises(RuntimeError, match=r"ended with 3.*"):
        apart(die, tell=lambda _: None)


@pytest.mark.slow
def test_whatever_was_forked_ends_with_it():
    child = apart(multiply, tell=lambda _: None)
    until = time.monotonic() + 10
    while is_there(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_there(child)


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


# --- forks


@pytest.mark.slow
@OURS_IN_BOTH
def test_a_child_of_ours_has_nothing(contender):
    figure = only(forks.trial(contender, 8, 1, lambda _: None))
    assert (figure.tried, figure.bad, figure.examples) == (8, 0, ())


@pytest.mark.slow
def test_a_child_that_gives_up_its_parents_lock_is_seen():
    figure = only(forks.trial(CONTENDERS["redis-py"], 3, 1, lambda _: None))
    assert figure.bad == 3
    assert figure.measured == {"misled in the child": 3, "lost by the parent": 3, "sent by the child": 3}


def test_what_a_child_says_is_known_by_its_connection():
    from handfast.testing import Command

    said = [
        Command("SET", (b"forked-00001",), 1),
        Command("ECHO", (b"forking",), 2),
        Command("EVALSHA", (b"x", b"forked-00001"), 1),  # its parent renews it
        Command("EVALSHA", (b"x", b"forked-00002"), 3),
        Command("SET", (b"child-of-forked-00003",), 3),
        Command("SET", (b"child-of-forked-00004",), 1),  # a child speaks through its parent's connection
        Command("ECHO", (b"joined",), 2),
        Command("EVALSHA", (b"x", b"forked-00005"), 4),
    ]
    assert forks._overheard(said) == {"forked-00002": 1, "forked-00004": 1}


# --- leaks


@pytest.mark.slow
@OURS_IN_BOTH
def test_nothing_of_ours_leaks(contender):
    figure = only(leaks.trial(contender, 400, 1, lambda _: None))
    assert (figure.bad, figure.examples) == (0, ())
    assert figure.tried >= 300


@pytest.mark.slow
def test_what_leaks_is_seen():
    figure = only(leaks.trial(planted(Leaky), 2000, 1, lambda _: None))
    assert figure.measured["more keys"] >= 300
    assert figure.measured["more connections"] >= 3
    assert figure.measured["memory, bytes an operation"] > 1000
    assert figure.bad > 300


# --- keys without an end


@OURS_IN_BOTH
def test_every_key_of_ours_has_an_end(contender):
    figure = only(immortals.trial(contender, 200, 1, lambda _: None))
    assert (figure.bad, figure.examples) == (0, ())
    assert figure.tried >= 100
    assert figure.measured["steps"] == 200


def test_a_key_without_an_end_is_seen():
    figure = only(immortals.trial(planted(Immortal), 40, 1, lambda _: None))
    assert 1 <= figure.bad <= 3


# --- late renewals


@pytest.mark.slow
@OURS_IN_BOTH
def test_nothing_of_ours_is_renewed_after_its_release(contender):
    figure = only(renewals.trial(contender, 300, 1, lambda _: None))
    assert (figure.tried, figure.bad) == (300, 0)
    assert figure.measured["renewals in all"] > 10


@pytest.mark.slow
def test_a_late_renewal_is_seen():
    figure = only(renewals.trial(planted(Late, "renewal"), 100, 1, lambda _: None))
    assert figure.bad > 10
