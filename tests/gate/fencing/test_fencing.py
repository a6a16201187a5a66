"""Fenced writes of Redis values: with every kind of client, in both APIs, and by a writer that was paused."""

from __future__ import annotations

import contextlib
import inspect
import pickle
from datetime import timedelta
from functools import partial
from importlib.resources import files

import pytest
import redis
import redis.asyncio
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ResponseError, WatchError
from redis.retry import Retry

from handfast import HandfastError, ScriptError, ServerRefused, fencing
from handfast.fencing import (
    LARGEST_FENCE,
    StaleFence,
    advance_fence,
    delete_if_newer,
    explain,
    guard_key,
    hset_if_newer,
    latest_fence,
    set_if_newer,
)
from handfast.testing import FaultProxy, containing
from tests._support.apis import SYNC
from tests._support.engine import runs_through
from tests._support.helpers import ends_first, eventually, more, settled
from tests._support.scripting import OPTIONS, made, named, pipeline

ODD = [
    "",
    "a b",
    "a}b",
    "a}{b",
    "{a}",
    "{a}b",
    "a{b}c",
    "{}",
    "{}a",
    "{}{a}",
    "{",
    "}",
    "{{a}}",
    "{a",
    "a\0b",
    "a\nb",
    "ä{é}",
]

ODD += ["{{}", "}{", "😀", "x" * 3000, "hf:fence:", "m4l:"]
"""Names with unusual hash tags or characters."""

OLD, NOW, NEW = 1_763_729_675_123_455, 1_763_729_675_123_456, 1_763_729_675_123_457
"""Fences a microsecond apart, as leases have them."""

WRITES = {
    "set": lambda client, key, fence, **more: set_if_newer(client, key, f"by {fence}", fence, **more),
    "hset": lambda client, key, fence, **more: hset_if_newer(client, key, {"f": f"by {fence}"}, fence, **more),
    "delete": delete_if_newer,
    "advance": advance_fence,
}
"""Every function that can refuse a write."""


@pytest.fixture(
    params=[*ends_first(OPTIONS), "handfast"], ids=lambda options: options if options == "handfast" else named(options)
)
async def user(request, api, server, raw):
    """Each kind of client: of redis-py and of Handfast."""
    if request.param == "handfast":
        async with made(api, server.url) as client:
            yield client
    else:
        async with api.users_client(unix_socket_path=server.socket, **request.param) as client:
            yield client


@pytest.fixture(params=ends_first(OPTIONS), ids=named)
async def theirs(request, api, server, raw):
    """Each kind of client of redis-py."""
    async with api.users_client(unix_socket_path=server.socket, **request.param) as client:
        yield client


@pytest.fixture
async def some(api, server, raw):
    """One client of each API."""
    async with api.users_client(unix_socket_path=server.socket) as client:
        yield client


async def refused(call):
    """Return the error of a refused call."""
    with pytest.raises(StaleFence) as caught:
        await settled(call())
    return caught.value


def everything(raw):
    """Return all keys with their values, and whether they have a TTL."""
    read = {"string": raw.get, "hash": raw.hgetall}
    return {key: (read[raw.type(key)](key), raw.pttl(key) > 0) for key in raw.scan_iter()}


# --- values


async def test_older_fence_is_refused_and_equal_or_newer_ones_pass(user, raw):
    assert await settled(set_if_newer(user, "k", "a", NOW)) is None
    assert await settled(set_if_newer(user, "k", "b", NOW)) is None, "a holder writes more than once"
    stale = await refused(lambda: set_if_newer(user, "k", "c", OLD))
    assert (stale.key, stale.fence, stale.newer) == ("k", OLD, NOW)
    assert raw.get("k") == "b"
    assert await settled(set_if_newer(user, "k", "d", NEW)) is None
    assert (await refused(lambda: set_if_newer(user, "k", "e", NOW))).newer == NEW
    assert raw.get("k") == "d"
    assert await settled(latest_fence(user, "k")) == NEW


