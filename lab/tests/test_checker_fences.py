"""The checker of fences detects fences that do not grow."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from handfast_lab.checker import check_fences
from handfast_lab.checker.models import MAX_PERMITS
from lab.tests._support.histories import KINDS, Play, asked, gave, same_lock, set_to, took

READ, WRITE = {"limit": MAX_PERMITS}, {"limit": MAX_PERMITS, "weight": MAX_PERMITS}
MANY = {"limit": 3}

WRONG = {
    "the same twice": [took("A", 0, 1, 7), took("B", 5, 6, 7)],
    "the same twice, at once": [took("A", 0, 3, 7, **MANY), took("B", 1, 2, 7, **MANY)],
    "smaller": [took("A", 0, 1, 7), gave("A", 2, 3), took("B", 4, 5, 6)],
    "much later": [took("A", 0, 1, 7), *(took(f"B{n}", 10 + n, 10 + n, 8 + n) for n in range(5)), took("C", 20, 21, 5)],
    "of a try_acquire": [took("A", 0, 1, 7), took("B", 4, 5, 6, kind="try_acquire")],
    "after a grant without a release": [took("A", 0, 1, 7), took("B", 200, 201, 6)],
    "of one name of several": [took("A", 0, 1, 7, names=("a", "b")), took("B", 4, 5, 6, names=("b", "c"))],
    "of permits": [took("A", 0, 1, 7, **MANY), took("B", 2, 3, 6, **MANY)],
}
AT_HANDOFF = {
    "of a lock": [took("A", 0, 2, 7), gave("A", 4, 5), took("B", 1, 6, 6)],
    "after an expired lease": [took("A", 0, 2, 7, deadline=4), took("B", 1, 6, 6)],
    "of a writer after a reader": [took("A", 0, 2, 7, **READ), gave("A", 4, 5), took("B", 1, 6, 6, **WRITE)],
    "of a reader after a writer": [took("A", 0, 2, 7, **WRITE), gave("A", 4, 5), took("B", 1, 6, 6, **READ)],
    "of all permits": [took("A", 0, 2, 7, **MANY), gave("A", 4, 5), took("B", 1, 6, 6, weight=3, **MANY)],
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("exclusive", [False, True])
def test_fences_that_do_not_grow_are_reported_once(case, exclusive):
    history = WRONG[case]
    (finding,) = check_fences(history, exclusive=exclusive)
    assert finding.operations[0] is history[-1] or "same" in case
    assert len(check_fences(history[::-1], exclusive=exclusive)) == 1


@pytest.mark.parametrize("case", AT_HANDOFF)
def test_at_a_handoff_the_holds_determine_the_order(case):
    history = AT_HANDOFF[case]
    (finding,) = check_fences(history, exclusive=True)
    assert finding.operations == (history[-1], history[0])
    assert check_fences(history) == [], "this finding requires exclusion"


RIGHT = {
    "nothing": [],
    "one after the other": same_lock("A", "B", "C"),
    "at once": [took("A", 0, 3, 7, **MANY), took("B", 1, 2, 6, **MANY)],
    "with a late reply": [took("A", 0, 9, 6), gave("A", 10, 11), took("B", 0, 12, 7)],
    "of different names": [took("A", 0, 1, 7), took("B", 2, 3, 7, names=("b",)), took("C", 4, 5, 6, names=("b", "c"))][
        :2
    ],
    "without fences": [took("A", 0, 1), took("B", 2, 3)],
    "without a reply": [took("A", 0, 1, 7), asked("B", 2, 3, fence=6)],
    "readers side by side": [took("A", 0, 2, 7, **READ), gave("A", 4, 5), took("B", 1, 6, 6, **READ)],
    "permits side by side": [took("A", 0, 2, 7, **MANY), gave("A", 4, 5), took("B", 1, 6, 6, **MANY)],
    "without a certain hold": [took("A", 0, 2, 7, deadline=2), took("B", 1, 6, 6)],
    "limits that change": [set_to(2, 0, 9), took("A", 0, 2, 7), gave("A", 4, 5), took("B", 1, 6, 6)],
}


@pytest.mark.parametrize("case", RIGHT)
def test_possible_histories_have_no_finding(case):
    assert check_fences(RIGHT[case], exclusive=True) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_of_the_model_is_valid_until_two_fences_are_swapped(kind):
    wrong = 0
    for seed in range(30):
        history = Play(seed, kind, operations=30, troubles=seed % 2, orders=seed % 3 == 0).run()
        assert check_fences(history, exclusive=True) == [], seed
        granted = [operation for operation in history if operation.outcome == "granted"]
        pairs = [
            (one, other)
            for one in granted
            for other in granted
            if one.returned < other.invoked and set(one.names) & set(other.names)
        ]
        if pairs:
            one, other = random.Random(seed).choice(pairs)
            fences = {one.lease: other.fence, other.lease: one.fence}
            mixed = [
                replace(operation, fence=fences.get(operation.lease, operation.fence))
                if operation in granted
                else operation
                for operation in history
            ]
            assert check_fences(mixed), seed
            wrong += 1
    assert wrong >= 20
