"""Scripts on a cluster: the source is sent once to each node, and a call that no node could run is refused."""

from __future__ import annotations

import contextlib

import pytest
import redis.cluster
from redis.exceptions import ResponseError, WatchError

from handfast import Reply, Script, ScriptError
from tests._support.cluster import Cluster
from tests._support.helpers import settled
from tests._support.scripting import BOOM, COUNT, ECHO, OPTIONS, TAKE, named, pipeline, texts

KEYS = ["a", "b", "c"]
"""Keys on three different nodes."""

COUNTING = {"info", "config", "config|resetstat"}
"""Commands that the tests themselves send to the nodes."""

can_transact = pytest.mark.skipif(
    not hasattr(redis.cluster, "TransactionStrategy"), reason="this redis-py has no transactions on a cluster"
)


@pytest.fixture(scope="module")
def running():
    with Cluster() as cluster:
        assert {cluster.number_of(key) for key in KEYS} == {0, 1, 2}
        yield cluster


@pytest.fixture
def cluster(running):
    """Yield the cluster without keys and scripts."""
    running.flush()
    return running


@contextlib.asynccontextmanager
async def client_of(api, cluster, **options):
    client = api.library.RedisCluster(**cluster.address, **options)
    try:
        await settled(client.ping(target_nodes=client.ALL_NODES))
        yield client
    finally:
        await settled(client.aclose() if hasattr(client, "aclose") else client.close())


@pytest.fixture(params=OPTIONS, ids=named)
async def user(request, api, cluster):
    """Yield each kind of cluster client of redis-py in turn."""
    async with client_of(api, cluster, **request.param) as client:
        yield client


def told(cluster):
    """Return how often each node ran a script by its source and by its digest."""
    return [(calls.get("eval", 0), calls.get("evalsha", 0)) for calls in cluster.calls()]


async def test_the_source_is_sent_to_each_node_once(user, cluster):
    cluster.forget_calls()
    for count in (1, 2, 3):
        for key in KEYS:
            assert await settled(COUNT(user, counter=key)) == count
    assert told(cluster) == [(1, 3)] * 3


async def test_the_source_is_sent_again_only_to_the_node_that_lost_it(user, cluster):
    for key in KEYS:
        await settled(COUNT(user, counter=key))
    cluster.node_of("b").script_flush()
    cluster.forget_calls()
    for key in KEYS:
        assert await settled(COUNT(user, counter=key)) == 2
    assert told(cluster) == [(int(number == cluster.number_of("b")), 1) for number in range(3)]


async def test_keys_of_one_slot_are_accepted(user, cluster):
    cluster.node_of("{a}").set("{a}:account", 10)
    assert await settled(TAKE(user, account="{a}:account", log=b"{a}:log", amount=3)) == Reply("taken", {"left": 7})
    keys, _ = await settled(ECHO(user, keys=["a", b"a", "{a}", "{a}x", b"{a}y"]))
    assert texts(keys) == [b"a", b"a", b"{a}", b"{a}x", b"{a}y"]
    assert texts(await settled(ECHO(user, keys=[7, "7", b"{7}", "{7}8"])))[0] == [b"7", b"7", b"{7}", b"{7}8"]
    assert texts(await settled(ECHO(user, keys=[0.5, "{0.5}"])))[0] == [b"0.5", b"{0.5}"]


async def test_keys_of_two_slots_are_refused_before_any_io(user, cluster):
    cluster.forget_calls()
    async with pipeline(user) as pipe:
        for client in (user, pipe):
            for keys in (["a", "b"], ["a", "a", b"b"], ["{a}1", "{b}1"], [1, 2], ["", "a"]):
                with pytest.raises(
                    ValueError, match=r"the keys of 'echo' must share a slot of the cluster: .* do not; give"
                ):
                    await settled(ECHO(client, keys=keys))
            with pytest.raises(
                ValueError, match="the keys of 'take' must share a slot of the cluster: 'a' and 'l' do not"
            ):
                await settled(TAKE(client, account="a", log="l", amount=1))
        assert len(pipe) == 0
    assert [set(calls) - COUNTING for calls in cluster.calls()] == [set()] * 3


async def test_a_script_without_keys_runs_on_one_node(user, cluster):
    cluster.forget_calls()
    assert texts(await settled(ECHO(user, args=[1]))) == [[], [b"1"]]
    assert sum(eval_source for eval_source, _ in told(cluster)) == 1