async def test_stale_fence_names_the_key_both_fences_and_the_remedy(some, raw):
    await settled(set_if_newer(some, b"k\xff", "a", NEW))
    stale = await refused(lambda: set_if_newer(some, b"k\xff", "b", OLD))
    assert isinstance(stale, HandfastError)
    assert str(stale).startswith(
        rf"a write to b'k\xff' with fence {OLD} was refused: the resource has seen the newer fence {NEW}, so the lock was lost"
    )
    assert stale.name == r"k\xff"
    assert isinstance(stale.__cause__, ResponseError)
    again = pickle.loads(pickle.dumps(stale))
    assert (type(again), str(again), again.key, again.fence, again.newer) == (
        StaleFence,
        str(stale),
        b"k\xff",
        OLD,
        NEW,
    )
    raw.flushall()  # the key is not UTF-8, which later readers would choke on


async def test_asyncio_clients_return_awaitables_and_sync_clients_results(user, api):
    calls = [
        latest_fence(user, "k"),
        *(write(user, "k", 5) for write in WRITES.values() if write is not WRITES["hset"]),
    ]
    assert [inspect.iscoroutine(call) for call in calls] == [api is not SYNC] * 4
    for call in calls:
        assert await settled(call) is None


@pytest.mark.parametrize("fences", [(OLD, NOW, NEW), (2**53 - 3, 2**53 - 2, 2**53 - 1), (9, 10, 11), (0, 1, 2)])
async def test_fences_keep_all_digits(some, raw, fences):
    for fence in fences:
        await settled(set_if_newer(some, "k", fence, fence))
        assert raw.get(guard_key("k")) == str(fence)
        assert await settled(latest_fence(some, "k")) == fence
    *older, newest = fences
    for fence in older:
        stale = await refused(lambda fence=fence: set_if_newer(some, "k", "x", fence))
        assert (stale.fence, stale.newer) == (fence, newest)
    assert raw.get("k") == str(newest)


async def test_values_of_all_types_are_written_unchanged(theirs, raw):
    for value, stored in ((b"\xff\0", b"\xff\0"), ("ä\r\n", "ä\r\n".encode()), (7, b"7"), (0.5, b"0.5"), ("", b"")):
        await settled(set_if_newer(theirs, b"k", value, NOW))
        assert redis.Redis(connection_pool=raw.connection_pool).execute_command("GET", "k", NEVER_DECODE=True) == stored


async def test_key_as_str_and_as_bytes_is_the_same(some, raw):
    await settled(set_if_newer(some, "ä", "a", NEW))
    await refused(lambda: set_if_newer(some, "ä".encode(), "b", OLD))
    assert await settled(latest_fence(some, "ä".encode())) == NEW
    assert raw.get("ä") == "a"


async def test_ttl_applies_to_the_value_and_not_to_the_guard(some, raw):
    await settled(set_if_newer(some, "k", "a", NOW, ttl=1000))
    assert raw.get("k") == "a"
    assert 990_000 < raw.pttl("k") <= 1_000_000
    assert raw.pttl(guard_key("k")) == -1
    await settled(set_if_newer(some, "k", "a", NOW, ttl=timedelta(days=300)))
    assert raw.pttl("k") > 299 * 86_400_000
    await settled(set_if_newer(some, "k", "a", NOW))
    assert raw.pttl("k") == -1, "as SET does"
    await settled(set_if_newer(some, "k", "a", NOW, ttl=timedelta(milliseconds=1)))
    eventually(lambda: not raw.exists("k"))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_guard_ttl_is_that_of_the_last_write_that_passed(some, raw, write):
    guard = guard_key("k")
    for options, ttl in (({"guard_ttl": 100}, 100_000), ({"guard_ttl": timedelta(seconds=9)}, 9_000), ({}, -1)):
        await settled(write(some, "k", NOW, **options))
        assert ttl - 5_000 < raw.pttl(guard) <= ttl
        await refused(lambda: write(some, "k", OLD, guard_ttl=50_000))
        assert raw.pttl(guard) <= ttl, "a refused write changes nothing"
    await settled(write(some, "k", NOW, guard_ttl=0.001))
    eventually(lambda: not raw.exists(guard))
    assert await settled(write(some, "k", OLD)) is None, "the fence is forgotten"


async def test_keys_have_separate_fences(some, raw):
    for place, key in enumerate(ODD):
        await settled(set_if_newer(some, key, place, 100 + place))
    for place, key in enumerate(ODD):
        assert raw.get(key) == str(place)
        assert (
            await refused(lambda place=place, key=key: set_if_newer(some, key, "x", 99 + place))
        ).newer == 100 + place


# --- hashes, deletions, fences alone


