"""Fenced writes of Redis values: with every kind of client, in both APIs, and by a writer that was paused.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import ResponseError

from handfast.fencing import (
    StaleFence,
    delete_if_newer,
    explain,
    guard_key,
    latest_fence,
    set_if_newer,
)
from tests._support.actor import Actors, fenced_writer, write_late
from tests._support.cluster import Cluster
from tests._support.helpers import eventually, settled
from tests._support.scripting import pipeline
from tests.gate.fencing import test_fencing as gate
from tests.gate.fencing.test_fencing import NEW, NOW, ODD, OLD, WRITES, refused

some = gate.some


# --- values


async def test_fence_outlives_an_expired_value(some, raw):
    await settled(set_if_newer(some, "k", "a", NOW, ttl=0.001))
    eventually(lambda: not raw.exists("k"))
    await refused(lambda: set_if_newer(some, "k", "b", OLD))
    assert not raw.exists("k")


# --- slots and clusters


@given(key=st.binary(max_size=20) | st.lists(st.sampled_from([b"{", b"}", b"a", b"\xff"]), max_size=9).map(b"".join))
@settings(max_examples=500, deadline=None)
def test_guard_shares_the_slot_of_a_binary_key(key):
    assume(not key.startswith(guard_key(b"")))
    assert key_slot(guard_key(key)) == key_slot(key)


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(params=[False, True], ids=["bytes", "str"])
async def clustered(request, api, running):
    """A client of an empty cluster."""
    running.flush()
    client = api.library.RedisCluster(**running.address, decode_responses=request.param)
    try:
        await settled(client.ping(target_nodes=client.ALL_NODES))
        yield client
    finally:
        await settled(client.aclose() if hasattr(client, "aclose") else client.close())


async def test_cluster_stores_each_key_with_its_guard(clustered, running):
    for key in [*ODD, "a", "b", "c", b"\xff{\xfe}\xfd"]:
        assert running._slot(guard_key(key)) == running._slot(key)
        for write in WRITES.values():
            await settled(delete_if_newer(clustered, key, NOW))
            await settled(write(clustered, key, NOW))
            stale = await refused(lambda write=write, key=key: write(clustered, key, OLD))
            assert (stale.key, stale.newer) == (key, NOW)
        assert await settled(latest_fence(clustered, key)) == NOW
        assert int(running.node_of(key).get(guard_key(key))) == NOW


async def test_cluster_pipeline_raises_a_refusal(clustered, running):
    for key in "abc":
        await settled(set_if_newer(clustered, key, "before", NOW))
    async with pipeline(clustered) as pipe:
        for key, fence in (("a", NEW), ("b", OLD), ("c", NEW)):
            assert set_if_newer(pipe, key, f"by {fence}", fence) is pipe
        with pytest.raises(ResponseError) as caught:
            await settled(pipe.execute())
        stale = explain(caught.value)
        assert (type(stale), stale.fence, stale.newer) == (StaleFence, OLD, NOW)
    assert [running.node_of(key).get(key) for key in "abc"] == [f"by {NEW}".encode(), b"before", f"by {NEW}".encode()]


# --- paused writers


@pytest.fixture
def writers(server, raw):
    """Two processes that write."""
    with Actors(fenced_writer, server.url) as actors:
        yield actors(2)


@pytest.mark.parametrize("renew", [False, True], ids=["plain", "renewed"])
def test_paused_writer_is_refused_when_it_resumes(writers, raw, renew):
    firsts, seconds, old, new = write_late(writers, "set", renew)
    assert seconds == "written"
    assert firsts == ["stale", old, new]
    assert raw.get("report") == "second"


def test_paused_writer_without_a_fence_overwrites_the_newer_value(writers, raw):
    firsts, seconds, _, _ = write_late(writers, "set unguarded", renew=True)
    assert (firsts, seconds) == ("written", "written")
    assert raw.get("report") == "first"
