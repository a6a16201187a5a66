"""A replica becomes the primary while connections to the old one stay open, or an older state of the server comes back."""

from __future__ import annotations

import asyncio

import redis

from handfast import AcquireTimeout, ServerRefused
from tests._support.apis import until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually_async


async def outcome(acquiring):
    """Return the lease; None if there is none in time."""
    try:
        return await acquiring
    except (AcquireTimeout, ServerRefused):
        return None


# --- each connection has an inbox of its own


def record_of(engine, token):
    """Return the inbox and the control channel of a waiter."""
    return engine.record(token).split()[5:7]


async def test_a_waiter_whose_connection_was_remade_waits_at_another_inbox(api, here, raw):
    engine = Engine(raw)
    engine.acquire("first")
    waiting = asyncio.create_task(outcome(here.lock("a").acquire()))
    await until_queued(here.lock("a"))
    (token,) = engine.queue()
    inbox, control = record_of(engine, token)
    raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await eventually_async(lambda: record_of(engine, token)[0] != inbox)
    other, same = record_of(engine, token)
    assert same == control
    assert dict(raw.pubsub_numsub(inbox, other)) == {inbox: 0, other: 1}
    assert engine.release("first") == ["released", 0]
    assert engine.holders() == [token]
    assert await (await waiting).release()


async def test_a_queue_entry_of_an_older_state_of_the_server_is_skipped_at_once(api, server, here, raw):
    engine = Engine(raw)
    engine.acquire("first")
    gone = asyncio.create_task(outcome(here.lock("a").acquire(timeout=0.3)))
    await until_queued(here.lock("a"))
    (token,) = engine.queue()
    with redis.Redis.from_url(server.url) as binary:
        saved = {key: (binary.pttl(key), binary.dump(key)) for key in binary.scan_iter()}
        assert await gone is None
        assert engine.queue() == []
        raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        for key, (ttl_ms, value) in saved.items():
            binary.restore(key, ttl_ms, value, replace=True)
    waiting = asyncio.create_task(outcome(here.lock("a").acquire()))
    await until_queued(here.lock("a"), 2)
    assert engine.queue()[0] == token
    assert engine.release("first") == ["released", 0]
    assert token not in engine.holders()
    assert await (await waiting).release()
