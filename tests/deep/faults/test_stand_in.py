"""Event loops that are blocked for longer than a ttl: no one else gets in, and the lease is there when the loop goes on.

These tests need real time; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from handfast import AsyncHandfast, Handfast, LeaseLost
from handfast.embedded import PrivateServer
from handfast.testing import FaultProxy, ServerController
from tests._support.apis import until_queued
from tests._support.cluster import Cluster
from tests._support.helpers import eventually, eventually_async

TTL_S = 1.0
BLOCKED_S = 3.5


def blocked(seconds, *tries):
    """Block the event loop for some seconds, and call these functions all that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for attempt in tries:
            assert attempt() is None, "another one got in"
        time.sleep(0.01)


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1, "replica_timeout": 0.2}], ids=["plain", "acknowledged"])
async def test_no_one_else_gets_in_while_the_loop_is_blocked(options):
    with ServerController() as server:
        if options:
            server.replica()
            server.admin.wait(1, 10_000)
        async with AsyncHandfast(server.url) as mine:
            with Handfast(server.url) as other:
                async with mine.lock("a", ttl=TTL_S, **options) as lease, mine.semaphore("s", 1, ttl=TTL_S) as permit:
                    blocked(BLOCKED_S, other.lock("a").try_acquire, other.semaphore("s", 1).try_acquire)
                    assert not lease.lost
                    assert not permit.lost
                    await asyncio.sleep(2 * TTL_S)  # the loop's own timer renews from here on
                    assert not lease.lost
                assert other.lock("a").try_acquire().release()


async def test_a_loop_that_is_blocked_again_and_again_keeps_its_lease(server, raw):
    """Between two blocks it has a moment, in which it may send a renewal and not read the reply."""
    with Handfast(server.url) as other:
        async with AsyncHandfast(server.url) as mine, mine.lock("a", ttl=TTL_S) as lease:
            for length in (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3):
                blocked(length, other.lock("a").try_acquire)
                await asyncio.sleep(0)
            assert not lease.lost


async def test_no_one_else_gets_in_at_any_primary_of_a_cluster():
    with Cluster() as cluster:
        async with AsyncHandfast(cluster.url) as mine, mine.lock_all(["a", "b", "c"], ttl=TTL_S) as lease:
            with Handfast(cluster.url) as other:
                blocked(BLOCKED_S, *(other.lock(name).try_acquire for name in "abc"))
                assert not lease.lost


async def test_a_lease_that_was_just_handed_over_is_renewed_where_only_the_loop_can_read_replies(
    server, raw, monkeypatch
):
    """Over TLS."""
    with Handfast(server.url) as other:
        async with AsyncHandfast(server.url) as mine:
            held = await asyncio.to_thread(other.lock("a").acquire)
            waiter = asyncio.create_task(mine.lock("a").acquire())
            await until_queued(mine.lock("a"))
            monkeypatch.setattr(mine._driver._connector, "read_arrived", lambda _writer: b"")
            waiter.add_done_callback(lambda _: blocked(BLOCKED_S, other.lock("a").try_acquire))
            await asyncio.to_thread(held.release)
            lease = await waiter
            assert not lease.lost
            assert await lease.release() is True


async def test_a_child_that_is_forked_meanwhile_keeps_no_connection_of_the_stand_in(server, raw):
    async with AsyncHandfast(server.url) as mine, mine.lock("a", ttl=TTL_S) as lease:
        alone = len(raw.client_list())
        before = lease._state.deadline
        eventually(lambda: lease._state.deadline > before)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)  # until the parent has ended or closed it
            os._exit(0)
        os.close(reading)
        try:
            await eventually_async(lambda: len(raw.client_list()) == alone)
        finally:
            os.close(writing)
            os.waitpid(child, 0)  # noqa: ASYNC222 -- it ends at once
        assert not lease.lost


async def test_a_lease_is_lost_if_the_server_is_gone_as_well():
    with PrivateServer() as server, FaultProxy(server.url) as proxy:
        async with AsyncHandfast(proxy.url) as mine:
            with pytest.raises(LeaseLost, match="the last renewal failed: "):
                async with mine.lock("a", ttl=TTL_S) as lease:
                    proxy.retarget("unix:///nowhere")
                    blocked(BLOCKED_S)
                    assert lease.lost