async def test_fields_of_a_hash_share_a_fence(user, raw):
    assert await settled(hset_if_newer(user, "h", {"a": 1, "b": "two"}, NOW)) is None
    assert await settled(hset_if_newer(user, "h", {b"c": b"3"}, NEW)) is None
    for fields in ({"a": "x"}, {"new": "x"}, {"a": "x", "c": "x"}):
        assert (await refused(lambda fields=fields: hset_if_newer(user, "h", fields, NOW))).newer == NEW
    assert raw.hgetall("h") == {"a": "1", "b": "two", "c": "3"}
    raw.pexpire("h", 50_000)
    await settled(hset_if_newer(user, "h", {"a": 2}, NEW))
    assert 0 < raw.pttl("h") <= 50_000, "as HSET does"


async def test_hash_may_have_thousands_of_fields(some, raw):
    for count in (1, 499, 500, 501, 1000, 20_000):
        fields = {f"f{number}": str(number) for number in range(count)}
        await settled(hset_if_newer(some, "h", fields, NOW))
        assert raw.hgetall("h") == fields


async def test_delete_keeps_the_fence(user, raw):
    raw.rpush("k", "a", "list")
    assert await settled(delete_if_newer(user, "k", NOW)) is None
    assert not raw.exists("k")
    assert await settled(delete_if_newer(user, "k", NOW)) is None, "the key is deleted already"
    for write in WRITES.values():
        assert (await refused(lambda write=write: write(user, "k", OLD))).newer == NOW
    assert list(raw.scan_iter()) == [guard_key("k")]
    await settled(set_if_newer(user, "k", "again", NEW))
    await refused(lambda: delete_if_newer(user, "k", NOW))
    assert raw.get("k") == "again"


async def test_advance_fence_refuses_older_fences_without_a_write(user, raw):
    await settled(set_if_newer(user, "k", "a", OLD))
    assert await settled(advance_fence(user, "k", NEW)) is None
    assert await settled(advance_fence(user, "k", NEW)) is None
    assert raw.get("k") == "a"
    for write in WRITES.values():
        await refused(lambda write=write: write(user, "k", NOW))
    assert raw.get("k") == "a"
    await settled(set_if_newer(user, "k", "b", NEW))


async def test_fence_guards_a_key_of_any_type(some, raw):
    await settled(set_if_newer(some, "k", "a", 1))
    await settled(delete_if_newer(some, "k", 2))
    await settled(hset_if_newer(some, "k", {"f": "v"}, 3))
    await refused(lambda: set_if_newer(some, "k", "a", 2))
    await settled(set_if_newer(some, "k", "as SET does", 3))
    assert raw.get("k") == "as SET does"


async def test_latest_fence_is_none_before_the_first_write(user, raw):
    assert await settled(latest_fence(user, "k")) is None
    raw.set("k", "written around the guard")
    assert await settled(latest_fence(user, "k")) is None
    await settled(advance_fence(user, "k", 0))
    assert await settled(latest_fence(user, "k")) == 0


# --- invalid arguments


