"""lib/handoff.lua: every script that frees permits hands them to the waiters in their order (invariants 2, 6 and 13).

Waiters for several names are in test_lib_handoff_multi.py.
"""

from __future__ import annotations

import pytest
import redis

from tests._support.engine import (
    CLAIM_MS,
    CLAIM_US,
    NOW_US,
    TOMBSTONE_US,
    TTL_US,
    WAIT_MS,
    WAIT_US,
    Clock,
    hang_up,
    holding,
    queue_dead_writers,
    received,
    waiting,
)

# --- the head is granted


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "lower"])
def test_what_a_handoff_stores_and_sends(make, clock, listening, verb):
    engine = make()
    inbox, control, _ = listening("t2"), listening("t1"), listening("t3")
    engine.acquire("t1", 4)
    engine.acquire("t2", 3, limit=4)
    engine.acquire("t3", 3)
    clock.now_us += 4
    if verb == "revoke":
        assert engine.revoke(NOW_US, "two words") == ["revoked", 1, 0]
        assert received(control) == "revoked t1 two words"
    elif verb == "lower":
        assert engine.lower("t1", 1) == ["lowered", 0]
    else:
        assert getattr(engine, verb)("t1")[1] == 0
    assert received(inbox) == f"granted t2 {NOW_US + 4} {NOW_US + 4} {CLAIM_US}"
    kept = verb == "lower"
    until_us = NOW_US + 4 + TOMBSTONE_US
    tombstones = {"cancel": {"t1": until_us}, "revoke": {"t1": until_us + 1}}.get(verb, {})
    engine.has(
        holders={"t2": NOW_US + 4 + CLAIM_US} | ({"t1": NOW_US + TTL_US} if kept else {}),
        queue={"t3": NOW_US + 1},
        tombstones=tombstones,
        **({"t1": holding("t1", 1, 5)} if kept else {}),
        t2=holding("t2", 3, 4, fence=NOW_US + 4),
        t3=waiting("t3", 3, 5, CLAIM_MS),
        used=4 if kept else 3,
        fence=NOW_US + 4,
    )
    engine.lives(WAIT_MS + CLAIM_MS)
    assert engine.acquire("t2", 3) == ["granted", NOW_US + 4, CLAIM_US], "the waiter asks and finds its grant"


@pytest.mark.parametrize("limit", [1, 5])
def test_an_inbox_with_a_brace_is_a_sharded_channel(make, subscribe, sharded, limit):
    engine = make()
    for channel in ("inbox:{x}classic", "inbox:{x}t3"):
        subscribe(channel)  # is not counted, and hears nothing
    inbox, other = sharded("inbox:{x}t3"), subscribe("inbox:t4")
    engine.acquire("t1", limit, limit=limit)
    engine.acquire("t2", limit, limit=limit, inbox="inbox:{x}classic")
    engine.acquire("t3", limit, limit=limit, inbox="inbox:{x}t3")
    engine.acquire("t4", limit, limit=limit)
    assert engine.release("t1") == ["released", 0]
    assert received(inbox) == f"granted t3 {NOW_US + 1} {NOW_US} {CLAIM_US}"
    assert (engine.holders(), engine.queue()) == (["t3"], ["t4"])
    assert engine.release("t3") == ["released", 0]
    assert received(other) == f"granted t4 {NOW_US + 2} {NOW_US} {CLAIM_US}"


def test_a_claim_may_be_as_short_as_a_millisecond(a, listening):
    inbox = listening("t2")
    a.acquire("t1")
    a.acquire("t2", claim=1)
    a.release("t1")
    assert received(inbox) == f"granted t2 {NOW_US + 1} {NOW_US} 1000"
    assert a.stored().holders == {"t2": NOW_US + 1000}


def test_a_head_whose_inbox_has_no_subscriber_is_dropped_before_anything_is_granted(make, listening):
    """Not even a fence is used: a message that is taken back could be heard at a replica."""
    engine = make()
    inbox = listening("t3")
    engine.acquire("t0", 1)
    engine.acquire("t1", 4)
    engine.acquire("dead", 4)
    engine.acquire("t3", 3)
    assert engine.release("t1") == ["released", 0]
    assert received(inbox) == f"granted t3 {NOW_US + 2} {NOW_US} {CLAIM_US}"
    assert engine.stored().used == 4
    assert engine.record("dead") is None
    assert engine.holders() == ["t3", "t0"]
    engine.acquire("dead", 2)
    engine.release("t3")
    assert (engine.holders(), engine.queue(), engine.stored().used) == (["t0"], [], 1)


def test_a_wait_lease_lapses_behind_its_last_microsecond(a, clock, listening):
    listening("t2", "t3", "t5")
    a.acquire("t1", ttl=2 * WAIT_MS)
    a.acquire("t2")
    a.acquire("t3", wait=2 * WAIT_MS)
    clock.now_us += WAIT_US
    assert a.acquire("t4", max_waiters=2) == ["full", 2], "none has lapsed yet"
    a.release("t1")
    assert a.holders() == ["t2"]
    a.cancel("t2")
    assert a.holders() == ["t3"]
    a.acquire("t5")
    clock.now_us += WAIT_US + 1
    a.release("t3")
    assert a.holders() == a.queue() == []


# --- the head does not fit

SERVING = {
    "release": lambda engine: engine.release("extra"),
    "cancel": lambda engine: engine.cancel("stranger"),
    "lower": lambda engine: engine.lower("held", 1),
    "resize": lambda engine: engine.resize(0),
    "revoke": lambda engine: engine.revoke(0),
    "acquire": lambda engine: engine.acquire("alive"),
    "newcomer": lambda engine: engine.acquire("newcomer"),
    "try": lambda engine: engine.acquire("try", wait=0),
}
"""Calls that look at the queue of a name where some permits are free, and that free too few for its head."""


