"""Certain holds: how they are derived, and that too many of them are detected."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from handfast_lab.checker import check_holds
from handfast_lab.checker.models import MAX_PERMITS
from lab.tests._support.histories import KINDS, Play, asked, gave, lowered, same_lock, set_to, took, took_away

READ, WRITE = {"limit": MAX_PERMITS}, {"limit": MAX_PERMITS, "weight": MAX_PERMITS}


def leases_found(history):
    """Return the excess lease of each finding."""
    return [finding.operations[0].lease for finding in check_holds(history)]


WRONG = {
    "two at once": ([took("A", 0, 1), took("B", 2, 3), gave("A", 4, 5), gave("B", 6, 7)], ["B"]),
    "two at once, the earlier call later": ([took("A", 0, 3), took("B", 1, 2)], ["A"]),
    "by a hair": ([took("A", 0, 1), took("B", 0, 1.9), gave("A", 2, 3)], ["B"]),
    "three at once": ([took("A", 0, 1), took("B", 2, 3), took("C", 2, 4)], ["B", "C"]),
    "of one client": ([took("A", 0, 1, client="c"), took("B", 2, 3, client="c")], ["B"]),
    "by a try_acquire": ([took("A", 0, 1), took("B", 2, 3, kind="try_acquire")], ["B"]),
    "after a release that was lost": ([took("A", 0, 1), gave("A", 3, 4, "lost"), took("B", 1, 2)], ["B"]),
    "a renewed lease": ([took("A", 0, 1, deadline=2), gave("A", 9, 10, deadline=11), took("B", 3, 4)], ["B"]),
    "permits": ([took(lease, 0, 1, limit=3, weight=2) for lease in "AB"], ["B"]),
    "one permit too many": ([took(lease, 0, 1, limit=2) for lease in "ABC"], ["C"]),
    "more than the limit": ([took("A", 0, 1, limit=3, weight=4)], ["A"]),
    "a reader during a write": ([took("A", 0, 1, **WRITE), took("B", 2, 3, **READ)], ["B"]),
    "a writer during a read": ([took("A", 0, 1, **READ), took("B", 2, 3, **WRITE)], ["B"]),
    "a writer after a downgrade": (
        [took("A", 0, 1, **WRITE), lowered("A", 2, 3, 1, limit=MAX_PERMITS), took("B", 4, 5, **WRITE)],
        ["B"],
    ),
    "one name of several": ([took("A", 0, 1, names=("a", "b")), took("B", 2, 3, names=("b", "c"))], ["B"]),
    "both names": ([took("A", 0, 1, names=("a", "b")), took("B", 2, 3, names=("a", "b"))], ["B", "B"]),
    "the later limit": ([took("A", 0, 1, 1, limit=5), took("B", 2, 3, 2, limit=1)], ["B"]),
    "the later limit, known first": ([took("A", 0, 3, 1, limit=5), took("B", 0, 2, 2, limit=1)], ["A"]),
    "a limit that was set": ([set_to(1, 0, 1), took("A", 2, 3, limit=5), took("B", 4, 5, limit=5)], ["B"]),
    "a limit that was set and reset": (
        [set_to(9, 0, 1), set_to(0, 2, 3), took("A", 4, 5), took("B", 6, 7)],
        ["B"],
    ),
    "a limit set after the grant": ([took("A", 0, 1), took("B", 2, 3), set_to(5, 4, 5)], ["B"]),
    "after a revoke": ([took_away(0, 1), took("A", 2, 3), took("B", 4, 5)], ["B"]),
    "a revoke of another name": ([took("A", 0, 1), took_away(2, 3, names=("b",)), took("B", 4, 5)], ["B"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_too_many_certain_holds_are_detected(case):
    history, leases = WRONG[case]
    assert leases_found(history) == leases
    assert len(check_holds(history[::-1])) == len(leases), "the result depends on the order of the record"


RIGHT = {
    "nothing": [],
    "one after the other": same_lock("A", "B", "C"),
    "a release in flight": [took("A", 0, 1), gave("A", 2, 9), took("B", 3, 4)],
    "a release without a reply": [took("A", 0, 1), gave("A", 2, None, "pending"), took("B", 3, 4)],
    "a release that failed": [took("A", 0, 1), gave("A", 2, 3, "failed"), took("B", 4, 5)],
    "an expired lease": [took("A", 0, 1, deadline=2), took("B", 1, 3)],
    "a lease that expired before its reply": [took("A", 0, 5, deadline=4), took("B", 4, 5)],
    "a lease known to be lost": [took("A", 0, 1), gave("A", 9, 10, "lost", deadline=2), took("B", 2, 3)],
    "acquires without a reply": [took("A", 0, 1), asked("B", 2, 3), asked("C", 2, None, "pending")],
    "acquires that timed out": [took("A", 0, 1), asked("B", 2, 3, "timeout")],
    "other names": [took("A", 0, 1), took("B", 2, 3, names=("b",))],
    "enough permits": [took(lease, 0, 1, limit=6, weight=2) for lease in "ABC"],
    "many readers": [took(lease, 0, 1, **READ) for lease in "ABC"],
    "readers after a downgrade": [
        took("A", 0, 1, **WRITE),
        lowered("A", 2, 5, 1, limit=MAX_PERMITS),
        took("B", 2, 3, **READ),
        took("C", 6, 7, **READ),
    ],
    "permits released": [
        took("A", 0, 1, limit=3, weight=3),
        lowered("A", 2, 3, 2, limit=3),
        took("B", 4, 5, limit=3),
        lowered("A", 6, 7, 1, limit=3),
        took("C", 8, 9, limit=3),
    ],
    "a lower without a reply": [
        took("A", 0, 1, limit=3, weight=3),
        lowered("A", 2, None, 1, "pending", limit=3),
        took("B", 3, 4, limit=3, weight=2),
    ],
    "a lower that came too late": [took("A", 0, 1), lowered("A", 2, 3, 1, "lost"), took("B", 4, 5)],
    "the limit of the last": [took("A", 0, 1, 1), took("B", 2, 3, 2, limit=2)],
    "the limit of the last, known first": [took("A", 0, 3, 1), took("B", 0, 2, 2, limit=2)],
    "a limit that was set": [set_to(2, 0, 1), took("A", 2, 3), took("B", 4, 5)],
    "a limit being set": [took("A", 0, 1), set_to(2, 2, 9), took("B", 3, 4)],
    "a limit that may have been set": [set_to(2, 0, 1, "failed"), took("A", 2, 3), took("B", 4, 5)],
    "a limit that shrinks": [took("A", 0, 1, limit=2), took("B", 0, 1, limit=2), set_to(1, 2, 3)],
    "a limit that shrank during the request": [
        took("A", 0, 1, limit=2),
        took("B", 2, 9, limit=2),
        set_to(1, 3, 4),
    ],
    "limits set by two at once": [set_to(2, 0, 5), set_to(1, 1, 4), took("A", 6, 7), took("B", 8, 9)],
    "revoked": [took("A", 0, 1), took_away(2, 3), took("B", 4, 5)],
    "revoked before its reply": [took("A", 0, 5), took_away(2, 3), took("B", 4, 9)],
    "a revoke in flight": [took("A", 0, 1), took_away(2, None, "pending"), took("B", 4, 5)],
    "one name revoked": [took("A", 0, 1, names=("a", "b")), took_away(2, 3), took("B", 4, 5)],
}


@pytest.mark.parametrize("case", RIGHT)
def test_possible_histories_have_no_finding(case):
    assert check_holds(RIGHT[case]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_of_the_model_is_valid_until_a_hold_is_added(kind):
    wrong = 0
    for seed in range(30):
        history = Play(seed, kind, operations=30, troubles=seed % 2, orders=seed % 3 == 0).run()
        assert check_holds(history) == [], seed
        granted = [operation for operation in history if operation.outcome == "granted"]
        if not granted or any(other.kind in ("revoke", "resize") for other in history):
            continue
        # Another lease has all permits at the moment at which the holder learns of its grant.
        lease = random.Random(seed).choice(granted)
        thief = replace(lease, client="thief", lease="thief", fence=lease.fence + 1, weight=lease.limit)
        after = [other for other in history if other.lease == lease.lease and other.kind != lease.kind]
        assert min([lease.deadline, *(other.invoked for other in after)]) > lease.returned, "no certain hold"
        assert check_holds([*history, thief]), seed
        wrong += 1
    assert wrong >= 10


def test_a_finding_names_the_holders():
    (finding,) = check_holds([took("A", 0, 1), took("B", 2, 3, 7)])
    assert str(finding) == (
        "holds: a: 2 of 1 were held at 3.000000: acquire B of client B (2.000000 .. 3.000000: granted with fence 7), "
        "acquire A of client A (0.000000 .. 1.000000: granted)"
    )
    assert [operation.lease for operation in finding.operations] == ["B", "A"]
