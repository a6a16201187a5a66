"""Clients of a cluster: every name is found where it is, also while its slot moves or its primary is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast import AcquireTimeout, AsyncHandfast, ClientClosed, ServerRefused, ServerUnsupported
from handfast._drivers.sync import shared
from handfast._engine.keys import KeySet
from tests._support.apis import ASYNCIO, CROWDED, SYNC, all_of, take, until_queued, use
from tests._support.cluster import NODES, Cluster, field_of, knows_all, name_at, started, state_of
from tests._support.helpers import eventually, eventually_async, settled
from tests._support.sentinel import free_port
from tests.gate.api.test_election import observed, values
from tests.gate.api.test_group import watched
from tests.gate.api.test_partition import Log, working

pytestmark = pytest.mark.timeout(120)

TOLD_S = 4.0
"""Seconds in which a message has come, and no poll has."""

NEVER = 60.0
"""A ttl in seconds that no test lasts."""


HERE, THERE = name_at(0), name_at(1)
"""Two names, each at another primary."""

NEW = name_at(0, but={HERE})
"""At the primary of HERE, and used by one test only: no cleanup of an earlier one can bring it back."""


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


async def test_a_users_own_client_of_a_cluster_names_it(api, cluster):
    users = api.library.RedisCluster(**cluster.address)
    try:
        async with api.client(users) as client:
            for name in map(name_at, range(NODES)):
                await use(client, name=name)
    finally:
        await settled(users.aclose() if hasattr(users, "aclose") else users.close())


async def test_a_node_that_is_down_is_passed_over(api, cluster):
    async with api.client(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.ports[2]}") as client:
        await use(client)


async def test_a_node_that_has_left_the_cluster_is_passed_over(api, cluster):
    with started() as left, redis.Redis.from_url(left.url) as node:
        alone = node.config_get("port")["port"]
        async with api.client(f"redis+cluster://127.0.0.1:{alone},127.0.0.1:{cluster.ports[2]}") as client:
            await use(client)


async def test_the_error_of_a_users_remap_reaches_the_caller(api, cluster):
    known = set(cluster.ports)

    def remap(address):
        return {("127.0.0.1", port): ("127.0.0.1", port) for port in known}[address]

    users = api.library.RedisCluster(**cluster.address, address_remap=remap)
    try:
        async with api.client(users) as client:
            await use(client, name=HERE)
            cluster.flush()
            known.remove(cluster.ports[1])
            with cluster.moved(state_of(HERE), to=state_of(THERE)), pytest.raises(KeyError):
                await client.lock(HERE).acquire()
        async with api.client(users) as client:
            with pytest.raises(KeyError):
                await client.lock(HERE).acquire()
    finally:
        known.update(cluster.ports)
        await settled(users.aclose() if hasattr(users, "aclose") else users.close())


async def test_calls_go_on_when_all_tasks_of_their_loop_are_cancelled(cluster):
    async with AsyncHandfast(cluster.url) as client:
        taking = asyncio.create_task(take(client.lock(HERE)))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task(), taking}:
            task.cancel()
        assert await asyncio.wait_for(taking, 10)


async def test_a_cluster_of_which_no_node_is_there_is_an_error_at_once(api):
    async with api.client("redis+cluster://127.0.0.1:1,127.0.0.1:2", retry_for=30) as client:
        with pytest.raises(RedisConnectionError):
            await client.lock("a").acquire()


async def test_a_server_that_is_no_cluster_is_refused_with_words(api, raw):
    port = free_port()
    raw.config_set("port", port)
    try:
        async with api.client(f"redis+cluster://127.0.0.1:{port}") as client:
            with pytest.raises(ServerUnsupported, match="not part of a cluster; name it with redis://host:port"):
                await client.lock("a").acquire()
    finally:
        raw.config_set("port", 0)


async def test_the_url_of_one_node_is_refused_with_words(api, cluster):
    async with api.client(f"redis://127.0.0.1:{cluster.ports[0]}") as client:
        with pytest.raises(ServerUnsupported, match="is a node of a cluster"):
            await client.lock(HERE).acquire()


# --- slots that move


async def test_a_lock_is_found_after_its_slot_has_moved(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        await use(client, name=HERE)
        fence = await take(other.lock(HERE))
        with cluster.moves(state_of(HERE), to=state_of(THERE)):
            assert await take(client.lock(HERE)) > fence
            assert cluster.node_of(state_of(THERE)).exists(state_of(HERE))


async def test_a_lease_is_renewed_and_handed_over_where_its_slot_has_moved_to(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        lease = await client.lock(HERE, ttl=0.6).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(client.lock(HERE))
        with cluster.moves(state_of(HERE), to=state_of(THERE)):
            await asyncio.sleep(1.5)
            assert not waiter.done()
            assert await lease.release()
            assert await waiter > lease.fence


async def test_an_observer_hears_of_leaders_where_their_slot_has_moved_to(api, cluster):
    name, other = name_at(0, kind="election"), name_at(1, kind="election")
    here_state, there_state = (KeySet("hf", "election", one).key("state") for one in (name, other))
    async with api.client(cluster.url) as here, api.client(cluster.url) as there:
        seen = []
        task = asyncio.create_task(observed(api, there.election(name), seen))
        await eventually_async(lambda: seen == [None])
        async with here.election(name, value="one"):
            await eventually_async(lambda: values(seen) == [None, "one"], within=TOLD_S)
        await eventually_async(lambda: seen[-1] is None, within=TOLD_S)
        with cluster.moves(here_state, to=there_state):
            async with here.election(name, value="two"):
                await eventually_async(lambda: values(seen)[-1] == "two")
            await eventually_async(lambda: seen[-1] is None)
        task.cancel()


async def test_a_watcher_hears_of_members_where_their_slot_has_moved_to(api, cluster):
    name, other = name_at(0, kind="group"), name_at(1, kind="group")
    here_state, there_state = (KeySet("hf", "group", one).key("state") for one in (name, other))
    async with api.client(cluster.url) as here, api.client(cluster.url) as there:
        seen = []
        task = asyncio.create_task(watched(api, there.group(name), seen))
        await eventually_async(lambda: seen == [[]])
        async with here.group(name).join(value="one"):
            await eventually_async(lambda: seen == [[], ["one"]], within=TOLD_S)
        await eventually_async(lambda: seen[-1] == [], within=TOLD_S)
        with cluster.moves(here_state, to=there_state):
            async with here.group(name).join(value="two"):
                await eventually_async(lambda: seen[-1] == ["two"])
            await eventually_async(lambda: seen[-1] == [])
        task.cancel()


async def test_the_items_of_a_partition_are_on_all_primaries(api, cluster):
    log, items = Log(), [f"item-{number}" for number in range(12)]
    async with api.client(cluster.url) as here, api.client(cluster.url) as there:
        async with working(api, here, log, "one", items):
            await eventually_async(lambda: log.loads() == {"one": 12})
            async with working(api, there, log, "two", items):
                await eventually_async(lambda: log.loads() == {"one": 6, "two": 6})
                owners = await there.partition("a", items).owners()
                assert Counter(one.label for one in owners.values()).total() == 12
            await eventually_async(lambda: log.loads() == {"one": 12})
    assert log.doubles == []


async def test_slots_stay_the_same_where_their_names_have_moved_to(api, cluster):
    name, other = name_at(0, kind="semaphore"), name_at(1, kind="semaphore")
    here_state, there_state = (KeySet("hf", "semaphore", one).key("state") for one in (name, other))
    async with api.client(cluster.url) as here, api.client(cluster.url) as there:
        one, two = await here.semaphore(name, 3).acquire(), await there.semaphore(name, 3).acquire()
        assert await one.slot() == 0
        with cluster.moves(here_state, to=there_state):
            assert await two.slot(prefer=0) == 1
            async with here.semaphore(name, 3) as three:
                assert await three.slot() == 2
            assert await one.release()
            assert await two.release()


async def test_leases_are_released_at_the_end_where_their_slots_have_moved_to(api, cluster):
    client, before = api.client(cluster.url), set(threading.enumerate())
    leases = [await client.lock(name, ttl=NEVER).acquire() for name in (THERE, HERE)]
    with cluster.moves(state_of(HERE), to=state_of(THERE)):
        await client.close(release=True)
        assert all(lease.lost for lease in leases)
        async with api.client(cluster.url) as other:
            assert not await other.lock(THERE).locked()
            assert not await other.lock(HERE).locked()
        assert not [one.name for one in set(threading.enumerate()) - before if one.name == "handfast-renewer"]


@crowded_too
async def test_waiters_keep_their_order_when_their_slot_moves(api, cluster):
    order = []

    async def wait(number):
        async with client.lock(HERE) as lease:
            order.append((number, lease.fence))

    async with api.client(cluster.url) as client:
        lease = await client.lock(HERE, ttl=NEVER).acquire()
        waiters = []
        for number in range(4):
            waiters.append(asyncio.create_task(wait(number)))
            await until_queued(client.lock(HERE), number + 1)
        with cluster.moves(state_of(HERE), to=state_of(THERE)):
            await asyncio.sleep(1.5)  # by then all have asked again
            assert await lease.release()
            await asyncio.gather(*waiters)
    assert [number for number, _ in order] == [0, 1, 2, 3]
    assert sorted(fence for _, fence in order) == [fence for _, fence in order]


@crowded_too
async def test_a_name_that_has_moved_before_its_slot_is_used_at_its_new_place(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        lease = await client.lock(HERE, ttl=0.6).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(
            client.lock(HERE)
        )  # from then on there are two keys, and only if all are there a call may run
        with cluster.moving(state_of(HERE), to=state_of(THERE)):
            assert cluster.move_keys(state_of(HERE), to=state_of(THERE)) == 2
            await asyncio.sleep(1.5)
            assert not lease.lost
            assert (await client.lock(HERE).status()).waiting == 1
            assert await lease.release()
            cluster.end_move(state_of(HERE), to=state_of(THERE))
            assert await waiter > lease.fence


@crowded_too
async def test_a_new_name_waits_until_its_slot_has_moved(api, cluster):
    async with api.client(cluster.url) as client:
        with cluster.moving(state_of(NEW), to=state_of(THERE)):
            taking = asyncio.create_task(take(client.lock(NEW)))
            await asyncio.sleep(0.3)
            assert not taking.done(), (taking, cluster.views(state_of(NEW)))
            cluster.end_move(state_of(NEW), to=state_of(THERE))
            assert await taking
            assert cluster.node_of(state_of(THERE)).keys(state_of(NEW))
            cluster.flush()
        with cluster.moving(state_of(NEW), to=state_of(THERE)):
            began = time.monotonic()
            with pytest.raises(ServerRefused, match="moving to another primary; try again") as refused:
                await client.lock(NEW).try_acquire()
            assert time.monotonic() - began > 1
            assert refused.value.changed_nothing


async def test_a_call_waits_while_only_some_of_its_keys_have_moved(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other:
        lease = await client.lock(HERE, ttl=NEVER).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(client.lock(HERE))  # from then on there are two keys
        with cluster.moving(state_of(HERE), to=state_of(THERE)):
            assert cluster.move_keys(state_of(HERE), to=state_of(THERE), most=1) == 1
            trying = asyncio.create_task(try_it(other.lock(HERE)))
            releasing = asyncio.create_task(give_back(lease))
            await asyncio.sleep(0.3)
            assert not (trying.done())
            assert not (releasing.done())
            cluster.end_move(state_of(HERE), to=state_of(THERE))
            await trying
            assert await releasing
            assert await waiter > lease.fence


async def try_it(lock):
    lease = await lock.try_acquire()
    if lease is not None:
        await lease.release()


async def give_back(lease):
    return await lease.release()


async def test_nodes_that_name_each_other_are_asked_again(api, cluster):
    slot, old, new = key_slot(f"hf:lock:{HERE}".encode()), cluster.nodes[0], cluster.nodes[1]
    async with api.client(cluster.url) as client:
        await use(client, name=HERE)
        cluster.flush()
        old.execute_command("CLUSTER SETSLOT", slot, "NODE", new.execute_command("CLUSTER MYID"))
        try:
            with pytest.raises(ServerRefused, match="does not serve its slot now") as refused:
                await client.lock(HERE).try_acquire()
            assert refused.value.changed_nothing
            taking = asyncio.create_task(take(client.lock(HERE)))
            await asyncio.sleep(1)
            assert not taking.done(), taking
        finally:
            cluster.give(slot, old, new)
        assert await taking


async def test_a_waiter_that_is_cancelled_between_two_redirections_leaves_nothing(cluster):
    slot, old, new = key_slot(f"hf:lock:{HERE}".encode()), cluster.nodes[0], cluster.nodes[1]
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    async with AsyncHandfast(cluster.url) as client:
        await use(client, name=HERE)
        cluster.flush()
        old.execute_command("CLUSTER SETSLOT", slot, "NODE", new.execute_command("CLUSTER MYID"))
        try:
            waiters = [asyncio.create_task(take(client.lock(HERE))) for _ in range(3)]
            await asyncio.sleep(0.3)  # by then all pause before they follow the next one
            for waiter in waiters:
                waiter.cancel()
            assert all(
                isinstance(one, asyncio.CancelledError)
                for one in await asyncio.gather(*waiters, return_exceptions=True)
            )
            await asyncio.sleep(1)
        finally:
            cluster.give(slot, old, new)
        (context,) = client._driver._contexts.values()
        assert not context.session._waiting
    assert not faults


async def test_a_slot_that_no_primary_has_is_waited_for(api, cluster):
    slot, owner = key_slot(f"hf:lock:{HERE}".encode()), cluster.nodes[0]
    async with api.client(cluster.url) as client:
        for node in cluster.nodes:
            node.config_set("cluster-require-full-coverage", "no")
            node.execute_command("CLUSTER DELSLOTS", slot)
        try:
            with pytest.raises(ServerRefused, match="does not serve its slot now") as refused:
                await client.lock(HERE).try_acquire()
            assert refused.value.changed_nothing
            await use(client, name=THERE)
            taking = asyncio.create_task(take(client.lock(HERE)))
            await asyncio.sleep(1)
            assert not taking.done(), taking
        finally:
            owner.execute_command("CLUSTER ADDSLOTS", slot)
            for node in cluster.nodes:
                node.config_set("cluster-require-full-coverage", "yes")
        assert await taking
        await eventually_async(lambda: all(map(knows_all, cluster.nodes)))


# --- what goes to all primaries, or to one


async def test_the_names_of_all_primaries_are_listed(api, cluster):
    names = {name_at(number) for number in range(NODES)}
    async with api.client(cluster.url) as client, contextlib.AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(client.lock(name))
        assert {one.name for one in await all_of(client.names())} == names
        assert [one.name for one in await all_of(client.names(HERE))] == [HERE]


async def test_all_primaries_are_checked(api, cluster):
    cluster.nodes[1].config_set("appendonly", "yes")
    try:
        async with api.client(cluster.url) as client:
            found = await client.check_server()
    finally:
        cluster.nodes[1].config_set("appendonly", "no")
    assert not [one for one in found if one.topic == "cluster"]
    assert next(one.text for one in found if one.topic == "server").endswith("grants reach this client")
    texts = [one.text for one in found if one.topic == "persistence"]
    assert [text for text in texts if text.endswith(f"(at port {cluster.ports[1]})")]
    assert [text for text in texts if text.endswith(f"(at port {cluster.ports[0]}, {cluster.ports[2]})")]


async def test_the_names_of_a_namespace_in_braces_share_a_slot(api, cluster):
    async with api.client(cluster.url, namespace="{bank}") as bank:
        async with bank.lock_all([HERE, THERE]) as lease:
            assert lease.fences == {HERE: lease.fence, THERE: lease.fence}
            assert await bank.lock(THERE).try_acquire() is None
            assert {one.name for one in await all_of(bank.names())} == {HERE, THERE}
        leases = await asyncio.gather(*(bank.lock(f"n{number}").acquire() for number in range(20)))
        assert len({lease.fence for lease in leases}) >= 1
        for lease in leases:
            assert await lease.release()


async def test_the_rights_that_are_printed_suffice(api, cluster):
    rules = cluster.rules("lock")
    for node in cluster.nodes:
        node.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
        node.execute_command("ACL", "LOG", "RESET")
    async with api.client(cluster.url.replace("://", "://app:secret@")) as client:
        with cluster.moves(state_of(HERE), to=state_of(THERE)):
            await use(client, name=HERE)
            await use(client, name=THERE)
    assert [node.execute_command("ACL", "LOG") for node in cluster.nodes] == [[]] * NODES


async def test_a_waiter_gives_up_in_time_and_leaves_the_queue(api, cluster):
    async with api.client(cluster.url) as client, api.client(cluster.url) as other, other.lock(HERE):
        with pytest.raises(AcquireTimeout):
            await client.lock(HERE).acquire(timeout=0.2)
        assert (await client.lock(HERE).status()).waiting == 0


@crowded_too
async def test_a_client_that_is_closed_wakes_those_that_wait(api, cluster):
    async with api.client(cluster.url) as holder, holder.lock(HERE):
        client = api.client(cluster.url)
        await use(client, name=THERE)
        waiter = asyncio.create_task(take(client.lock(HERE)))
        await until_queued(holder.lock(HERE))
        await client.close()
        with pytest.raises(ClientClosed):
            await waiter
        await eventually_async(lambda: all(len(node.client_list(_type="pubsub")) <= 2 for node in cluster.nodes))


# --- primaries that are replaced


@pytest.fixture
def doubled():
    with Cluster(with_replicas=True) as cluster:
        yield cluster


@crowded_too
async def test_leases_and_waiters_survive_a_planned_failover(api, doubled):
    async with api.client(doubled.url) as client, api.client(doubled.url) as other:
        lease = await client.lock(HERE, ttl=12).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(client.lock(HERE))
        doubled.fail_over(0)  # older servers stand still for some seconds
        before = lease._state.deadline
        await eventually_async(lambda: lease._state.deadline > before, within=12)
        assert not waiter.done()
        assert await lease.release()
        assert await waiter > lease.fence


async def test_leases_that_replicas_have_are_renewed_and_survive_a_failover(api, doubled):
    async with api.client(doubled.url) as client:
        doubled.replicate()
        lock = client.lock(HERE, ttl=12, min_replicas=1, replica_timeout=0.5)
        lease = await lock.acquire()
        waiter = asyncio.create_task(take(lock))
        await until_queued(lock)
        doubled.fail_over(0)
        before = lease._state.deadline
        await eventually_async(lambda: lease._state.deadline > before, within=12)
        assert await lease.release()
        assert await waiter > lease.fence


async def test_leases_that_replicas_have_are_renewed_where_their_name_has_moved_before_its_slot(api, doubled):
    async with api.client(doubled.url) as client, api.client(doubled.url) as other:
        doubled.replicate()
        lease = await client.lock(HERE, ttl=1.5, min_replicas=1, replica_timeout=0.5).acquire()
        waiter = asyncio.create_task(take(other.lock(HERE)))
        await until_queued(client.lock(HERE))  # from then on there are two keys
        with doubled.moving(state_of(HERE), to=state_of(THERE)):
            assert doubled.move_keys(state_of(HERE), to=state_of(THERE)) == 2
            await asyncio.sleep(3)
            assert not lease.lost
            await lease.extend(12)
            doubled.end_move(state_of(HERE), to=state_of(THERE))
            assert await lease.release()
            assert await waiter > lease.fence


@crowded_too
async def test_a_replica_takes_the_place_of_a_primary_that_died(api, doubled):
    async with api.client(doubled.url, retry_for=30) as client:
        lease = await client.lock(HERE, ttl=20).acquire()
        waiter = asyncio.create_task(take(client.lock(HERE)))
        await until_queued(client.lock(HERE))
        doubled.replicate()
        doubled.kill(0)
        await use(client, name=THERE)
        await lease.extend(20)
        assert await lease.release()
        assert await waiter > lease.fence


async def test_what_goes_to_all_primaries_does_not_go_to_one_that_was_replaced(api, doubled):
    async with api.client(doubled.url) as client:
        await use(client, name=HERE)  # the primary that answers last is the one that dies
        doubled.replicate()
        doubled.kill(0)
        await eventually_async(
            lambda: all(map(knows_all, doubled.nodes[1:])) and is_primary(doubled.replicas[0]), within=30
        )
        assert [one.name for one in await all_of(client.names())] == [HERE]
        assert not [one for one in await client.check_server() if one.severity == "failure"]


@crowded_too
async def test_nothing_is_kept_of_former_primaries(api, doubled, monkeypatch):
    monkeypatch.setattr(shared, "IDLE_S", 1.0)

    async def hold_each():
        """Hold each name until its lease is renewed."""
        for name in map(name_at, range(NODES)):
            async with client.lock(name, ttl=12) as lease:
                lease._state.due_at = 0
                before = lease._state.deadline
                await eventually_async(lambda: lease._state.deadline > before)  # noqa: B023 -- called at once

    async with api.client(doubled.url) as client:
        await hold_each()
        for number in (0, 1):
            doubled.fail_over(number)
            await hold_each()
        await eventually_async(lambda: not doubled.replicas[0].client_list(_type="pubsub"))
        assert len([one for one in threading.enumerate() if one.name == "handfast-renewer"]) <= NODES + 1


def is_primary(node):
    return node.role()[0] == b"master"


async def test_a_cluster_may_have_numbered_databases(raw):
    if raw.info().get("valkey_version", "") < "9":
        pytest.skip("only a Valkey from 9 on has them")
    with started("--cluster-databases", "4") as server, redis.Redis.from_url(server.url) as node:
        node.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: field_of(node, "cluster_state") == "ok")
        url = f"redis+cluster://127.0.0.1:{node.config_get('port')['port']}"
        for api in (SYNC, ASYNCIO):
            async with api.client(f"{url}/3") as third, api.client(url) as first:
                lease = await third.lock(api.name).acquire()
                waiter = asyncio.create_task(take(third.lock(api.name)))
                await until_queued(third.lock(api.name))
                await take(first.lock(api.name))
                await lease.release()
                assert await waiter > lease.fence
                assert node.info("keyspace")["db3"]["keys"]
