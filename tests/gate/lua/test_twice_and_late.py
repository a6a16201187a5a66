"""The TWICE and LATE lines of the headers of all scripts for locks: copies of a request change nothing.

Those of the scripts for data are in test_names_rank.py, test_names_unrank.py and test_scores_advance.py.
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


# --- limiters

LIMIT_TWICE = {
    "admitted": lambda a: a.acquire("new"),
    "admitted before": lambda a: a.acquire("t1", 2),
    "refused": lambda a: a.attempt("try", 5),
    "queued": lambda a: a.acquire("new", 5),
    "queued before": lambda a: a.acquire("waits", 4),
    "full": lambda a: a.acquire("new", 5, max_waiters=1),
    "settled up": lambda a: a.settle("t1", 2, 3),
    "settled down": lambda a: a.settle("t1", 2, 1),
    "given back": lambda a: a.settle("t1", 2, 0),
    "settled with copies": lambda a: a.settle("t1", 2, 3, copies=True),
    "cancelled": lambda a: a.cancel("waits", 4),
    "a stranger cancelled": lambda a: a.cancel("unknown"),
    "a look": lambda a: a.inspect(),
}


@pytest.mark.parametrize("call", LIMIT_TWICE)
@pytest.mark.parametrize("waits", [False, True])
def test_a_call_of_a_limiter_answers_the_same_twice(limits, listening, call, waits):
    a = limits((5, 1000), (6, 5000))
    listening("waits")
    a.attempt("t1", 2)
    if waits or call in ("queued before", "full"):
        a.acquire("waits", 4)
    twice(a, LIMIT_TWICE[call])


def test_a_repeated_answer_has_the_time_of_the_admission(limits, clock):
    a = limits((5, 1000), (6, 5000))
    first = a.attempt("t1")
    for _ in range(3):
        clock.now_us += 700_000
        assert a.attempt("t1")[:2] == first[:2]
    assert a.used(5000) == 1


@pytest.mark.parametrize("copies", [False, True])
def test_a_second_settling_has_no_effect_after_another_one(limits, copies):
    a = limits((9, 1000))
    a.attempt("t1")
    a.settle("t1", 1, 4, copies=copies)
    a.settle("t1", 4, 2, copies=copies)
    with unchanged(a):
        a.settle("t1", 1, 4, copies=copies)


@pytest.mark.parametrize("before", [[], ["attempt"], ["acquire"]])
def test_an_acquire_of_a_limiter_that_arrives_after_its_end_changes_nothing(limits, before):
    a = limits((2, 1000))
    a.attempt("t1", 2 if before == ["acquire"] else 1)
    for call in before:
        getattr(a, call)("late")
    a.cancel("late")
    with unchanged(a):
        assert a.acquire("late") == ["finished"]
        assert a.attempt("late") == ["finished"]
        assert a.acquire("late", ticket=NOW_US) == ["finished"]
    assert a.attempt("other")[0] == ("refused" if before == ["acquire"] else "admitted")


# --- once

ONCE_TWICE = {
    "granted": ("free", lambda one: one.acquire("new")),
    "granted before": ("running", lambda one: one.acquire("runs")),
    "queued": ("running", lambda one: one.acquire("new")),
    "queued before": ("running", lambda one: one.acquire("waits")),
    "busy": ("running", lambda one: one.acquire("new", wait=0)),
    "full": ("running", lambda one: one.acquire("new", max_waiters=1)),
    "found": ("done", lambda one: one.acquire("new")),
    "found by the one that ran": ("done", lambda one: one.acquire("runs")),
    "found by a waiter": ("done", lambda one: one.acquire("waits")),
    "reused": ("done", lambda one: one.acquire("new", fingerprint="other")),
    "old": ("old", lambda one: one.acquire("new", refresh=1)),
    "began": ("running", lambda one: one.end("runs", "begun")),
    "done": ("running", lambda one: one.end("runs", fingerprint="one")),
    "done with copies": ("running", lambda one: one.end("runs", copies=True)),
    "failed": ("running", lambda one: one.end("runs", "failed")),
    "could not be stored": ("running", lambda one: one.end("runs", "unstored")),
    "a late one": ("running", lambda one: one.end("late")),
    "a late one behind a record": ("done", lambda one: one.end("late")),
    "released": ("running", lambda one: one.release("runs", copies=True)),
    "cancelled": ("running", lambda one: one.cancel("runs")),
    "a waiter cancelled": ("running", lambda one: one.cancel("waits")),
}
"""What the key has come to before a call, and the call."""


@pytest.mark.parametrize("call", ONCE_TWICE)
def test_a_call_of_once_answers_the_same_twice(keyed, listening, call):
    listening("waits")
    before, act = ONCE_TWICE[call]
    if before != "free":
        keyed.acquire("runs")
        keyed.acquire("waits")
    if before in ("done", "old"):
        keyed.end("runs", fingerprint="one")
        keyed.age(2000)
    twice(keyed, act)


def test_a_failure_that_has_left_a_result_as_it_is_is_lost_the_second_time(keyed):
    keyed.acquire("t1")
    keyed.end("t1")
    keyed.age(2000)
    keyed.acquire("t2", refresh=1)
    assert keyed.end("t2", "failed") == ["recorded", 0]
    with unchanged(keyed):
        assert keyed.end("t2", "failed") == ["lost"]
    assert keyed.recorded() == ("done", "v")


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("before", ["cancel", "record", "release"])
def test_an_acquire_of_once_that_arrives_after_its_end_changes_nothing(keyed, before, *, forgotten):
    if before == "cancel":
        keyed.cancel("late")
    else:
        keyed.acquire("late")
        assert (keyed.end if before == "record" else keyed.release)("late", copies=True)[1:] == [0]
    keyed.acquire("other")
    if before != "record":
        keyed.end("other")
    if forgotten:
        keyed.client.delete(keyed.key("result"))
    with unchanged(keyed):
        for options in ({}, {"wait": 0}, {"ticket": NOW_US}, {"refresh": 1}, {"fingerprint": "other"}):
            assert keyed.acquire("late", **options) == ["finished"]


@pytest.mark.parametrize("outcome", ["begun", "done", "failed", "unstored"])
@pytest.mark.parametrize("end", ["expired", "cancelled", "revoked", "released"])
def test_a_run_that_was_lost_records_nothing_whether_another_one_runs_or_not(keyed, clock, outcome, end):
    keyed.acquire("late")
    if end == "expired":
        clock.now_us += TTL_US
    elif end == "revoked":
        keyed.revoke(NOW_US)
    else:
        (keyed.cancel if end == "cancelled" else keyed.release)("late")
    assert keyed.end("late", outcome) == ["lost"]  # and gives up what is left of its lease
    with unchanged(keyed):
        assert keyed.end("late", outcome) == ["lost"]
    keyed.acquire("next")
    with unchanged(keyed):
        assert keyed.end("late", outcome) == ["lost"]
    assert keyed.end("next") == ["recorded", 0]
    with unchanged(keyed):
        assert keyed.end("late", outcome) == ["lost"]