async def test_a_failed_script_names_its_line_and_an_error_reply_is_raised_unchanged(user):
    with pytest.raises(ScriptError, match="'boom' failed on line 3: boom"):
        await settled(BOOM(user, counter="a"))
    foreign = Script("\nreturn redis.call('GET', 'b')", name="foreign")
    with pytest.raises(ScriptError, match=r"'foreign' failed on line 2: .*non local key"):
        await settled(foreign(user, keys=["a"]))
    meant = Script("return redis.error_reply('MY own words')")
    with pytest.raises(ResponseError, match=r"^MY own words$"):
        await settled(meant(user, keys=["a"]))
    assert await settled(COUNT(user, counter="a")) == 2


async def test_a_stub_takes_cluster_clients(api, cluster):
    def plain(client, *, counter="a") -> str: ...

    async def coroutine(client, *, counter="a") -> str: ...

    for options in OPTIONS:
        async with client_of(api, cluster, **options) as client:
            cluster.flush()
            fitting, other = (plain, coroutine) if api.name == "sync" else (coroutine, plain)
            assert await settled(COUNT.typed(fitting)(client)) == "1"
            with pytest.raises(TypeError, match=r"takes an? "):
                await settled(COUNT.typed(other)(client))


async def test_a_moved_slot_is_followed_and_the_source_sent_to_the_new_node(api, cluster):
    async with client_of(api, cluster) as client:
        assert await settled(COUNT(client, counter="a")) == 1
        cluster.node_of("a").delete("a")
        with cluster.moved("a", to="b"):
            cluster.forget_calls()
            assert [await settled(COUNT(client, counter="a")) for _ in range(2)] == [1, 2]
            assert told(cluster)[cluster.number_of("b")] == (1, 2)
            cluster.node_of("b").delete("a")


# --- pipelines


async def test_a_cluster_pipeline_sends_the_source_with_every_call(user, cluster):
    async with pipeline(user) as pipe:
        for round_ in range(2):
            cluster.forget_calls()
            for key in [*KEYS, *KEYS]:
                assert COUNT(pipe, counter=key) is pipe
            for node in cluster.nodes:
                node.script_flush()
            counts = [2 * round_ + 1] * 3 + [2 * round_ + 2] * 3
            assert await settled(pipe.execute()) == counts
            assert told(cluster) == [(2, 0)] * 3


async def test_explain_locates_the_error_of_a_pipeline(user):
    script = Script("-- KEYS key\nlocal x = 'it\\'s \"it\"'\nreturn x .. error('it\\'s \"it\"')", name="odd")
    async with pipeline(user) as pipe:
        COUNT(pipe, counter="b")
        script(pipe, key="a")
        with pytest.raises(ResponseError) as caught:
            await settled(pipe.execute())
        explained = script.explain(caught.value)
        assert isinstance(explained, ScriptError)
        assert (explained.name, explained.line, explained.reason) == ("odd", 3, 'it\'s "it"')
        assert explained.__cause__ is caught.value

        COUNT(pipe, counter="b")
        script(pipe, key="a")
        count, error = await settled(pipe.execute(raise_on_error=False))
        assert count == 2
        assert (script.explain(error).line, script.explain(error).reason) == (3, explained.reason)


@can_transact
async def test_a_cluster_transaction_runs_scripts_after_script_flush(user, cluster):
    async with pipeline(user, transaction=True) as pipe:
        for round_ in range(2):
            COUNT(pipe, counter="a")
            COUNT(pipe, counter="a")
            cluster.node_of("a").script_flush()
            assert await settled(pipe.execute()) == [2 * round_ + 1, 2 * round_ + 2]


@can_transact
async def test_a_watching_cluster_transaction_runs_scripts_at_once_until_multi(user, cluster):
    cluster.node_of("{a}").set("{a}:account", 10)
    values = {"account": "{a}:account", "log": "{a}:log"}
    async with pipeline(user, transaction=True) as pipe:
        for have in (10, 7):
            await settled(pipe.watch("{a}:watched"))
            cluster.node_of("a").script_flush()
            assert await settled(TAKE(pipe, **values, amount=100)) == Reply("short", {"missing": 100 - have})
            with pytest.raises(ScriptError, match="'boom' failed on line 3"):
                await settled(BOOM(pipe, counter="{a}:boom"))
            pipe.multi()
            assert TAKE(pipe, **values, amount=1) is pipe
            assert TAKE(pipe, **values, amount=2) is pipe
            replies = [TAKE.read(reply) for reply in await settled(pipe.execute())]
            assert replies == [Reply("taken", {"left": have - 1}), Reply("taken", {"left": have - 3})]
        await settled(pipe.watch("{a}:watched"))
        cluster.node_of("a").set("{a}:watched", 1)
        pipe.multi()
        TAKE(pipe, **values, amount=1)
        with pytest.raises(WatchError):
            await settled(pipe.execute())
    assert cluster.node_of("a").get("{a}:account") == b"4"
