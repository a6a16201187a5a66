"""The checker of order detects requests that overtake in the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handfast_lab.checker import check_order
from handfast_lab.checker.models import MAX_PERMITS
from lab.tests._support.histories import KINDS, Play, asked, gave, set_to, took

MANY = {"limit": 3}
FIRST = took("H", 0, 1, 1)

WRONG = {
    "of a lock": [FIRST, took("A", 2, 20, 3, queued=3), gave("H", 5, 6), took("B", 4, 8, 2)],
    "by a try_acquire": [FIRST, took("A", 2, 20, 3, queued=3), took("B", 4, 8, 2, kind="try_acquire")],
    "by a smaller weight": [took("A", 0, 9, 2, queued=2, weight=3, **MANY), took("B", 3, 5, 1, **MANY)],
    "by a reader": [
        took("A", 0, 9, 2, queued=2, limit=MAX_PERMITS, weight=MAX_PERMITS),
        took("B", 3, 5, 1, limit=MAX_PERMITS),
    ],
    "of the last of many": [
        *(took(f"A{number}", 0, 5, number + 1, queued=1) for number in range(4)),
        took("A", 0, 20, 9, queued=2),
        took("B", 4, 8, 8),
    ],
    "in one queue of several": [
        took("A", 0, 9, 2, queued=2, names=("a", "b")),
        took("B", 3, 5, 1, names=("b", "c")),
    ],
    "without fences": [took("A", 0, 9, queued=2), gave("A", 10, 11), took("B", 3, 5), gave("B", 6, 7)],
    "while no weight was above the limit": [
        set_to(2, 0, 1),
        took("A", 2, 9, 3, queued=3, weight=2, **MANY),
        took("B", 4, 5, 2, **MANY),
    ],
}


@pytest.mark.parametrize("case", WRONG)
def test_a_request_that_overtakes_is_detected(case):
    (finding,) = check_order(WRONG[case])
    assert [operation.lease for operation in finding.operations] == ["B", "A"]
    assert len(check_order(WRONG[case][::-1])) == 1


def test_all_requests_that_overtake_are_detected():
    overtaking = [took(f"B{number}", 4 + number, 8 + number, 2 + number) for number in range(3)]
    found = check_order([FIRST, took("A", 2, 20, 9, queued=3), *overtaking])
    assert [finding.operations[0] for finding in found] == overtaking
    assert str(found[0]).startswith(
        "order: a: it was granted before a request that was in the queue since 3.000000: acquire B0"
    )


RIGHT = {
    "nothing": [],
    "in order": [FIRST, took("A", 2, 20, 2, queued=3), took("B", 4, 30, 3, queued=5)],
    "called at once": [took("A", 2, 20, 3, queued=5), took("B", 4, 8, 2)],
    "with an unknown time in the queue": [took("A", 2, 20, 3), took("B", 4, 8, 2)],
    "of different names": [took("A", 2, 20, 3, queued=3), took("B", 4, 8, 2, names=("b",))],
    "of a waiter that timed out": [asked("A", 2, 20, "timeout", queued=3), took("B", 4, 8, 2)],
    "of a waiter that died": [asked("A", 2, None, "pending", queued=3), took("B", 4, 8, 2)],
    "by a request that was not granted": [took("A", 2, 20, 3, queued=3), asked("B", 4, 8, "timeout")],
    "without fences": [took("A", 0, 9, queued=2), took("B", 3, 15)],
    "permits without fences": [took("A", 0, 9, queued=2, **MANY), took("B", 3, 5, **MANY)],
    "of a waiter that was refused": [
        took("A", 0, 9, 2, queued=2, weight=3, **MANY),
        set_to(2, 3, 4),
        took("B", 4, 5, 1, **MANY),
        set_to(3, 6, 7),
    ],
    "of a waiter that may have been refused": [
        took("A", 0, 9, 2, queued=2, weight=3, **MANY),
        set_to(2, 1, None, "pending"),
        took("B", 4, 5, 1, **MANY),
    ],
}


@pytest.mark.parametrize("case", RIGHT)
def test_possible_histories_have_no_finding(case):
    assert check_order(RIGHT[case]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_of_the_model_is_valid_until_a_fence_is_delayed(kind):
    wrong = 0
    for seed in range(40):
        history = Play(seed, kind, operations=40, callers=6, troubles=seed % 2, orders=seed % 3 == 0).run()
        assert check_order(history) == [], seed
        resized = any(operation.kind == "resize" for operation in history)
        granted = [operation for operation in history if operation.outcome == "granted"]
        passed = [
            waiter
            for waiter in granted
            if any(
                waiter.queued is not None and waiter.queued < other.invoked and set(waiter.names) & set(other.names)
                for other in granted
            )
        ]
        if passed and not resized:
            late = [replace(operation, fence=10_000) if operation is passed[0] else operation for operation in history]
            assert check_order(late), seed
            wrong += 1
    assert wrong >= 10