@pytest.fixture
async def unreachable(api):
    """A client whose commands all fail."""
    client = api.library.Redis(host="127.0.0.1", port=1)
    yield client
    await settled(client.close() if api is SYNC else client.aclose())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_invalid_fences_are_refused_before_anything_is_sent(unreachable, write):
    for fence in (True, False, None, 1.0, float(NOW), "5", b"5"):
        with pytest.raises(TypeError, match=r"a fence must be an int, such as lease\.fence, not "):
            write(unreachable, "k", fence)
    for fence in (-1, 2**53, 2**63, 10**30):
        with pytest.raises(ValueError, match=r"a fence must be from 0 to 2\*\*53 - 1, not "):
            write(unreachable, "k", fence)
    assert LARGEST_FENCE == 2**53 - 1


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_invalid_keys_and_durations_are_refused_before_anything_is_sent(unreachable, write):
    for key in (None, 5, 0.5, True, ["k"], bytearray(b"k")):
        with pytest.raises(TypeError, match="a key must be str or bytes, not "):
            write(unreachable, key, NOW)
    for key in (guard_key("k"), guard_key(b"k"), guard_key("")):
        with pytest.raises(
            ValueError, match="is the name of a guard, which stores a fence; it cannot be used for values"
        ):
            write(unreachable, key, NOW)
    for ttl, error in (
        (0, ValueError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (True, TypeError),
        ("5", TypeError),
    ):
        with pytest.raises(error, match="guard_ttl must be "):
            write(unreachable, "k", NOW, guard_ttl=ttl)
        with pytest.raises(error, match=r"^ttl must be "):
            set_if_newer(unreachable, "k", "v", NOW, ttl=ttl)


async def test_invalid_values_mappings_and_clients_are_refused_before_anything_is_sent(unreachable):
    for value in (None, True, ["a"], {"a": 1}):
        with pytest.raises(TypeError, match="data of the script 'value_set' must be str, bytes, int or float"):
            set_if_newer(unreachable, "k", value, NOW)
    for mapping in ([("a", 1)], "ab", None):
        with pytest.raises(TypeError, match="the fields must be a mapping, not "):
            hset_if_newer(unreachable, "k", mapping, NOW)
    for mapping in ({"a": None}, {None: "a"}):
        with pytest.raises(TypeError, match="must be str, bytes, int or float"):
            hset_if_newer(unreachable, "k", mapping, NOW)
    with pytest.raises(ValueError, match="at least one field"):
        hset_if_newer(unreachable, "k", {}, NOW)
    with pytest.raises(TypeError, match="a script takes a client of redis-py, a Handfast or an AsyncHandfast"):
        set_if_newer("localhost", "k", "v", NOW)


# --- conflicts


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_guard_that_is_not_a_number_refuses_every_fence(user, raw, write):
    for nonsense in ("", "abc", "nan", "5 STALEFENCE 1 is older than x"):
        raw.set(guard_key("k"), nonsense)
        with pytest.raises((ResponseError, ServerRefused), match=f"STALEFENCE {NOW} is older than {nonsense}"):
            await settled(write(user, "k", NOW))
    raw.delete(guard_key("k"))
    raw.rpush(guard_key("k"), "a list")
    with pytest.raises(ScriptError, match="WRONGTYPE"):
        await settled(write(user, "k", NOW))
    assert list(raw.scan_iter()) == [guard_key("k")]


async def test_key_of_another_type_raises_and_changes_nothing(user, raw):
    raw.set("k", "text")
    await settled(advance_fence(user, "k", OLD))
    before = everything(raw)
    with pytest.raises(ScriptError, match="WRONGTYPE"):
        await settled(hset_if_newer(user, "k", {"f": "v"}, NEW))
    assert everything(raw) == before


@pytest.mark.parametrize("known", [None, OLD, NOW])
async def test_at_maxmemory_writes_are_refused_whole_and_delete_works(user, raw, known):
    raw.hset("h", "f", "before")
    for key in ("k", "h"):
        if known is not None:
            await settled(advance_fence(user, key, known))
    before = everything(raw)
    raw.config_set("maxmemory", 1)
    for write, key in (("set", "k"), ("hset", "h"), ("advance", "k")):
        with pytest.raises((redis.ResponseError, ServerRefused), match="maxmemory"):
            await settled(WRITES[write](user, key, NOW))
    assert everything(raw) == before
    await settled(delete_if_newer(user, "h", NOW))
    assert not raw.exists("h")
    raw.config_set("maxmemory", 0)
    assert await settled(latest_fence(user, "h")) == NOW


async def test_unfenced_write_passes_and_leaves_the_guard(some, raw):
    await settled(set_if_newer(some, "k", "a", NEW))
    raw.set("k", "around")
    await refused(lambda: set_if_newer(some, "k", "b", OLD))
    assert raw.get("k") == "around"
    raw.delete("k")
    await refused(lambda: set_if_newer(some, "k", "b", OLD))


async def test_fences_of_a_lock_grow_after_flushall(hf, some, raw):
    held = hf.lock("a").acquire()
    await settled(set_if_newer(some, "k", "a", held.fence))
    raw.flushall()
    with hf.lock("a") as lease:
        await settled(set_if_newer(some, "k", "b", lease.fence))
    assert (await refused(lambda: set_if_newer(some, "k", "c", held.fence))).newer == lease.fence
    held.release()


async def test_server_counts_refusals_as_errors(some, raw):
    raw.config_resetstat()
    await settled(set_if_newer(some, "k", "a", NEW))
    for _ in range(3):
        await refused(lambda: set_if_newer(some, "k", "a", OLD))
    assert raw.info("errorstats")["errorstat_STALEFENCE"] == {"count": 3}


# --- lost replies


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("what", ["lose_reply", *more("lose_request")])
@pytest.mark.parametrize("ours", [True, False], ids=["handfast", "redis-py"])
async def test_call_sent_again_after_a_lost_reply_passes(api, proxy, raw, what, ours):
    retry = (Retry if api is SYNC else AsyncRetry)(NoBackoff(), 3)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            made(api, proxy.url)
            if ours
            else api.users_client(unix_socket_path=proxy.path, retry=retry, retry_on_error=[redis.ConnectionError])
        )
        for fence, (name, write) in enumerate(WRITES.items(), 1):
            await settled(write(client, f"warm:{name}", fence))
            raw.delete("k")
            fault = getattr(proxy, what)(containing(guard_key(b"k")))
            assert await settled(write(client, "k", fence)) is None, name
            assert fault.spent
            assert await settled(latest_fence(client, "k")) == fence
            assert (raw.get("k") if name != "hset" else raw.hget("k", "f")) == (
                f"by {fence}" if name in {"set", "hset"} else None
            )
            if fence > 1:
                fault = getattr(proxy, what)(containing(guard_key(b"k")))
                assert (await refused(lambda write=write, fence=fence: write(client, "k", fence - 1))).newer == fence
                assert fault.spent


