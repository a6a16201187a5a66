"""In a cluster those who wait are woken on sharded channels, which only the primary of a slot and its replicas know."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AsyncHandfast
from handfast._protocol import acquire
from tests._support.apis import ASYNCIO, CROWDED, SYNC, take, until_queued
from tests._support.cluster import Cluster, name_at, state_of
from tests._support.helpers import eventually_async

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.parametrize("api", [SYNC, CROWDED, ASYNCIO], ids=lambda one: one.name),
]

NEVER = 60.0
"""A ttl in seconds that no test lasts."""

HERE, THERE = name_at(0), name_at(1)


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        if cluster.nodes[0].info("server")["redis_version"] < "7.0":
            pytest.skip("sharded channels came with Redis 7.0")
        yield cluster


@pytest.fixture
def cluster(running):
    running.flush()
    running.forget_calls()
    return running


async def hand_over(client, other, times=1):
    """Let a waiter of another client have a lock that is released."""
    for _ in range(times):
        lease = await client.lock(HERE).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(client.lock(HERE))
        await lease.release()
        assert await waiter > lease.fence


def calls_at(node):
    found = node.info("commandstats")
    return {name: found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("publish", "spublish", "ssubscribe")}


async def test_the_first_waiter_of_a_slot_has_further_ones_woken_on_a_channel_of_the_slot(api, cluster):
    node = cluster.node_of(state_of(HERE))
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        await take(client.lock(HERE))
        await take(other.lock(HERE))
        assert calls_at(node)["ssubscribe"] == 0, "nothing was waited for"
        before = calls_at(node)
        await hand_over(client, other)
        assert calls_at(node) == {"publish": before["publish"] + 1, "spublish": 0, "ssubscribe": 1}
        await hand_over(client, other, times=3)
        assert calls_at(node) == {"publish": before["publish"] + 1, "spublish": 3, "ssubscribe": 1}
        await hand_over(other, client, times=2)
        assert calls_at(node) == {"publish": before["publish"] + 2, "spublish": 4, "ssubscribe": 2}


async def test_those_who_wait_ask_again_when_their_slot_leaves_the_node(api, cluster, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_POLL_S", NEVER)  # nothing else makes them ask
    node = cluster.node_of(state_of(THERE))
    async with AsyncHandfast(cluster.url) as holder, api.client(cluster.url) as client:
        await hand_over(holder, client)
        lease = await holder.lock(HERE, ttl=NEVER).acquire()
        waiters = []
        for number in range(3):
            waiters.append(asyncio.create_task(take(client.lock(HERE))))
            await until_queued(holder.lock(HERE), number + 1)
        assert node.pubsub_shardchannels() == []
        with cluster.moves(state_of(HERE), to=state_of(THERE)):
            await eventually_async(lambda: node.pubsub_shardchannels() != [])
            assert await lease.release()
            assert sorted(fences := await asyncio.gather(*waiters)) == fences
            assert calls_at(node)["spublish"] + calls_at(node)["publish"] >= 3


async def test_a_user_without_the_right_to_such_channels_is_woken_on_others(api, cluster):
    rules = cluster.rules("lock")
    for node in cluster.nodes:
        node.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules, "-ssubscribe")
    node = cluster.node_of(state_of(HERE))
    async with api.client(cluster.url.replace("://", "://app:secret@")) as client, api.client(cluster.url) as other:
        await hand_over(other, client, times=3)
        assert calls_at(node)["spublish"] == 0
        await hand_over(client, other, times=2)
        assert calls_at(node)["spublish"] == 1


async def admitted(limiter):
    return await limiter.acquire()


async def test_those_who_wait_for_a_limiter_are_woken_there_and_follow_its_slot(api, cluster):
    rate, keys = "1/d", [f"{{hf:limiter:{name}}}:queue" for name in "abcdefgh"]
    node = cluster.node_of(keys[0])
    elsewhere = next(key for key in keys if cluster.number_of(key) != cluster.number_of(keys[0]))

    async def queue(client):
        waiter = asyncio.create_task(admitted(client.limiter("a", rate)))
        await until_queued(client.limiter("a", rate))
        return waiter

    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        admission = await client.limiter("a", rate).acquire()
        for _ in range(4):  # the first one on the classic channel
            waiter = await queue(other)
            await admission.settle(cost=0)
            admission = await waiter
        assert calls_at(node)["spublish"] > 0
        waiter = await queue(other)
        with cluster.moves(keys[0], to=elsewhere):
            await admission.settle(cost=0)
            assert await asyncio.wait_for(waiter, 30)