@pytest.fixture(params=["semaphore", "rwlock"])
def blocked(request, make, rw, listening):
    """A name whose head does not fit while the waiter behind it would, and a function that ends the head's process."""
    engine = make(4) if request.param == "semaphore" else rw
    head, _ = listening("head"), listening("alive")
    engine.acquire("held", 2)
    engine.acquire("extra")
    engine.acquire("head", 3 if engine.limit == 4 else engine.limit)
    engine.acquire("alive")
    assert engine.queue() == ["head", "alive"]
    return engine, lambda: hang_up(engine.client, head, "head")


@pytest.mark.parametrize("verb", SERVING)
def test_a_head_that_lives_keeps_its_place(blocked, verb):
    engine, _ = blocked
    SERVING[verb](engine)
    assert engine.queue()[:2] == ["head", "alive"]


@pytest.mark.parametrize("end", ["dies", "lapses"])
@pytest.mark.parametrize("verb", SERVING)
def test_a_head_that_is_gone_does_not_block_the_queue(blocked, verb, end):
    engine, end_process = blocked
    end_process() if end == "dies" else engine.end_wait("head")
    SERVING[verb](engine)
    assert "alive" in engine.holders()
    assert "head" not in engine.queue()
    assert engine.record("head") is None


@pytest.mark.parametrize("verb", ["cancel", "lower", "resize", "revoke"])
def test_a_head_that_reconnects_keeps_its_place_while_nothing_is_free(make, listening, verb):
    engine = make(4)
    head = listening("head")
    engine.acquire("held", 1)
    engine.acquire("extra", 3)
    engine.acquire("head", 2)
    engine.acquire("behind", 1)
    hang_up(engine.client, head, "head")
    SERVING[verb](engine)
    assert engine.queue() == ["head", "behind"]


def test_a_head_that_reconnects_keeps_its_place_before_requests_for_two_names(both, a, listening):
    head = listening("t2")
    listening("t3", "t4")
    for token in ("t1", "t2", "t3", "t4"):
        a.acquire(token)
    hang_up(a.client, head, "t2")
    a.cancel("t4")
    both.acquire("t5", wait=0)
    both.acquire("t6")
    assert a.queue() == ["t2", "t3", "t6"]


@pytest.mark.parametrize("verb", SERVING)
def test_a_caller_without_the_right_to_pubsub_is_refused_and_the_next_call_serves_the_queue(blocked, server, raw, verb):
    """Scripts run with the rights of their caller. A session is refused before it sends one."""
    engine, end_process = blocked
    raw.execute_command("ACL", "SETUSER", "plain", "on", ">x", "~*", "&*", "+@all", "-pubsub")
    client = redis.Redis.from_url(server.url, username="plain", password="x", decode_responses=True)
    try:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.pubsub_numsub("inbox:head")
        end_process()
        operator, engine.client = engine.client, Clock(client)
        with pytest.raises(redis.ResponseError, match=r"permission|ACL|can't run"):
            SERVING[verb](engine)
        assert engine.queue()[:2] == ["head", "alive"]
        engine.client = operator
        SERVING["cancel"](engine)
        assert "alive" in engine.holders()
        assert "head" not in engine.queue()
    finally:
        client.close()
        raw.execute_command("ACL", "DELUSER", "plain")


# --- more than a hundred waiters

FREEING = {
    "release": lambda engine: engine.release("w"),
    "cancel": lambda engine: engine.cancel("w"),
    "lower": lambda engine: engine.lower("w", 1),
    "resize": lambda engine: engine.resize(2 * engine.limit),
    "revoke": lambda engine: engine.revoke(NOW_US),
    "acquire": lambda engine: engine.acquire("r149"),
}


@pytest.mark.parametrize("verb", FREEING)
def test_a_hundred_waiters_are_let_in_per_call(rw, listening, verb):
    readers = [f"r{number:03}" for number in range(150)]
    inboxes = listening(*readers)
    rw.acquire("w", rw.limit)
    for token in readers:
        rw.acquire(token)
    if verb == "acquire":
        rw.end_lease("w")
    first, second = FREEING[verb](rw), FREEING[verb](rw)
    if verb == "acquire":
        assert (first, second[0]) == (["queued", NOW_US, 49, 0], "granted")
    else:
        assert (first[-1], second[-1]) == (1, 0)
    assert [token for token in rw.holders() if token != "w"] == readers
    left = {"lower": 1, "resize": rw.limit}.get(verb, 0)
    assert rw.stored().used == 150 + left
    if verb != "acquire":
        fences = [int(received(inboxes).split()[2]) for _ in readers]
        assert fences == sorted(set(fences))


def test_a_hundred_dead_heads_are_skipped_per_call(a, listening):
    a.acquire("t1")
    for number in range(100):
        a.acquire(f"dead{number}")
    listening("t2")
    a.acquire("t2")
    assert a.release("t1") == ["released", 1]
    assert (a.holders(), a.queue()) == ([], ["t2"])
    assert a.release("t1") == ["released", 0]
    assert a.holders() == ["t2"]
    for number in range(100):
        a.acquire(f"gone{number}")
    assert a.release("t2") == ["released", 1], "after a hundred it does not look whether there are more"
    assert a.queue() == []


def test_a_hundred_dead_heads_that_do_not_fit_are_skipped_per_call(rw, listening):
    queue_dead_writers(rw, listening, 150)
    assert rw.cancel("stranger") == ["cancelled", 1]
    assert len(rw.queue()) == 51
    assert rw.cancel("stranger") == ["cancelled", 0]
    assert sorted(rw.holders()) == ["alive", "held"]