# --- pipelines


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "plain"])
async def test_pipeline_raises_a_refusal(theirs, raw, transaction):
    await settled(set_if_newer(theirs, "old", "a", NEW))
    hostile = "STALEFENCE 1 is older than 2"
    async with pipeline(theirs, transaction=transaction) as pipe:
        assert set_if_newer(pipe, "k", "a", NOW) is pipe
        assert set_if_newer(pipe, "old", hostile, OLD) is pipe
        assert latest_fence(hset_if_newer(pipe, "h", {"f": "v"}, NOW), "k") is pipe
        with pytest.raises(ResponseError) as caught:
            await settled(pipe.execute())
        stale = explain(caught.value)
        assert (type(stale), stale.key, stale.fence, stale.newer) == (StaleFence, None, OLD, NEW)
        assert stale.__cause__ is caught.value
        assert str(stale).startswith(
            f"a write with fence {OLD} was refused: the resource has seen the newer fence {NEW}"
        )
        assert (raw.get("k"), raw.get("old"), raw.hget("h", "f")) == ("a", "a", "v"), (
            "the other queued commands have run"
        )

        set_if_newer(set_if_newer(pipe, "k", "b", NOW), "old", "x", OLD)
        delete_if_newer(advance_fence(pipe, "h", NEW), "h", NOW)
        latest_fence(pipe, "old")
        *given, latest = await settled(pipe.execute(raise_on_error=False))
        assert [isinstance(explain(one), StaleFence) if isinstance(one, Exception) else one for one in given] in (
            [b"OK", True, b"OK", True],
            ["OK", True, "OK", True],
        )
        assert int(latest) == NEW
    assert raw.get("k") == "b"


async def test_explain_returns_other_errors_unchanged(some):
    for error in (
        ResponseError("ERR no"),
        redis.ConnectionError("gone"),
        ResponseError("STALEFENCE 1 is older than 2 men"),
    ):
        assert explain(error) is error


async def test_watching_pipeline_runs_calls_at_once_until_multi(theirs, raw):
    await settled(set_if_newer(theirs, "k", "a", NOW))
    async with pipeline(theirs) as pipe:
        await settled(pipe.watch("watched"))
        assert await settled(latest_fence(pipe, "k")) == NOW
        await refused(lambda: set_if_newer(pipe, "k", "b", OLD))
        pipe.multi()
        assert set_if_newer(pipe, "k", "c", NEW) is pipe
        raw.set("watched", 1)
        with pytest.raises(WatchError):
            await settled(pipe.execute())
    assert raw.get("k") == "a"


# --- slots and clusters


@given(key=st.text(alphabet=st.sampled_from("{}ab:é\0"), max_size=12) | st.text(max_size=20))
@settings(max_examples=500, deadline=None)
def test_guard_shares_the_slot_of_its_key(key):
    key = key.encode(errors="surrogatepass")
    assume(not key.startswith(guard_key(b"")))
    assert key_slot(guard_key(key)) == key_slot(key)
    assert guard_key(key).endswith(key)


# --- model


