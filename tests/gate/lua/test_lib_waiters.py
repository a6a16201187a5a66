"""lib/waiters.lua: a full queue evicts waiters that are gone, a hundred a call."""

from __future__ import annotations

from tests._support.engine import CLAIM_MS, NOW_US, WAIT_MS, WAIT_US, holding, waiting


def test_a_hundred_lapsed_waiters_are_evicted_per_call(a, clock, listening):
    listening("lapsed100", "t2")
    a.acquire("t1", ttl=2 * WAIT_MS)
    for number in range(101):
        a.acquire(f"lapsed{number:03}")
    clock.now_us += WAIT_US + 1
    assert a.acquire("t2", max_waiters=1) == ["full", 1]
    a.has(
        holders={"t1": NOW_US + 2 * WAIT_US},
        queue={"lapsed100": NOW_US + 100},
        t1=holding("t1", 1, 1),
        lapsed100=waiting("lapsed100", 1, 1, CLAIM_MS),
        used=1,
        fence=NOW_US,
    )
    assert a.acquire("t2", max_waiters=1) == ["queued", clock.now_us, 0, WAIT_US - 1]
    assert a.stored().queue == {"t2": clock.now_us}
    assert a.acquire("t3", max_waiters=1) == ["full", 1]


def test_a_waiter_whose_record_was_lost_is_evicted(a):
    a.acquire("t1")
    a.acquire("lost")
    a.lose_record("lost")
    assert a.acquire("t2", max_waiters=1)[:3] == ["queued", NOW_US, 0]
    assert a.queue() == ["t2"]


def test_waiters_whose_inbox_has_no_subscriber_are_evicted(a, both, listening):
    """They were killed, or their host is gone: their wait-leases would keep others out for up to a minute."""
    listening("live")
    a.acquire("t1")
    for token in ("dead1", "live", "dead2"):
        a.acquire(token)
    both.acquire("dead3")
    assert a.acquire("t2", max_waiters=5)[:3] == ["queued", NOW_US, 4], "a queue with room keeps them"
    assert a.acquire("t3", max_waiters=2)[:3] == ["queued", NOW_US, 1]
    assert a.queue() == ["live", "t3"]
    assert {token: a.record(token) for token in ("dead1", "dead2", "dead3", "t2")} == dict.fromkeys(
        ("dead1", "dead2", "dead3", "t2")
    )
    assert a.acquire("t4", max_waiters=1) == ["full", 1]
    assert a.queue() == ["live"]


def test_several_names_evict_waiters_that_are_gone_from_each_queue(both, a, b, listening):
    listening("live")
    a.acquire("t1")
    b.acquire("t1")
    for engine in (a, b):
        engine.acquire("dead")
    b.acquire("live")
    assert both.acquire("t2", max_waiters=2)[0] == "queued"
    assert both.queues() == [["t2"], ["live", "t2"]]


def test_waiters_without_a_subscriber_are_evicted(a, listening):
    listening("alive")
    a.acquire("t1")
    for token in ("dead1", "alive", "dead2"):
        a.acquire(token)
    assert a.acquire("t2", max_waiters=3)[::2] == ["queued", 1]
    assert a.queue() == ["alive", "t2"]
    assert a.record("dead1") is None


def test_a_length_that_is_too_high_is_noticed_when_the_queue_is_full(a, listening):
    listening("live")
    a.acquire("t1")
    a.acquire("live")
    a.set_length(5)
    assert a.acquire("t2", max_waiters=3)[:3] == ["queued", NOW_US, 1]
    assert a.queue() == ["live", "t2"]
