"""permit_release of a lock that stays taken for a while since its grant: it rests until then."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.script import load
from tests._support.engine import NOW_US, TTL_US, refused, runs_through, unchanged

LEAST_US = TTL_US // 2
END_US = NOW_US + LEAST_US


def rests(a, until=END_US):
    """Assert that nothing but a lock that rests until then is there."""
    assert (a.stored().holders, a.stored().queue) == ({".t1": until}, {})
    return True


def test_a_lock_that_is_released_early_rests_until_its_time(a, clock):
    a.acquire("t1")
    clock.now_us += 1000
    assert a.release("t1", at_least_us=LEAST_US) == ["released", 0]
    assert rests(a)
    clock.now_us = END_US - 1
    assert a.acquire("t2", wait=0) == ["busy", 1]
    clock.now_us = END_US + 1
    assert a.acquire("t2", wait=0)[0] == "granted"
    assert a.holders() == ["t2"]


@pytest.mark.parametrize("copies", [False, True])
def test_a_lock_that_is_released_late_is_free_at_once(a, clock, copies):
    a.acquire("t1")
    clock.now_us = END_US
    assert a.release("t1", copies=copies, at_least_us=LEAST_US) == ["released", 0]
    assert a.holders() == []


def test_a_lock_that_is_released_late_is_handed_over(a, clock, listening):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    clock.now_us = END_US
    assert a.release("t1", at_least_us=LEAST_US) == ["released", 0]
    assert a.holders() == ["t2"]


def test_a_waiter_gets_in_when_the_rest_is_over(a, clock, listening):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2")
    a.release("t1", at_least_us=LEAST_US)
    assert a.acquire("t2")[:3] == ["queued", NOW_US, 0], "it asks from time to time, and learns when the rest ends"
    assert a.acquire("t2")[3] == LEAST_US
    clock.now_us = END_US + 1
    assert a.acquire("t2")[0] == "granted"


def test_the_name_lives_longer_than_the_rest(a):
    a.acquire("t1", ttl=1)
    a.release("t1", at_least_us=100 * TTL_US)
    a.lives(100 * TTL_US // 1000, "state")


def test_no_late_call_of_its_holder_makes_a_rest_longer_or_shorter(a):
    a.acquire("t1")
    a.release("t1", at_least_us=LEAST_US)
    with unchanged(a):
        assert a.renew("t1") == ["lost"]
        assert a.release("t1", at_least_us=2 * LEAST_US) == ["released", 0]
        assert a.release("t1") == ["released", 0]
    a.cancel("t1")
    assert a.holders() == [".t1"]


def test_an_acquire_that_arrives_after_the_release_changes_nothing(a, clock):
    a.acquire("t1")
    a.release("t1", copies=True, at_least_us=LEAST_US)
    clock.now_us += 1000
    assert a.acquire("t1") == ["finished"]
    assert a.holders() == [".t1"]
    assert a.release("t1", copies=True, at_least_us=LEAST_US) == ["released", 0]


def test_a_clock_that_was_set_back_lets_it_rest_for_its_time_and_no_longer(a, clock):
    a.acquire("t1", ttl=10**7)
    clock.now_us -= 10 * LEAST_US
    a.release("t1", at_least_us=LEAST_US)
    assert rests(a, NOW_US - 9 * LEAST_US)


def test_a_grant_that_was_not_confirmed_yet_rests_as_long(a, clock, listening):
    listening("t2")
    a.acquire("t1")
    a.acquire("t2", claim=10)
    a.release("t1")
    assert a.stored().holders == {"t2": NOW_US + 10_000}
    assert a.release("t2", at_least_us=LEAST_US) == ["released", 0]
    assert a.stored().holders == {".t2": a.stored().fence + LEAST_US - 1}


def test_a_lease_that_has_ended_does_not_rest(a, clock):
    a.acquire("t1", ttl=1)
    clock.now_us += 1001
    assert a.release("t1", at_least_us=LEAST_US) == ["released", 0]
    assert a.holders() == []


def test_force_ends_a_rest(a):
    a.acquire("t1")
    a.release("t1", at_least_us=LEAST_US)
    assert a.revoke(NOW_US) == ["revoked", 1, 0]
    assert a.holders() == []
    assert a.acquire("t2")[0] == "granted"


def test_a_lock_comes_to_rest_out_of_memory(a, raw):
    a.acquire("t1")
    raw.config_set("maxmemory", 1)
    assert a.release("t1", at_least_us=LEAST_US) == ["released", 0]
    assert rests(a)
    with refused(a):
        a.acquire("t2")


def test_a_release_that_is_cut_off_comes_to_rest_when_it_is_sent_again(a, clock, raw):
    source, keys = load("permit_release").source, [a.key(part) for part in PARTS]
    done, commands = False, 0
    while not done:
        raw.flushdb()
        a.acquire("t1")
        done = runs_through(clock, source, keys, ["t1", "", LEAST_US], commands)
        assert len(a.holders()) == 1
        assert a.release("t1", at_least_us=LEAST_US) == ["released", 0]
        assert rests(a)
        commands += 1
    assert commands > 2


def test_a_lease_that_ends_now_does_not_rest(a, clock):
    a.acquire("t1", ttl=1)
    clock.now_us += 1000
    a.release("t1", at_least_us=LEAST_US)
    assert a.holders() == []