class Model:
    """A model of the functions in Python."""

    def __init__(self):
        self.values, self.fences = {}, {}

    def write(self, name, key, fence):
        """Return whether the write passes."""
        if fence < self.fences.get(key, 0):
            return False
        self.fences[key] = fence
        if name == "set":
            self.values[key] = f"by {fence}".encode()
        elif name == "delete":
            self.values.pop(key, None)
        return True


KEYS = st.sampled_from([*ODD, *(key.encode() for key in ODD), b"\xff}", b"{\xff}"]) | st.text(
    st.characters(codec="utf-8"), max_size=5
)

FENCES = st.sampled_from([0, 1, 2, 9, 10, 99, 100, OLD, NOW, NEW, 2**53 - 2, 2**53 - 1]) | st.integers(0, 2**53 - 1)

CALLS = st.tuples(st.sampled_from(["set", "set", "set", "delete", "advance"]), KEYS, FENCES)


@given(calls=st.lists(CALLS, min_size=1, max_size=12))
async def test_values_behave_as_their_model(some, raw, calls):
    raw.flushall()
    model = Model()
    for name, key, fence in calls:
        data = key if isinstance(key, bytes) else key.encode()
        newest = model.fences.get(data)
        if model.write(name, data, fence):
            assert await settled(WRITES[name](some, key, fence)) is None
        else:
            stale = await refused(lambda name=name, key=key, fence=fence: WRITES[name](some, key, fence))
            assert (stale.key, stale.fence, stale.newer) == (key, fence, newest)
        assert await settled(some.get(data)) == model.values.get(data)
        assert await settled(latest_fence(some, key)) == model.fences[data]
    found = (
        {key async for key in some.scan_iter(count=1000)}
        if inspect.isasyncgen(some.scan_iter())
        else {*some.scan_iter()}
    )
    assert found == {*model.values, *map(guard_key, model.fences)}
    raw.flushall()  # some keys are no texts, and so nothing for those who read texts


# --- scripts that fail halfway


WRITERS = {
    "value_set": ("string", ["new", 9, 0, 0], "new"),
    "hash_set": ("hash", [9, 0, "field", "new"], "new"),
    "value_delete": ("string", [9, 0], None),
    "fence_advance": ("string", [9, 0], "old"),
}


@pytest.mark.parametrize("script", WRITERS)
def test_every_prefix_of_the_writes_has_the_fence_first(raw, script):
    """A script that fails at any line has written nothing, or the fence first; sent again, it completes."""
    kind, args, outcome = WRITERS[script]
    source = (files("handfast.fencing") / f"lua/{script}.lua").read_text(encoding="utf-8")
    keys = [guard_key("k")] if script == "fence_advance" else ["k", guard_key("k")]
    read = partial(raw.hget, "k", "field") if kind == "hash" else partial(raw.get, "k")
    done, calls = False, 0
    while not done:
        raw.flushdb()
        if kind == "hash":
            raw.hset("k", "field", "old")
        else:
            raw.set("k", "old")
        advance_fence(raw, "k", 5)
        done = runs_through(raw, source, keys, args, calls)
        if latest_fence(raw, "k") == 5:
            assert read() == "old"
        else:
            with pytest.raises(StaleFence):
                advance_fence(raw, "k", 8)
        assert raw.execute_command("EVAL", source, len(keys), *keys, *args) == "OK"
        assert (read(), latest_fence(raw, "k")) == (outcome, 9)
        calls += 1
    assert calls > 2


# --- the package


def test_scripts_document_twice_late_and_memory():
    scripts = [path for path in (files("handfast.fencing") / "lua").iterdir() if path.name.endswith(".lua")]
    assert len(scripts) == 5
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        for question in ("TWICE", "LATE", "MEMORY"):
            assert f"\n-- {question} " in text, f"{path.name} does not say: {question}"


def test_public_names_are_listed_and_documented():
    in_order = sorted(fencing.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert in_order == list(fencing.__all__)
    for name in fencing.__all__:
        value = getattr(fencing, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert value.__module__ == "handfast.fencing"
        if name != "LARGEST_FENCE":
            assert inspect.getdoc(value), f"{name} has no docstring"
        if inspect.isfunction(value) and name not in {"explain", "guard_key", "update_if_newer"}:
            assert next(iter(inspect.signature(value).parameters)) == "client"
