"""The trials of forks, leaks, keys without a TTL and late renewals: Handfast passes, and planted faults are detected."""

from __future__ import annotations

import pytest

from handfast_lab.chaos.trials import forks, keys_without_ttl, leaks, renewals
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted import Immortal, Late, Leaky, planted

OURS_IN_BOTH = pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda contender: contender.name)


def only(figures):
    (figure,) = figures
    return figure


# --- forks


@OURS_IN_BOTH
def test_a_forked_child_of_handfast_holds_no_lease(contender):
    figure = only(forks.trial(contender, 8, 1, lambda _: None))
    assert (figure.tried, figure.bad, figure.examples) == (8, 0, ())


def test_a_child_that_releases_its_parents_lock_is_detected():
    figure = only(forks.trial(CONTENDERS["redis-py"], 3, 1, lambda _: None))
    assert figure.bad == 3
    assert figure.measured == {"wrong answers in the child": 3, "lost by the parent": 3, "sent by the child": 3}


def test_requests_of_a_child_are_recognised_by_their_connection():
    from handfast.testing import Command

    report = [
        Command("SET", (b"forked-00001",), 1),
        Command("ECHO", (b"forking",), 2),
        Command("EVALSHA", (b"x", b"forked-00001"), 1),  # the parent renews the lease
        Command("EVALSHA", (b"x", b"forked-00002"), 3),
        Command("SET", (b"child-of-forked-00003",), 3),
        Command("SET", (b"child-of-forked-00004",), 1),  # the child sends a request through its parent's connection
        Command("ECHO", (b"joined",), 2),
        Command("EVALSHA", (b"x", b"forked-00005"), 4),
    ]
    assert forks._sent_by_children(report) == {"forked-00002": 1, "forked-00004": 1}


# --- leaks


@OURS_IN_BOTH
def test_handfast_leaks_nothing(contender):
    figure = only(leaks.trial(contender, 400, 1, lambda _: None))
    assert (figure.bad, figure.examples) == (0, ())
    assert figure.tried >= 300


def test_leaks_are_detected():
    figure = only(leaks.trial(planted(Leaky), 2000, 1, lambda _: None))
    assert figure.measured["more keys"] >= 300
    assert figure.measured["more connections"] >= 3
    assert figure.measured["memory, bytes an operation"] > 1000
    assert figure.bad > 300


# --- keys without a TTL


@OURS_IN_BOTH
def test_every_handfast_key_has_a_ttl(contender):
    figure = only(keys_without_ttl.trial(contender, 200, 1, lambda _: None))
    assert (figure.bad, figure.examples) == (0, ())
    assert figure.tried >= 100
    assert figure.measured["steps"] == 200


def test_a_key_without_a_ttl_is_detected():
    figure = only(keys_without_ttl.trial(planted(Immortal), 40, 1, lambda _: None))
    assert 1 <= figure.bad <= 3


# --- late renewals


@OURS_IN_BOTH
def test_no_handfast_lease_is_renewed_after_its_release(contender):
    figure = only(renewals.trial(contender, 300, 1, lambda _: None))
    assert (figure.tried, figure.bad) == (300, 0)
    assert figure.measured["renewals in all"] > 10


def test_a_late_renewal_is_detected():
    figure = only(renewals.trial(planted(Late, "renewal"), 100, 1, lambda _: None))
    assert figure.bad > 10
