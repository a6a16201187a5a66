"""Every verb once in a cluster of three primaries, also after a slot has moved. ``tests/deep/faults/test_cluster.py`` has the rest."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest
import redis
from click.testing import CliRunner

from handfast import AcquireTimeout, Handfast, Script, ServerUnsupported, Superseded
from handfast._engine.server_errors import is_cut_off, is_transient
from handfast.classic import watch
from handfast.classic.watch import pipelines
from handfast.cli.operate import forget, limits
from handfast.events import Acquired, Lost, Refused, Released
from tests._support.apis import ASYNCIO, CROWDED, SYNC, take, until_queued, use
from tests._support.cluster import NODES, Cluster, name_at, state_of
from tests._support.helpers import awaited, eventually, eventually_async
from tests._support.objects import OBJECTS, WAITING, is_waiting

pytestmark = pytest.mark.timeout(120)

crowded_too = pytest.mark.parametrize("api", [SYNC, CROWDED, ASYNCIO], ids=lambda one: one.name)
"""For what differs where threads share a connection."""


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    running.flush()
    return running


async def test_names_of_all_primaries_are_used_by_one_client(api, cluster):
    async with api.client(cluster.url) as client:
        for name in map(name_at, range(NODES)):
            lock = client.lock(name)
            lease = await lock.acquire()
            assert await lock.try_acquire() is None
            waiter = asyncio.create_task(take(lock))
            await until_queued(lock)
            await lease.release()
            assert await waiter > lease.fence
    assert all(any(node.scan_iter("{hf:lock:*")) for node in cluster.nodes)


@pytest.mark.parametrize("namespace", ["hf", "{shared}"])
async def test_many_limiters_are_admitted_together_where_they_share_a_slot(cluster, caplog, namespace):
    caplog.set_level(logging.DEBUG, "handfast.wire")
    async with ASYNCIO.client(cluster.url, namespace=namespace) as client:
        limiters = [client.limiter(f"n{number}", "2/h") for number in range(9)]
        for admitted in (True, True, False):
            found = await asyncio.gather(*(limiter.try_acquire() for limiter in limiters))
            assert [one.admitted for one in found] == [admitted] * len(limiters)
    assert (" -> limit_batch " in caplog.text) is (namespace == "{shared}")


@crowded_too
async def test_all_primitives_work(api, cluster):
    async with api.client(cluster.url) as client:
        await use(client)
        async with client.semaphore("s", 2) as one, client.semaphore("s", 2) as other:
            assert one.fence != other.fence
            assert await client.semaphore("s", 2).try_acquire() is None
        async with client.rwlock("rw").read() as lease:
            assert lease.fence
        async with client.rlock("r"), client.rlock("r"):
            assert await client.lock("r").locked()
        index = client.autocomplete("a")
        await index.add(["ann", "bob"])
        assert await index.complete("a") == ("ann",)
        board = client.scores("b")
        assert (await board.advance({"ann": 5})).added == 1
        limiter = client.limiter("l", "10/100ms; 100/min")
        await asyncio.gather(*(limiter.acquire(cost=4, timeout=20) for _ in range(6)))
        await (await limiter.keyed("x", 7).try_acquire()).settle(cost=3)
        assert [(await one.status()).rates[1].used for one in (limiter, limiter.keyed("x", 7))] == [24, 3]
        once = client.once("o", rerun=False, timeout=20)
        async with once as current:
            waiter = asyncio.create_task(found(once))
            await until_queued(once)
            await current.finish(1)
        assert await waiter == 1
        assert await once.forget()
        for part in range(2 * NODES):
            async with once.keyed(part):
                pass
            assert (await once.keyed(part).status()).state == "done"


@crowded_too
@pytest.mark.parametrize("kind", WAITING)
async def test_calls_of_two_clients_meet_wherever_their_name_is(api, cluster, kind):
    """Each primary tells what other clients change."""
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        for name in (name_at(number, kind=kind) for number in range(NODES)):
            await OBJECTS[kind].use(client, name)
            call = asyncio.create_task(awaited(OBJECTS[kind].wait(client, name)))
            node = cluster.node_of(f"{{hf:{kind}:{name}}}")
            await eventually_async(lambda name=name, node=node: is_waiting(node, kind, name))
            await OBJECTS[kind].let_go(other, name)
            await asyncio.wait_for(call, 20)


@crowded_too
async def test_policies_work_wherever_their_name_is(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        for name in map(name_at, range(NODES)):
            lock, theirs = client.lock(name), other.lock(name)
            lease = await lock.acquire()
            older = asyncio.create_task(take_newest(theirs.replace))
            await until_queued(lock)
            newer = asyncio.create_task(take_newest(theirs.replace))
            with pytest.raises(Superseded):
                await asyncio.wait_for(older, 20)
            newest = asyncio.create_task(take_newest(theirs.preempt, grace=20))
            await eventually_async(lambda lease=lease: lease.wanted)
            await lease.release()
            assert lease.fence < await asyncio.wait_for(newest, 20) < await asyncio.wait_for(newer, 20)
            assert await other.hold(name, 60, reason="a migration")
            assert await lock.try_acquire() is None
            assert (await lock.status()).hold.reason == "a migration"
            assert await other.unhold(name)
            async with client.together(lock, client.semaphore("wide", 1), client.limiter("l", "9/h")) as held:
                assert await theirs.try_acquire() is None
            assert len(held.leases) == 2


async def take_newest(method, **options):
    lease = await method(timeout=20, **options)
    await lease.release()
    return lease.fence


async def test_items_of_a_burst_are_where_its_name_is(cluster):
    async with ASYNCIO.handfast(cluster.url) as client:
        for name in (name_at(number, kind="debounce") for number in range(NODES)):
            calls = [asyncio.create_task(collect(client.debounce(name, 0.1), number)) for number in range(5)]
            assert [*filter(None, await asyncio.gather(*calls))] == [(0, 1, 2, 3, 4)]
            assert await collect(client.debounce(name, 0.001), "next") == ("next",)


async def collect(debounce, item):
    async with debounce.collect(item) as items:
        return items


@crowded_too
async def test_an_operator_of_a_limiter_is_heard_wherever_its_name_is(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        for number in range(2 * NODES):
            limiter = client.limiter(f"l{number}", "1/h")
            await limiter.acquire()
            assert not await limiter.try_acquire()
            exceeding = await client.limiter(f"l{number}", "1/h", enforce=False).try_acquire()
            assert exceeding.exceeded
            waiter = asyncio.ensure_future(limiter.acquire())
            node = cluster.node_of(f"{{hf:limiter:l{number}}}")
            await eventually_async(lambda number=number, node=node: is_waiting(node, "limiter", f"l{number}"))
            await other.limiter(f"l{number}", "1/h").resize("9/h")
            assert await waiter
            await other.limiter(f"l{number}", "1/h").pause(60)
            assert (await limiter.status()).paused_for > 50


async def found(once):
    return (await once.acquire()).result


async def test_a_slot_that_has_moved_is_found(api, cluster):
    name = name_at(0)
    async with api.client(cluster.url) as client:
        await use(client, name=name)
        with cluster.moves(state_of(name), to=state_of(name_at(1))):
            await use(client, name=name)


def test_every_server_has_words_of_its_own_for_a_script_that_is_cut_off(cluster):
    node, elsewhere = cluster.node_of(state_of(name_at(0))), state_of(name_at(1))
    with pytest.raises(redis.ResponseError) as caught:
        node.eval("return redis.call('GET', ARGV[1])", 1, state_of(name_at(0)), elsewhere)
    assert is_cut_off(str(caught.value))
    assert is_transient(str(caught.value))


async def test_all_names_of_a_lock_all_are_held_wherever_they_are(api, cluster):
    async with api.client(cluster.url) as client:
        names = [*map(name_at, range(NODES))]
        async with client.lock_all(names):
            assert [await client.lock(name).try_acquire() for name in names] == [None] * NODES
        await asyncio.gather(*(take(client.lock(name)) for name in names))


async def test_a_plain_url_of_a_node_is_refused_at_the_first_connection_whatever_the_name(api, cluster):
    place = f"127.0.0.1:{cluster.ports[0]}"
    async with api.client(f"redis://{place}") as client:
        for number in range(NODES):
            with pytest.raises(
                ServerUnsupported, match=rf"at {place} is a node of a cluster.* redis\+cluster://{place}"
            ):
                await use(client, name=name_at(number))
        with pytest.raises(ServerUnsupported, match="is a node of a cluster"):
            await client.check_server()
    assert not any(node.keys("*") for node in cluster.nodes)


async def test_nodes_without_a_name_are_reached_by_their_address(api, cluster):
    nodes, names = cluster.nodes, ["localhost", "", ""]
    try:
        for node, name in zip(nodes, names, strict=True):
            node.config_set("cluster-announce-hostname", name)
            node.config_set("cluster-preferred-endpoint-type", "hostname")
    except redis.ResponseError:
        pytest.skip("servers before 7.0 have no names in a cluster")
    try:
        eventually(lambda: all(b"localhost" in places(node) for node in nodes))
        assert b"?" in places(nodes[0])
        async with api.client(f"redis+cluster://127.0.0.1:{cluster.ports[0]}") as client:
            for name in map(name_at, range(NODES)):
                await use(client, name=name)
            other = name_at(0, but=[name_at(0)])
            with cluster.moved(state_of(other), to=state_of(name_at(1))):  # a redirection to "?"
                await use(client, name=other)
                cluster.flush()
    finally:
        for node in nodes:
            node.config_set("cluster-preferred-endpoint-type", "ip")
            node.config_set("cluster-announce-hostname", "")


async def test_each_part_of_several_locks_ends_with_an_event(api, cluster):
    names = [name_at(0), name_at(1)]
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        told = []
        client.on(told.append, Acquired, Refused, Released, Lost)
        both = client.lock_all(names)
        async with both:
            pass
        assert [type(event) for event in told] == [Acquired, Acquired, Released, Released]
        told.clear()
        for taken in names:
            async with other.lock(taken):
                assert await both.try_acquire() is None
                with pytest.raises(AcquireTimeout):
                    await both.acquire(timeout=0.05)
                counts = Counter(type(event) for event in told)
                assert (counts[Refused], counts[Lost]) == (2, 0)
                assert counts[Acquired] == counts[Released] in (0, 2)
                told.clear()


def test_operators_reach_limiters_and_records_wherever_they_are(cluster):
    def call(command, *words):
        done = CliRunner().invoke(command, [*words, "--reason", "a test", "--url", cluster.url])
        assert done.exit_code == 0, done.output

    with Handfast(cluster.url) as client:
        for name in map(name_at, range(NODES)):
            limiter, once = client.limiter(name, "1/h; 2/d"), client.once(name)
            assert limiter.try_acquire()
            call(limits.reset, name)
            assert limiter.try_acquire()
            assert once.run(lambda: 1) == 1
            call(forget.command, name, "-y")
            assert once.run(lambda: 2) == 2
        assert [entry.what for entry in client.audit()] == ["reset", "forget"] * NODES


def places(node):
    return [primary[0] for _, _, primary, *_ in node.execute_command("CLUSTER SLOTS", NEVER_DECODE=True)]


@pytest.mark.skipif(not pipelines.WATCHES_IN_CLUSTERS, reason="this redis-py has no WATCH for a cluster")
async def test_the_first_forms_of_the_book_run_in_a_cluster(cluster):
    with redis.RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis").partition(",")[0]) as conn:
        for number in range(NODES):
            name = name_at(number)
            mine = watch.acquire_lock_with_timeout(conn, name)
            assert watch.release_lock(conn, name, mine) is True
            assert watch.acquire_semaphore_with_lock(conn, f"{{{name}}}", 1)
            watch.join_guild(conn, name, "jeff")
            assert watch.autocomplete_on_prefix(conn, name, "j") == ["jeff"]


async def test_keys_are_in_the_slots_of_the_clients_encoding(cluster):
    url = cluster.url.replace("redis+cluster", "redis").partition(",")[0]
    with redis.RedisCluster.from_url(url, encoding="latin-1") as conn:
        assert Script("return #KEYS")(conn, keys=["{é}1", b"{\xe9}2"]) == 2
