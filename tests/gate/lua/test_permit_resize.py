"""permit_resize: the limit that an operator sets, and whom it lets in."""

from __future__ import annotations

import pytest

from tests._support.engine import CLAIM_US, NOW_US, TTL_US, holding, received, unchanged


def test_a_limit_of_an_unused_name_is_kept_for_thirty_days(make):
    engine = make()
    assert engine.resize(3) == ["resized", 0]
    engine.has(limit=3)
    engine.lives(0, "state", limited=True)


def test_the_last_limit_to_arrive_is_in_force(make):
    engine = make(1)
    engine.acquire("t1")
    for limit in (4, 2, 4, 0):
        assert engine.resize(limit) == ["resized", 0]
        assert engine.inspect()[3] == limit


def test_a_limit_is_in_force_for_all_clients_until_it_is_removed(make, listening):
    engine = make(2)
    listening("c")
    engine.resize(3)
    assert engine.acquire("a", limit=1)[0] == "granted"
    assert engine.acquire("b", limit=1)[0] == "granted"
    assert engine.acquire("big", 4, limit=9) == ["exceeds_limit", 3]
    assert engine.acquire("c", 2, limit=9)[0] == "queued"
    assert engine.resize(0) == ["resized", 0]
    assert sorted(engine.holders()) == ["a", "b", "c"]
    assert engine.inspect()[3] == 0
    assert engine.acquire("d", limit=4, wait=0)[0] == "busy"
    assert engine.acquire("d", limit=5, wait=0)[0] == "granted"


def test_a_larger_limit_lets_in_those_that_fit_in_their_order(make, listening):
    engine = make(2)
    inboxes = listening("a", "b", "c", "d")
    engine.acquire("held", 2)
    for token, weight in (("a", 1), ("b", 2), ("c", 2), ("d", 1)):
        engine.acquire(token, weight)
    assert engine.resize(5) == ["resized", 0]
    for number, token in enumerate("ab", 1):
        assert received(inboxes) == f"granted {token} {NOW_US + number} {NOW_US} {CLAIM_US}"
    assert sorted(engine.holders()) == ["a", "b", "held"]
    assert engine.queue() == ["c", "d"]
    assert engine.inspect()[3:7] == [5, 5, 3, 2]


def test_a_smaller_limit_takes_no_lease_away_and_lets_no_one_in_until_enough_was_released(make, listening):
    engine = make(4)
    listening("next")
    for token in ("a", "b", "c", "d"):
        engine.acquire(token)
    engine.acquire("next")
    assert engine.resize(2) == ["resized", 0]
    assert engine.holders() == ["a", "b", "c", "d"]
    assert engine.renew("a")[0] == "renewed"
    assert engine.acquire("b")[0] == "granted"
    for token in ("a", "b"):
        assert engine.release(token) == ["released", 0]
        assert engine.queue() == ["next"]
    assert engine.acquire("try", wait=0)[0] == "busy"
    engine.release("c")
    assert sorted(engine.holders()) == ["d", "next"]


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "lower"])
def test_permits_that_are_given_back_go_to_the_queue_within_the_limit(make, listening, verb):
    engine = make(4)
    listening("next")
    engine.acquire("first", 3 if verb == "lower" else 2)
    engine.acquire("second", 1 if verb == "lower" else 2)
    engine.acquire("next", 2)
    engine.resize(3)
    {
        "release": lambda: engine.release("first"),
        "cancel": lambda: engine.cancel("first"),
        "revoke": lambda: engine.revoke(NOW_US),
        "lower": lambda: engine.lower("first", 1),
    }[verb]()
    assert engine.stored().used == 2
    assert engine.queue() == ["next"]
    engine.release("second")
    assert "next" in engine.holders()


# --- waiters that want more than the new limit


def test_a_head_above_a_smaller_limit_is_woken_and_dropped(make, clock, listening):
    engine = make(4)
    inbox = listening("large")
    listening("small")
    engine.acquire("held")
    engine.acquire("large", 4)
    engine.acquire("small")
    clock.now_us += 7
    assert engine.resize(2) == ["resized", 0]
    assert received(inbox) == f"granted large 0 {NOW_US + 7} 0"
    assert sorted(engine.holders()) == ["held", "small"]
    assert engine.queue() == []
    assert engine.record("large") is None
    with unchanged(engine):
        assert engine.acquire("large", 4) == ["exceeds_limit", 2]


def test_a_smaller_limit_drops_the_only_waiter(make, listening):
    engine = make()
    listening("t2")
    engine.acquire("t1", 4)
    engine.acquire("t2", 4)
    assert engine.resize(3) == ["resized", 0]
    engine.has(holders={"t1": NOW_US + TTL_US}, t1=holding("t1", 4, 5), used=4, fence=NOW_US, limit=3)


def test_a_waiter_above_a_smaller_limit_is_woken_and_dropped_at_its_turn(make, listening):
    engine = make(4)
    inboxes = listening("first", "large", "latest")
    engine.acquire("held", 4)
    for token, weight in (("first", 2), ("large", 3), ("latest", 1)):
        engine.acquire(token, weight)
    engine.resize(2)
    assert engine.queue() == ["first", "large", "latest"]
    engine.release("held")
    assert engine.queue() == ["large", "latest"]
    engine.release("first")
    assert [received(inboxes).split()[1:3] for _ in range(3)] == [
        ["first", str(NOW_US + 1)],
        ["large", "0"],
        ["latest", str(NOW_US + 2)],
    ]
    assert engine.holders() == ["latest"]
