"""lib/handoff.lua: a head that waits for several names is woken, and takes all of them itself."""

from __future__ import annotations

import pytest

from tests._support.engine import MINUTE_MS, NOW_US, hang_up, received, silent, waiting_for_several

CLAIM_WINDOW_US = 2_000_000


def test_a_head_is_woken_once_and_has_two_seconds(both, a, b, clock, listening):
    inbox = listening("t2")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2")
    clock.now_us += 1
    assert a.release("t1") == ["released", 0]
    assert received(inbox) == f"granted t2 0 {NOW_US + 1} 0"
    until_us = NOW_US + 1 + CLAIM_WINDOW_US
    woken = waiting_for_several("t2", 0, at_us=until_us)
    assert a.record("t2") == woken
    assert (a.holders(), a.queue()) == ([], ["t2"]), "nothing is handed over to it"
    for later_us in (0, CLAIM_WINDOW_US // 2):
        clock.now_us += later_us
        a.acquire("t3")
        assert silent(inbox), "it was woken before"
    assert a.record("t2") == woken
    assert a.acquire("try", wait=0) == ["busy", -1]
    assert a.queue() == ["t2", "t3"]
    clock.now_us = until_us
    assert a.acquire("try", wait=0) == ["busy", -1]
    clock.now_us += 1
    assert a.acquire("t3")[0] == "granted"


def test_a_head_that_asked_within_a_second_is_not_woken_by_another_that_asks(both, a, b, clock, listening):
    """It waits for the other name: each would wake the other without end, and it looks at all its names each time."""
    inbox = listening("t2")
    b.acquire("t0")
    both.acquire("t2", wait=MINUTE_MS)
    listening("t3")
    for later_us in (0, 999_999):
        clock.now_us += later_us
        a.acquire("t3")
        assert silent(inbox)
    clock.now_us += 1
    a.acquire("t3")
    assert received(inbox) == f"granted t2 0 {clock.now_us} 0"
    both.acquire("t2", wait=MINUTE_MS)
    a.acquire("t3")
    assert silent(inbox)
    b.release("t0")
    assert received(inbox) == f"granted t2 0 {clock.now_us} 0", "a release wakes it at once"


def test_a_head_with_a_shorter_wait_lease_is_not_given_a_longer_one(both, a, b, clock, listening):
    inbox = listening("t2")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2", wait=2001)
    a.release("t1")
    assert received(inbox) == f"granted t2 0 {NOW_US} 0"
    assert a.record("t2") == waiting_for_several("t2", 2000)
    a.cancel("t2")
    b.cancel("t2")
    a.acquire("t5")
    both.acquire("t3", wait=2000)
    listening("t3")
    a.release("t5")
    assert a.record("t3") == waiting_for_several("t3", 2000)


def test_a_head_is_woken_in_each_queue(both, a, b, listening):
    inbox = listening("t3")
    a.acquire("t1")
    b.acquire("t2")
    both.acquire("t3")
    for engine, token in ((a, "t1"), (b, "t2")):
        assert engine.release(token) == ["released", 0]
        assert received(inbox) == f"granted t3 0 {NOW_US} 0"
        assert engine.acquire("t4", wait=0)[0] == "busy", "and it is not overtaken"
        assert both.acquire("t3")[0] == ("queued" if engine is a else "granted")


def test_a_dead_head_is_skipped_where_its_queue_is_free_and_uses_no_fence(both, a, b, listening):
    listening("t4")
    a.acquire("t1")
    both.acquire("dead")
    b.acquire("t4")
    assert b.holders() == ["t4"]
    assert both.queues() == [["dead"], []]
    assert b.record("dead") is None
    assert a.release("t1") == ["released", 0]
    a.has(fence=NOW_US)


def test_a_head_that_dies_after_it_was_woken_is_skipped(both, a, b, listening):
    inbox = listening("t2")
    listening("t3")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2")
    a.acquire("t3")
    a.release("t1")
    received(inbox)
    hang_up(a.client, inbox, "t2")
    assert a.acquire("t3")[0] == "granted"


@pytest.mark.parametrize("end", ["dead", "lapsed"])
def test_a_head_that_is_gone_does_not_block_those_behind_it(both, a, b, listening, end):
    listening("t3", "t4", *(["gone"] if end == "lapsed" else []))
    a.acquire("t1")
    b.acquire("t2")
    both.acquire("gone")
    both.acquire("t3")
    a.acquire("t4")
    if end == "lapsed":
        a.end_wait("gone")
        b.end_wait("gone")
    a.release("t1")
    assert both.queues() == [["t3", "t4"], ["gone", "t3"]]
    b.release("t2")
    assert both.queues() == [["t3", "t4"], ["t3"]]
    assert both.acquire("t3")[0] == "granted"
    both.release("t3")
    assert both.holders() == [["t4"], []]
