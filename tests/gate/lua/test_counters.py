"""What a name has for operators: how many grants there were, how long those tokens had waited, and what an operator did last."""

from __future__ import annotations

from struct import pack

import pytest

from handfast._kinds import MAX_PERMITS
from tests._support.engine import NOW_US, TTL_US, Several, hang_up

WAITED_US = 5_000_000


def counters(engine):
    """Return grants and waited, as an operator is shown them."""
    return engine.run("inspect", max_shown=0)[7:9]


def last_action(engine):
    return engine.run("inspect", max_shown=0)[9]


def test_each_grant_counts_once(a):
    assert counters(a) == [0, 0]
    for number, token in enumerate(("t1", "t2", "t3"), 1):
        a.acquire(token)
        a.acquire(token)
        a.renew(token)
        a.release(token)
        a.release(token)
        assert counters(a) == [number, 0]


def test_what_is_not_granted_is_not_counted(a):
    a.acquire("t1")
    a.acquire("waits")
    a.acquire("waits")
    a.acquire("try", wait=0)
    a.acquire("full", max_waiters=1)
    a.cancel("waits")
    a.acquire("waits")
    assert counters(a) == [1, 0]


def test_permits_beside_others_count(make):
    engine = make(5)
    for number in range(1, 5):
        engine.acquire(f"t{number}")
        engine.acquire(f"t{number}")
        assert counters(engine) == [number, 0]


def test_a_lease_that_expired_is_granted_and_counted_again(a, clock):
    a.acquire("t1")
    clock.now_us += TTL_US + 1
    a.acquire("t1")
    assert counters(a) == [2, 0]


ENDS = {
    "release": lambda name: name.release("holds"),
    "release that knows of copies": lambda name: name.release("holds", copies=True),
    "cancel": lambda name: name.cancel("holds"),
    "lower": lambda name: name.lower("holds", 1),
    "resize": lambda name: name.resize(name.limit + 1),
    "revoke": lambda name: name.revoke(2**52),
}


@pytest.mark.parametrize("limit", [1, 4, MAX_PERMITS])
@pytest.mark.parametrize("end", ENDS)
def test_a_waiter_counts_from_its_first_request_to_its_grant(make, clock, listening, end, limit):
    if limit == 1 and end == "lower":
        pytest.skip("a lock has one permit")
    engine = make(limit)
    listening("waits")
    engine.acquire("holds", limit)
    clock.now_us += 1
    engine.acquire("waits")
    clock.now_us += WAITED_US - 1000
    engine.acquire("waits", ticket=engine.tickets["waits"])
    clock.now_us += 1000
    ENDS[end](engine)
    assert "waits" in engine.holders()
    assert counters(engine) == [2, WAITED_US]
    engine.acquire("waits", ticket=engine.tickets["waits"])
    assert counters(engine) == [2, WAITED_US]


def test_all_waiters_of_one_release_count(make, clock, listening):
    engine = make(4)
    listening("w1", "w2")
    dead = listening("dead")
    engine.acquire("holds", 4)
    for token in ("w1", "dead", "w2"):
        clock.now_us += 1000
        engine.acquire(token, 2)
    hang_up(engine.client, dead, "dead")
    clock.now_us += 10_000
    engine.release("holds")
    assert engine.holders() == ["w1", "w2"]
    assert counters(engine) == [3, 12_000 + 10_000]


def test_a_waiter_whose_place_was_lost_counts_from_its_ticket(a, clock, listening):
    listening("waits")
    a.acquire("holds")
    a.acquire("waits")
    a.lose("state")
    a.lose("tokens")
    clock.now_us += WAITED_US
    a.acquire("holds")
    a.release("holds")
    a.acquire("waits", ticket=a.tickets["waits"])
    assert counters(a) == [2, WAITED_US], "they start anew where the keys were lost"


def test_a_clock_that_was_set_back_takes_nothing_away(a, clock, listening):
    listening("waits")
    a.acquire("holds")
    a.acquire("waits")
    clock.now_us -= WAITED_US
    a.release("holds")
    assert counters(a) == [2, 0]
    a.release("waits")
    a.acquire("t1", ticket=clock.now_us + WAITED_US)
    assert counters(a) == [3, 0]


def test_several_names_count_each(clock, listening):
    listening("waits")
    both = Several(clock, "ab")
    for _ in range(2):
        both.acquire("t1")
        both.acquire("t1")
        both.release("t1")
    assert [counters(engine) for engine in both.engines] == [[2, 0]] * 2
    both.engines[0].acquire("holds")
    clock.now_us += 1
    both.acquire("waits")
    clock.now_us += WAITED_US
    both.engines[0].release("holds")
    both.acquire("waits", ticket=both.tickets["waits"])
    assert [counters(engine) for engine in both.engines] == [[4, WAITED_US], [3, WAITED_US]]
    both.release("waits")
    both.acquire("t2")
    assert [counters(engine) for engine in both.engines] == [[5, WAITED_US], [4, WAITED_US]]


def test_the_counters_are_kept_while_the_keys_live(a, clock):
    a.acquire("t1")
    a.release("t1")
    clock.now_us += 4 * TTL_US
    a.renew("t1", ttl=100 * 3_600_000)
    a.acquire("t2", ttl=100 * 3_600_000)
    a.renew("t2", ttl=200 * 3_600_000)
    a.resize(3)
    a.revoke(2**52)
    assert counters(a) == [2, 0]


def test_what_an_operator_did_last_is_shown(a, clock):
    assert last_action(a) == b""
    assert a.revoke(2**52) == ["revoked", 0, 0]
    assert last_action(a) == b"", "nothing was taken away"
    a.acquire("t1")
    clock.now_us += 1
    a.revoke(2**52, "stuck since noon")
    assert last_action(a) == pack("<d", NOW_US + 1) + b"force_release web-1:7 stuck since noon"
    clock.now_us += 1
    a.revoke(2**52, "sent again")
    a.acquire("t2")
    a.release("t2")
    assert last_action(a) == pack("<d", NOW_US + 1) + b"force_release web-1:7 stuck since noon"
    a.resize(0)
    assert last_action(a) == pack("<d", NOW_US + 2) + b"resize web-1:7 0"


def test_a_revocation_of_one_of_several_is_noted(make):
    engine = make(5)
    for token in ("t1", "t2", "t3"):
        engine.acquire(token)
    engine.release("t1")
    engine.revoke(2**52, "all")
    assert last_action(engine) == pack("<d", NOW_US) + b"force_release web-1:7 all"


def test_a_later_action_takes_the_place_of_an_earlier_one(a):
    a.resize(3)
    a.acquire("t1")
    a.revoke(2**52, "stuck")
    assert last_action(a) == pack("<d", NOW_US) + b"force_release web-1:7 stuck"
