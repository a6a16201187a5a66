"""The checker reports histories that no order of steps explains, accepts the others, and agrees with a plain search."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from handfast_lab.checker import check_all, check_fences, check_linearizability
from handfast_lab.checker.models import MAX_PERMITS
from lab.tests._support.exhaustive import TooMany, is_explained
from lab.tests._support.histories import KINDS, Play, asked, gave, lowered, same_lock, set_to, took, took_away, tried

READ, WRITE = {"limit": MAX_PERMITS}, {"limit": MAX_PERMITS, "weight": MAX_PERMITS}
MANY = {"limit": 3}
BOTH, OTHER = {"names": ("a", "b")}, {"names": ("b",)}

WRONG = {
    "refused while it was free": [*same_lock("A", "B"), tried("C", 7, 8)],
    "refused as the first operation": [tried("A", 0, 1)],
    "refused while there were permits": [took("A", 0, 1, 1, **MANY), tried("B", 2, 3, weight=2, **MANY)],
    "refused after a release": [took("A", 0, 1, 1), gave("A", 2, 3), tried("B", 4, 5)],
    "refused because of a reader": [took("A", 0, 1, 1, **READ), tried("B", 2, 3, **READ)],
    "refused after another timed out": [asked("A", 0, 1, "timeout"), tried("B", 2, 3)],
    "refused after another was refused": [tried("A", 0, 1), tried("B", 0, 1)],
    "refused for another name": [took("A", 0, 1, 1), tried("B", 2, 3, **OTHER)],
    "refused twice because of a lease that was gone": [
        asked("A", 0, 1),
        tried("B", 2, 3),
        took("C", 4, 5, 1),
        gave("C", 6, 7),
        tried("D", 8, 9),
    ],
    "refused because of a limit that was not set": [set_to(2, 0, 1), took("A", 2, 3, 1), tried("B", 4, 5)],
    "two at once": [took("A", 0, 1, 1), took("B", 2, 3, 2)],
    "two at once, without fences": [took("A", 0, 1), took("B", 2, 3)],
    "two at once, granted at once": [took("A", 0, 3, 1), took("B", 0, 3, 2), gave("A", 4, 5), gave("B", 6, 7)],
    "a reader and a writer": [took("A", 0, 1, 1, **READ), took("B", 2, 3, 2, **WRITE)],
    "granted with too few permits": [took("A", 0, 1, 1, weight=2, **MANY), took("B", 2, 3, 2, weight=2, **MANY)],
    "overtaken": [
        took("A", 0, 1, 1),
        took("B", 2, 20, 3, queued=3),
        took("C", 4, 8, 2),
        gave("A", 5, 6),
        gave("C", 9, 10),
    ],
    "overtaken by a try_acquire": [
        took("A", 0, 1, 1),
        took("B", 2, 20, 3, queued=3),
        gave("A", 5, 6),
        took("C", 4, 8, 2, kind="try_acquire"),
        gave("C", 9, 10),
    ],
    "overtaken by a smaller weight": [
        took("A", 0, 1, 1, weight=2, **MANY),
        took("B", 2, 20, 3, queued=3, weight=3, **MANY),
        took("C", 4, 5, 2, **MANY),
        gave("A", 8, 9, **MANY),
        gave("C", 8, 9, **MANY),
    ],
    "granted before a smaller fence": [
        took("A", 0, 1, 1, weight=2, **MANY),
        took("B", 2, 20, 2, weight=3, **MANY),
        set_to(2, 4, 5),
        took("C", 6, 9, 3, **MANY),
        gave("A", 7, 8, **MANY),
        set_to(3, 10, 11),
        gave("C", 12, 13, **MANY),
    ],
    "fences against the order": [took("A", 0, 1, 2), gave("A", 2, 3), took("B", 4, 5, 1)],
    "released, though it was revoked": [took("A", 0, 1, 1), took_away(2, 3), gave("A", 4, 5)],
    "released, though another held it": [
        took("A", 0, 1, 1, deadline=3),
        took("B", 2, 4, 2, deadline=9),
        gave("B", 5, 6),
        gave("A", 7, 8, deadline=3),
    ],
    "lost before its deadline": [took("A", 0, 1, 1, deadline=9), gave("A", 2, 3, "lost", deadline=9)],
    "lost without a reason": [took("A", 0, 1, 1), gave("A", 2, 3, "lost"), took("B", 4, 5, 2)],
    "lost to a revoke that came later": [took("A", 0, 1, 1), gave("A", 2, 3, "lost"), took_away(4, 5)],
    "lost to a revoke that came before": [took_away(0, 1), took("A", 2, 3, 1), gave("A", 4, 5, "lost")],
    "lost to a revoke of another name": [took("A", 0, 1, 1), took_away(2, 3, **OTHER), gave("A", 4, 5, "lost")],
    "a revoke that took nothing": [took("A", 0, 1, 1), took_away(2, 3), gave("A", 4, 5), took("B", 6, 7, 2)],
    "a revoke that took the second only": [
        took("A", 0, 1, 1, **MANY),
        took("B", 2, 9, 2, **MANY),
        took_away(3, 8),
        gave("A", 10, 11, **MANY),
        gave("B", 10, 11, "lost", **MANY),
    ],
    "a revoke of one lease that took the one before": [
        took("A", 0, 1, 1, **MANY),
        took("B", 2, 3, 2, **MANY),
        took_away(4, 5, fence=2, **MANY),
        gave("A", 6, 7, "lost", **MANY),
        gave("B", 6, 7, **MANY),
    ],
    "a revoke of one lease that took the next holder's": [
        took("A", 0, 1, 1),
        gave("A", 2, 3),
        took("B", 4, 5, 2),
        took_away(6, 7, fence=1),
        gave("B", 8, 9, "lost"),
    ],
    "a revoke that took one after the other": [
        took("A", 0, 1, 1),
        took("B", 2, 6, 2, queued=3),
        took_away(4, 7),
        gave("A", 8, 9, "lost"),
        gave("B", 8, 9, "lost"),
    ],
    "lowered after it had ended": [
        took("A", 0, 1, 1, **WRITE),
        took_away(2, 3),
        lowered("A", 4, 5, 1, limit=MAX_PERMITS),
    ],
    "lower refused, though it was held": [
        took("A", 0, 1, 1, **WRITE),
        lowered("A", 2, 3, 1, "lost", limit=MAX_PERMITS),
    ],
    "granted before others were gone": [
        took("A", 0, 1, 1, **WRITE),
        lowered("A", 2, 3, 1, limit=MAX_PERMITS),
        took("B", 4, 5, 2, **WRITE),
        gave("A", 6, 7, limit=MAX_PERMITS),
    ],
    "one of several names": [took("A", 0, 1, 1, **BOTH), took("B", 2, 3, 2, **OTHER), gave("A", 4, 5, **BOTH)],
    "refused for several names": [took("A", 0, 1, 1), gave("A", 2, 3), tried("B", 4, 5, **BOTH)],
    "released whole, though one was revoked": [took("A", 0, 1, 1, **BOTH), took_away(2, 3), gave("A", 4, 5, **BOTH)],
    "others kept after one was lost": [
        took("A", 0, 1, 1, **BOTH),
        took_away(2, 3),
        gave("A", 4, 5, "lost", **BOTH),
        tried("B", 6, 7, **OTHER),
    ],
    "too small a limit": [set_to(1, 0, 1), took("A", 2, 3, 1, weight=2, **MANY)],
    "a limit that was reset": [set_to(5, 0, 1), set_to(0, 2, 3), took("A", 4, 5, 1), took("B", 6, 7, 2)],
}


@pytest.mark.parametrize("case", WRONG)
def test_a_history_that_no_order_explains_is_reported(case):
    (finding,) = check_linearizability(WRONG[case])
    assert finding.text.startswith("no order explains it: after ")
    assert finding.operations
    assert len(check_linearizability(WRONG[case][::-1])) == 1, "the result depends on the order of the record"
    assert check_all(WRONG[case])


RIGHT = {
    "nothing": [],
    "timed out and lost at the moment of the grant": [
        took("A", 0, 1, 1, deadline=2),
        took("B", 3, 4, 2, deadline=5),
        gave("B", 4, 6, "lost", deadline=5),
    ],
    "one after the other": same_lock("A", "B", "C"),
    "refused while it was held": [took("A", 0, 1, 1), tried("B", 2, 3), gave("A", 4, 5)],
    "refused during a release": [took("A", 0, 1, 1), gave("A", 2, 9), tried("B", 7, 8)],
    "refused while another waited": [
        took("A", 0, 1, 1, weight=2, **MANY),
        took("B", 2, 9, 2, weight=2, **MANY),
        tried("C", 4, 5, **MANY),
        gave("A", 6, 7, **MANY),
    ],
    "refused because of a waiter that timed out": [asked("A", 0, 9, "timeout"), tried("B", 2, 3)],
    "refused because of a waiter that lost its queue entry": [took("A", 0, 9, 1), tried("B", 2, 3)],
    "refused because of an unknown lease": [asked("A", 0, 1), tried("B", 2, 3), tried("C", 99, 100)],
    "refused because of a late request": [asked("A", 0, 1), took("B", 2, 3, 1), gave("B", 4, 5), tried("C", 6, 7)],
    "refused because of two late requests": [
        asked("A", 0, 1),
        asked("B", 0, 1),
        tried("C", 2, 3),
        took("D", 4, 5, 1),
        gave("D", 6, 7),
        tried("E", 8, 9),
    ],
    "refused because of a caller that died at an unknown time": [
        asked("A", 0, None, "pending"),
        tried("B", 2, 3),
        took("C", 4, 5, 1),
        gave("C", 6, 7),
        tried("D", 8, 9),
    ],
    "refused because of a weight above the new limit": [
        asked("A", 0, None, "pending", weight=3, **MANY),
        set_to(1, 2, 3),
        tried("B", 4, 5),
    ],
    "refused with a weight above the limit": [set_to(1, 0, 1), tried("A", 2, 3, weight=2, **MANY)],
    "refused because the queue is full": [
        took("A", 0, 1, 1),
        took("B", 2, 9, 2, queued=3),
        asked("C", 4, 5, "refused"),
        gave("A", 6, 7),
    ],
    "two at once, one of them expired": [took("A", 0, 1, 1, deadline=3), took("B", 2, 4, 2), gave("A", 5, 6, "lost")],
    "expired before its reply": [took("A", 0, 9, 1, deadline=3), took("B", 2, 4, 2), gave("B", 5, 6)],
    "a release without a reply": [took("A", 0, 1, 1), gave("A", 2, None, "pending"), took("B", 3, 4, 2)],
    "a release without effect": [took("A", 0, 1, 1), gave("A", 2, 3, "failed"), tried("B", 4, 5)],
    "a release that was sent again": [
        took("A", 0, 1, 1),
        gave("A", 2, 3, "failed"),
        took("B", 4, 5, 2),
        gave("A", 6, 7),
    ],
    "granted in queue order": [
        took("A", 0, 1, 1),
        took("B", 2, 20, 2, queued=3),
        took("C", 4, 30, 3, queued=5),
        gave("A", 6, 7),
        gave("B", 21, 22),
    ],
    "granted in a possible queue order": [took("A", 0, 9, 2), took("B", 0, 3, 1), gave("B", 4, 5)],
    "readers together": [took(name, 0, 3, fence, **READ) for fence, name in enumerate("ABC")],
    "revoked": [took("A", 0, 1, 1), took_away(2, 3), gave("A", 4, 5, "lost"), took("B", 6, 7, 2)],
    "revoked and handed over": [
        took("A", 0, 1, 1),
        took("B", 2, 6, 2, queued=3),
        took_away(4, 7),
        gave("A", 8, 9, "lost"),
        gave("B", 8, 9),
    ],
    "perhaps revoked": [took("A", 0, 1, 1), took_away(2, 3, "failed"), took("B", 4, 5, 2), gave("A", 6, 7, "lost")],
    "perhaps not revoked": [took("A", 0, 1, 1), took_away(2, 3, "failed"), tried("B", 4, 5), gave("A", 6, 7)],
    "lowered": [
        took("A", 0, 1, 1, **WRITE),
        lowered("A", 2, 3, 1, limit=MAX_PERMITS),
        took("B", 4, 5, 2, **READ),
        tried("C", 6, 7, **WRITE),
        gave("A", 8, 9, limit=MAX_PERMITS),
        gave("B", 8, 9, **READ),
        took("D", 10, 11, 3, **WRITE),
    ],
    "perhaps lowered": [
        took("A", 0, 1, 1, **WRITE),
        lowered("A", 2, None, 1, "pending", limit=MAX_PERMITS),
        took("B", 4, 5, 2, **READ),
    ],
    "several names": [
        took("A", 0, 1, 1, **BOTH),
        took("B", 2, 8, 2, **OTHER, queued=3),
        tried("C", 4, 5),
        gave("A", 6, 7, **BOTH),
        gave("B", 9, 10, **OTHER),
    ],
    "of two holders the second loses its lease to a revoke of this one": [
        took("A", 0, 1, 1, **MANY),
        took("B", 2, 3, 2, **MANY),
        took_away(4, 5, fence=2, **MANY),
        took("C", 6, 7, 3, **MANY),
        gave("A", 10, 11, **MANY),
        gave("B", 10, 11, "lost", **MANY),
    ],
    "a revoke of one lease that has ended": [
        took("A", 0, 1, 1),
        gave("A", 2, 3),
        took("B", 4, 5, 2),
        took_away(6, 7, fence=1),
        gave("B", 8, 9),
    ],
    "one of several revoked": [
        took("A", 0, 1, 1, **BOTH),
        took_away(2, 3),
        took("B", 4, 5, 2),
        tried("C", 6, 7, **OTHER),
        gave("A", 8, 9, "lost", **BOTH),
        took("C", 10, 11, 3, **OTHER),
    ],
    "limits that change": [
        took("A", 0, 1, 1, limit=2),
        set_to(1, 2, 3),
        tried("B", 4, 5, limit=2),
        set_to(2, 6, 7),
        took("C", 8, 9, 2, limit=2),
        set_to(0, 10, 11),
        tried("D", 12, 13, limit=2),
    ],
    "overtaken while its weight was above the limit": [
        took("A", 0, 1, 1, **MANY),
        took("B", 2, 20, 3, weight=3, queued=3, **MANY),
        set_to(2, 4, 5),
        took("C", 6, 7, 2, **MANY),
        gave("C", 8, 9, **MANY),
        gave("A", 8, 9, **MANY),
        set_to(3, 10, 11),
    ],
    "overtaken by no other in the end": [
        took("A", 0, 1, limit=3),
        took("B", 2, 20, weight=3, **MANY),
        set_to(2, 4, 5),
        took("C", 6, 30, weight=2, queued=7, **MANY),
        gave("A", 7, 15, **MANY),
        set_to(3, 8, 9),
        gave("B", 21, 22, **MANY),
    ],
    "refused before another left": [
        took("A", 0, 1, 1, **READ),
        asked("B", 2, 10, "timeout", **WRITE),
        tried("C", 5, 20, **READ),
        took("D", 7, 12, 9, **READ),
        took("E", 11, 14, 6, **READ),
    ],
    "perhaps limited": [set_to(1, 0, 1, "failed"), took("A", 2, 3, 1, limit=2), tried("B", 4, 5, limit=2)],
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_history_that_an_order_explains_has_no_finding(case):
    assert check_linearizability(RIGHT[case]) == []
    assert check_all(RIGHT[case]) == []
    assert is_explained(RIGHT[case])


@pytest.mark.parametrize("case", WRONG)
def test_the_exhaustive_search_agrees_on_the_written_histories(case):
    assert not is_explained(WRONG[case])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("troubles", [False, True])
@pytest.mark.parametrize("orders", [False, True])
def test_a_history_of_the_model_is_linearizable(kind, troubles, orders):
    for seed in range(25):
        history = Play(seed, kind, operations=20, troubles=troubles, orders=orders, names=1 + seed % 2).run()
        assert check_all(history) == [], seed


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_history_is_decided(kind):
    history = Play(1, kind, operations=2_000, callers=8, troubles=True, orders=True).run()
    assert len(history) > 1_900
    assert check_all(history) == []


def test_a_late_error_in_a_long_history_is_found_and_named():
    history = Play(1, operations=2_000, callers=8).run()
    end = max(operation.returned for operation in history) + 1
    (finding,) = check_linearizability([*history, tried("liar", end, end + 1)])
    assert [operation.lease for operation in finding.operations] == ["liar"]
    assert (
        "with no request holding and no request in the queue, this has no place: try_acquire liar of client liar"
        in finding.text
    )


def test_each_group_of_names_is_searched_separately():
    history = [tried("A", 0, 1), tried("B", 0, 1, names=("b",)), took("C", 0, 1, 1, names=("c",))]
    assert [finding.name for finding in check_linearizability(history)] == ["a", "b"]
    together = [*history, took("D", 2, 3, 1, names=("a", "b"))]
    assert [finding.name for finding in check_linearizability(together)] == ["a, b"]


def test_a_search_that_takes_too_long_is_reported_as_undecided():
    """Concurrent resizes in any order, and a request that no order explains."""
    limits = [set_to(1 + number % 3, 0, 10) for number in range(7)]
    lie = [took("A", 11, 12, 1, weight=3, **MANY), took("B", 15, 16, 2, **MANY)]
    (finding,) = check_linearizability([*limits, *lie], extra_steps=50)
    assert finding.text.startswith("undecided after ")
    assert finding.operations
    (finding,) = check_linearizability([*limits, *lie])
    assert finding.text.startswith("no order explains it: ")


# --- comparison with the plain search


def spoiled(history, chance):
    """Return the history with some entries changed; an order may still explain it."""
    history = list(history)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.randrange(len(history))
        told = history[place]
        later = 0 if told.returned is None else chance.uniform(-2, 2)
        lies = {
            "drop": None,
            "shift": replace(told, invoked=told.invoked + later, returned=told.returned and told.returned + later),
            "doubt": replace(told, outcome="failed", fence=None),
            "flip": replace(told, outcome=FLIPPED.get(told.outcome, told.outcome), fence=None),
        }
        if told.outcome == "granted":
            lies |= {
                "weight": replace(told, weight=min(told.limit, chance.randint(1, 3))),
                "fence": replace(told, fence=told.fence + chance.choice((-3, -2, 2, 3))),
                "queued": replace(told, queued=chance.uniform(told.invoked, told.returned)),
                "deadline": replace(told, deadline=told.deadline - chance.choice((3, 4.5))),
            }
        lie = lies[chance.choice(sorted(lies))]
        history[place : place + 1] = [lie] if lie else []
        if not history:
            break
    return history


FLIPPED = {"refused": "timeout", "timeout": "refused", "released": "lost", "lost": "released", "granted": "refused"}


def is_sane(history):
    """Return whether the history can have been recorded: each lease has one caller with sequential operations."""
    leases = {}
    for operation in sorted(history, key=lambda operation: operation.invoked):
        if operation.lease:
            leases.setdefault(operation.lease, []).append(operation)
    for first, *others in leases.values():
        if first.queued is not None and first.queued < first.invoked:
            return False
        if others and (first.outcome != "granted" or others[0].kind in ("acquire", "try_acquire")):
            return False
        for before, after in pairwise((first, *others)):
            if before.returned is None or before.returned > after.invoked:
                return False
    return not check_fences(history)


def agreements(seeds):
    """Compare both searches on small histories; return how many were valid and invalid."""
    right = wrong = 0
    for seed in seeds:
        chance = random.Random(seed)
        operations, callers = chance.randint(3, 7), chance.randint(2, 4)
        trouble, orders = chance.random() < 0.5, chance.random() < 0.5
        play = Play(seed, chance.choice(KINDS), operations=operations, callers=callers, troubles=trouble, orders=orders)
        history = play.run()
        if seed % 4:
            history = spoiled(history, chance)
        if not is_sane(history):
            continue
        if seed % 3 == 0:
            history = [replace(operation, fence=None) for operation in history]
        try:
            explained = is_explained(history)
        except TooMany:
            continue
        assert explained == (not check_linearizability(history)), seed
        right += explained
        wrong += not explained
    return right, wrong


def test_the_exhaustive_search_agrees_on_random_histories():
    right, wrong = agreements(range(400))
    assert right > 100
    assert wrong > 50


@pytest.mark.timeout(300)
def test_the_exhaustive_search_agrees_on_many_random_histories():
    right, wrong = agreements(range(1_000, 11_000))
    assert right > 3_000
    assert wrong > 1_000
