"""Who counts as there: what no session of the scripts can say, since it takes another channel or another user."""

from __future__ import annotations

import pytest
import redis

from tests._support.engine import CLAIM_US, NOW_US, Clock, hang_up, received


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
