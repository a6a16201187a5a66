"""The TWICE and LATE lines of the headers of all scripts for locks: copies of a request change nothing.

Those of the other scripts are in the sessions, and in test_names_rank.py, test_names_unrank.py and test_scores_advance.py.
"""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TTL_US, unchanged

TWICE = {
    "acquire granted": lambda names: names.acquire("free"),
    "acquire queued": lambda names: names.acquire("waits"),
    "acquire busy": lambda names: names.acquire("try", wait=0),
    "acquire full": lambda names: names.acquire("try", max_waiters=1),
    "release that knows of copies": lambda names: names.release("holds", copies=True),
    "release of an unknown token": lambda names: names.release("unknown"),
    "release of a waiter": lambda names: names.release("waits"),
    "cancel of a holder": lambda names: names.cancel("holds"),
    "cancel of a waiter": lambda names: names.cancel("waits"),
    "cancel of a stranger": lambda names: names.cancel("unknown"),
    "renew": lambda names: names.renew("holds"),
    "renew lost": lambda names: names.renew("unknown"),
}
"""Calls that can concern several names."""

TWICE_ONE = {
    "acquire above the limit": lambda name: name.resize(1) and name.acquire("large", 2, limit=2),
    "release of a lock that rests": lambda name: name.release("holds", at_least_us=TTL_US // 2),
    "lower": lambda name: name.lower("holds", 1),
    "lower lost": lambda name: name.lower("unknown", 1),
    "resize": lambda name: name.resize(1),
    "resize to no limit": lambda name: name.resize(0),
    "inspect": lambda name: name.inspect(),
}


def twice(names, call):
    reply = call(names)
    with unchanged(names):
        assert call(names) == reply


@pytest.mark.parametrize("call", TWICE)
def test_a_call_of_one_or_two_names_answers_the_same_twice(locks, listening, call):
    listening("waits")
    if call != "acquire granted":
        locks.acquire("holds")
        locks.acquire("waits")
    twice(locks, TWICE[call])


@pytest.mark.parametrize("call", TWICE_ONE)
def test_a_call_of_one_name_answers_the_same_twice(a, listening, call):
    listening("waits")
    a.acquire("holds")
    a.acquire("waits")
    twice(a, TWICE_ONE[call])


def test_a_second_revoke_spares_the_next_holder(a):
    a.acquire("t1")
    assert a.revoke(NOW_US) == ["revoked", 1, 0]
    a.acquire("t2")
    with unchanged(a):
        assert a.revoke(NOW_US) == ["revoked", 0, 0]
    assert a.holders() == ["t2"]


def test_a_late_revoke_of_one_lease_spares_the_next_holder_and_those_beside_it(make):
    engine = make(3)
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
    engine.release("t2")
    engine.acquire("t4")
    with unchanged(engine):
        assert engine.revoke(NOW_US + 1, least_fence=NOW_US + 1) == ["revoked", 0, 0]
    assert sorted(engine.holders()) == ["t1", "t3", "t4"]


@pytest.mark.parametrize(
    ("calls", "reply"),
    [
        (["acquire", "release"], ["released", 0]),
        (["acquire", "cancel"], ["cancelled", 0]),
        (["cancel"], ["cancelled", 0]),
        (["release"], ["lost"]),
        (["release", "release"], ["lost"]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
@pytest.mark.parametrize("held", [False, True])
def test_an_acquire_that_arrives_after_its_end_changes_nothing(locks, clock, calls, reply, held):
    if held:
        locks.engines[0].acquire("holds", ttl=1)
    for call in calls:
        found = getattr(locks, call)("late", **({"copies": True} if call == "release" else {}))
    if not (held and calls[0] == "acquire"):  # it was queued
        assert found == reply
    clock.now_us += TTL_US
    with unchanged(locks):
        assert locks.acquire("late") == ["finished"]
        assert locks.acquire("late", wait=0) == ["finished"]
