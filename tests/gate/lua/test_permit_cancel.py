"""permit_cancel of one name and of several: it takes back a place or a grant.

More of both is in test_permit_release.py.
"""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TOMBSTONE_US, TTL_US, holding


@pytest.mark.parametrize("token", ["holds", "waits"])
def test_a_cancel_leaves_only_a_tombstone(locks, token):
    locks.acquire("holds")
    locks.acquire("waits")
    other = "waits" if token == "holds" else "holds"
    assert locks.cancel(token) == ["cancelled", 0]
    for engine in locks.engines:
        assert token not in engine.holders() + engine.queue()
        assert engine.record(token) is None
        assert engine.stored().tombstones == {token: NOW_US + TOMBSTONE_US}
    locks.cancel(other)
    for engine in locks.engines:
        assert engine.holders() == engine.queue() == []
        assert engine.stored().records == {}


def test_a_cancel_of_two_names_leaves_the_other_holders(both, a, b, clock):
    a.acquire("t1")
    both.acquire("t2")
    clock.now_us += 4
    assert both.cancel("t2") == ["cancelled", 0]
    a.has(
        holders={"t1": NOW_US + TTL_US},
        tombstones={"t2": NOW_US + 4 + TOMBSTONE_US},
        t1=holding("t1", 1, 1),
        used=1,
        fence=NOW_US,
    )
    b.has(tombstones={"t2": NOW_US + 4 + TOMBSTONE_US})


def test_a_head_that_cancels_lets_those_behind_it_in(make, both, a, b, listening):
    listening("behind")
    engine = make(3, "c")
    engine.acquire("held", 2)
    engine.acquire("head", 2)
    engine.acquire("behind", 1)
    assert engine.cancel("head") == ["cancelled", 0]
    assert sorted(engine.holders()) == ["behind", "held"]

    a.acquire("held")
    both.acquire("head")
    b.acquire("behind")
    assert both.cancel("head") == ["cancelled", 0]
    assert both.queues() == [[], []]
    assert both.holders() == [["held"], ["behind"]]


def test_a_cancel_of_two_names_takes_back_the_rest_of_a_lost_lease(both, a, b, listening):
    listening("t2", "t3")
    both.acquire("t1")
    a.revoke(NOW_US)
    a.acquire("t2")
    b.acquire("t3")
    assert both.cancel("t1") == ["cancelled", 0]
    assert both.holders() == [["t2"], ["t3"]]
    assert both.queues() == [[], []]
