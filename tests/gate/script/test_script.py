"""User scripts through every client of one server: requests, replies and refused arguments."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
import hashlib
import pickle
import sys

import pytest
import redis
import redis.asyncio
from redis.exceptions import ResponseError

from handfast import AsyncHandfast, Handfast, HandfastError, Reply, Script, ScriptError, ServerRefused
from tests._support.helpers import ends_first, eventually_async, settled
from tests._support.scripting import BOOM, COUNT, ECHO, OPTIONS, TAKE, Sent, made, named, pipeline, texts


@pytest.fixture(params=ends_first(OPTIONS), ids=named)
async def user(request, api, server, raw):
    """Yield each kind of client of redis-py in turn; flush its scripts afterwards."""
    async with api.users_client(unix_socket_path=server.socket, **request.param) as client:
        yield client
    raw.script_flush()


@pytest.fixture
async def conn(api, server, raw):
    """Yield a client of redis-py with common options."""
    async with api.users_client(unix_socket_path=server.socket) as client:
        yield client
    raw.script_flush()


@pytest.fixture
async def ours(api, server, raw):
    """Yield a Handfast client itself rather than its awaitable face, for scripts to take."""
    async with made(api, server.url) as client:
        yield client
    raw.script_flush()


# --- attributes and sources


def test_a_script_exposes_its_name_source_digest_and_parameters(raw):
    assert (TAKE.name, TAKE.keys, TAKE.args) == ("take", ("account", "log"), ("amount",))
    assert TAKE.source.startswith("\n-- take: part of an amount.")
    assert TAKE.digest == raw.script_load(TAKE.source) == hashlib.sha1(TAKE.source.encode()).hexdigest()
    assert repr(TAKE) == "<Script 'take' (account, log, amount)>"
    assert repr(Script("return 1")) == "<Script 'script' (no names)>"


def test_a_script_is_loaded_from_a_file_or_a_package(raw, tmp_path, monkeypatch):
    source = "-- KEYS a\n-- été\nreturn KEYS[1]"
    folder = tmp_path / "some_package_of_ours" / "lua"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "give.lua").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    made = [
        Script.from_file(folder / "give.lua"),
        Script.from_file(str(folder / "give.lua")),
        Script.from_package("some_package_of_ours", "lua/give.lua"),
    ]
    sys.modules.pop("some_package_of_ours", None)
    assert {(one.name, one.source, one.digest) for one in made} == {("give", source, raw.script_load(source))}
    assert [one(raw, a="x") for one in made] == ["x"] * 3


def test_line_endings_do_not_change_the_digest_of_a_script(tmp_path):
    (tmp_path / "one.lua").write_bytes(b"-- KEYS a\nreturn 1\n")
    (tmp_path / "two.lua").write_bytes(b"-- KEYS a\r\nreturn 1\r\n")
    assert Script.from_file(tmp_path / "one.lua").digest == Script.from_file(tmp_path / "two.lua").digest


def test_invalid_sources_are_refused(tmp_path):
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        Script(b"return 1")
    with pytest.raises(ValueError, match="twice"):
        Script("-- KEYS a a")
    with pytest.raises(FileNotFoundError):
        Script.from_file(tmp_path / "none.lua")


def test_a_script_can_be_copied_and_pickled(raw):
    raw.mset({"a": 10})
    for again in (pickle.loads(pickle.dumps(TAKE)), copy.copy(TAKE), copy.deepcopy(TAKE)):
        assert (again.digest, again.keys) == (TAKE.digest, TAKE.keys)
        assert again(raw, account="a", log="l", amount=1).tag == "taken"


# --- arguments and replies


async def test_keys_and_arguments_are_passed_by_name_and_the_reply_is_a_record(user, raw):
    raw.set("a", 10)
    assert await settled(TAKE(user, account="a", log="l", amount=3)) == Reply("taken", {"left": 7})
    assert await settled(TAKE(user, amount=8, log="l", account=b"a")) == Reply("short", {"missing": 1})
    assert raw.lrange("l", 0, -1) == ["3"]


async def test_a_handfast_client_runs_the_same_script(ours, raw):
    raw.set("a", 10)
    assert await settled(TAKE(ours, account="a", log="l", amount=3)) == Reply("taken", {"left": 7})
    assert await settled(ECHO(ours, keys=["k"], args=["é"])) == [[b"k"], ["é".encode()]]


async def test_without_a_header_keys_and_arguments_are_sequences(user):
    for values, expected in [
        ({"keys": ["a", b"b"], "args": (1, 2)}, [[b"a", b"b"], [b"1", b"2"]]),
        ({"keys": iter("ab")}, [[b"a", b"b"], []]),
        ({"args": {"x": 1}.keys()}, [[], [b"x"]]),
        ({}, [[], []]),
    ]:
        assert texts(await settled(ECHO(user, **values))) == expected


async def test_a_name_with_three_dots_takes_any_number_of_values(user):
    many = Script("-- KEYS first more...\n-- ARGV arg rest...\nreturn {KEYS, ARGV}")
    for more, expected in [(["b", b"c"], [b"b", b"c"]), ((), []), ((one for one in "bc"), [b"b", b"c"])]:
        reply = await settled(many(user, first="a", more=more, arg=0, rest=more if isinstance(more, list) else []))
        assert texts(reply) == [[b"a", *expected], [b"0", *(expected if isinstance(more, list) else [])]]


async def test_parameter_names_of_the_library_and_python_keywords_are_valid_names(user):
    odd = Script("-- KEYS keys client from\n-- ARGV args self name class\nreturn {KEYS, ARGV}")
    values = {"keys": "1", "client": "2", "from": "3", "args": "4", "self": "5", "name": "6", "class": "7"}
    assert texts(await settled(odd(user, **values))) == [[b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"]]


class Level(enum.IntEnum):
    HIGH = 3


class Word(str, enum.Enum):  # noqa: UP042 -- a StrEnum prints as its text, this one does not
    YES = "yes"


class Shout(bytes):
    def __str__(self):
        return "!"


class Cents(float):
    def __repr__(self):
        return "cents"


VALUES = [
    ("", b""),
    ("é\U0001f512", "é\U0001f512".encode()),
    (b"\x00\xff\r\n$3\r\n", b"\x00\xff\r\n$3\r\n"),
    (0, b"0"),
    (-7, b"-7"),
    (10**40, b"1" + b"0" * 40),
    (1.5, b"1.5"),
    (0.1, b"0.1"),
    (3.0, b"3.0"),
    (1e22, b"1e+22"),
    (-0.0, b"-0.0"),
    (float("inf"), b"inf"),
    ("x" * 100_000, b"x" * 100_000),
    (Level.HIGH, b"3"),
    (Word.YES, b"yes"),
    (Shout(b"s"), b"s"),
    (Cents(2.5), b"2.5"),
]


async def test_values_reach_the_script_unchanged(conn, ours):
    given, expected = zip(*VALUES, strict=True)
    for client in (conn, ours):
        keys, args = await settled(ECHO(client, keys=given, args=given))
        assert tuple(keys) == expected
        assert tuple(args) == expected


async def test_a_client_with_an_encoding_of_its_own_sends_the_same_script(api, server, raw):
    script = Script("-- été\nreturn ARGV[1]")
    async with api.users_client(unix_socket_path=server.socket, encoding="latin-1") as client:
        assert await settled(script(client, args=["é"])) == b"\xe9"
        assert raw.script_exists(script.digest) == [True]
        async with pipeline(client) as pipe:
            script(script(pipe, args=[1]), args=[2])
            assert await settled(pipe.execute()) == [b"1", b"2"]


async def test_a_reply_that_the_header_does_not_list_is_refused_unless_it_describes_others(user):
    listed = "-- REPLY done\n"
    for source in ("return 1", "return {'other'}", "return {'done', 1}", "return false", "return {}"):
        with pytest.raises(ValueError, match="the script 'odd': its header does not list the reply"):
            await settled(Script(listed + source, name="odd")(user))
        described = Script(f"{listed}-- REPLY - anything\n{source}")
        plain = Script(source)
        assert await settled(described(user)) == await settled(plain(user))
    assert await settled(Script(f"{listed}return {{'done'}}")(user)) == Reply("done", {})


async def test_strings_in_a_record_follow_the_decoding_of_the_client(user, ours):
    script = Script("-- REPLY seen name\nreturn {'seen', 'ann'}")
    found = await settled(script(user))
    assert found.name == await settled(user.execute_command("ECHO", "ann"))
    assert await settled(script(ours)) == Reply("seen", {"name": b"ann"})


# --- NOSCRIPT


async def test_the_source_is_sent_only_when_the_script_is_not_loaded(user, raw):
    raw.script_flush()
    sent = Sent(raw)
    assert [await settled(COUNT(user, counter="c")) for _ in range(3)] == [1, 2, 3]
    assert sent == (1, 3)
    raw.script_flush()
    assert [await settled(COUNT(user, counter="c")) for _ in range(2)] == [4, 5]
    assert sent == (2, 5)


async def test_a_client_subclass_sees_every_command(api, conn, raw):
    seen = []

    class Watched(type(conn)):
        def execute_command(self, *args, **options):
            seen.append(args[:2])
            return super().execute_command(*args, **options)

    watched = Watched(connection_pool=conn.connection_pool)
    raw.script_flush()
    for _ in range(2):
        await settled(COUNT(watched, counter="c"))
    evalsha = ("EVALSHA", COUNT.digest)
    assert seen == [evalsha, ("EVAL", COUNT.source.encode()), evalsha]


async def test_a_handfast_client_sends_the_source_only_when_the_script_is_not_loaded(ours, raw):
    raw.script_flush()
    sent = Sent(raw)
    assert [await settled(COUNT(ours, counter="c")) for _ in range(3)] == [1, 2, 3]
    assert sent == (1, 3)
    raw.script_flush()
    assert await settled(COUNT(ours, counter="c")) == 4
    assert sent == (2, 4)


async def test_concurrent_calls_of_one_client_each_run_the_script_once(server, raw):
    raw.script_flush()
    async with AsyncHandfast(server.url) as ours, redis.asyncio.Redis.from_url(server.url) as theirs:
        for client in (ours, theirs):
            raw.delete("c")
            counts = await asyncio.gather(*(COUNT(client, counter="c") for _ in range(100)))
            assert sorted(counts) == list(range(1, 101))
            raw.script_flush()


# --- invalid arguments

WRONG = [
    (TAKE, {"account": "a", "log": "l"}, "takes account, log, amount: amount missing"),
    (TAKE, {}, "account, amount, log missing"),
    (TAKE, {"account": "a", "log": "l", "amount": 1, "note": 2}, "note unknown"),
    (TAKE, {"account": "a", "amuont": 1}, "amount, log missing; amuont unknown"),
    (TAKE, {"keys": ["a", "l"], "args": [1]}, "account, amount, log missing; args, keys unknown"),
    (
        TAKE,
        {"account": None, "log": "l", "amount": 1},
        "account of the script 'take' must be str, bytes, int or float, not None",
    ),
    (TAKE, {"account": "a", "log": "l", "amount": True}, "amount of the script 'take' must be"),
    (TAKE, {"account": ["a"], "log": "l", "amount": 1}, "not \\['a'\\]"),
    (TAKE, {"account": bytearray(b"a"), "log": "l", "amount": 1}, "not bytearray"),
    (ECHO, {"key": "a"}, "has no header, so it takes keys= and args=, not key"),
    (ECHO, {"keys": "ab"}, "keys of the script 'echo' must be several values, not 'ab'"),
    (ECHO, {"keys": b"ab"}, "must be several values"),
    (ECHO, {"args": bytearray(b"ab")}, "must be several values"),
    (ECHO, {"args": memoryview(b"ab")}, "must be several values"),
    (ECHO, {"args": 1}, "must be several values, not 1"),
    (ECHO, {"args": None}, "must be several values, not None"),
    (ECHO, {"args": ["a", None]}, "args of the script 'echo' must be str, bytes, int or float, not None"),
    (ECHO, {"keys": [["a"]]}, "must be str, bytes, int or float"),
    (Script("-- KEYS a...\nreturn 1"), {"a": "one"}, "a of the script 'script' must be several values, not 'one'"),
    (Script("-- ARGV a...\nreturn 1"), {"a": [False]}, "must be str, bytes, int or float, not False"),
    (Script("-- KEYS\nreturn 1"), {"a": 1}, "a unknown"),
]


@contextlib.asynccontextmanager
async def to_nowhere():
    """Yield a client of every kind, for an address without a server."""
    with redis.Redis(port=1) as plain, Handfast("redis://127.0.0.1:1") as ours, plain.pipeline() as pipe:
        async with redis.asyncio.Redis(port=1) as awaited, AsyncHandfast("redis://127.0.0.1:1") as ours_awaited:
            async with awaited.pipeline() as awaited_pipe:
                yield plain, ours, pipe, awaited, ours_awaited, awaited_pipe
                assert (len(pipe), len(awaited_pipe)) == (0, 0)


@pytest.mark.parametrize(("script", "values", "words"), WRONG)
async def test_wrong_arguments_are_refused_before_any_io(script, values, words):
    async with to_nowhere() as clients:
        for client in clients:
            with pytest.raises(TypeError, match=words):
                await settled(script(client, **values))


async def test_a_request_to_an_unreachable_server_raises():
    async with to_nowhere() as clients:
        for client in clients[1], clients[4]:
            with pytest.raises(redis.ConnectionError):
                await settled(COUNT(client, counter="c"))


@pytest.mark.parametrize(
    "client",
    [None, 5, "redis://localhost", object(), redis.Redis, redis.ConnectionPool()],
    ids=lambda one: type(one).__name__,
)
def test_anything_but_a_client_is_refused(client):
    with pytest.raises(TypeError, match="a script takes a client of redis-py, a Handfast or an AsyncHandfast, not"):
        COUNT(client, counter="c")


# --- errors

FAILING = [
    ("local x = 1\nreturn x + nil", 2, "return x + nil", "attempt to perform arithmetic on a nil value"),
    ("local x = 1\n\n   return ===   \n", 3, "return ===", "unexpected symbol near '=='"),
    ("local function f()\n  error('boom')\nend\nf()", 2, "error('boom')", "boom"),
    ("error('boom', 0)", 1, "error('boom', 0)", "boom"),
    ("error(42)", 1, "error(42)", "42"),
    (
        "redis.call('SET', KEYS[1], 1)\nredis.call('LPUSH', KEYS[1], 1)",
        2,
        "redis.call('LPUSH', KEYS[1], 1)",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    ),
    ("\nx = 1", 2, "x = 1", "Attempt to modify a readonly table"),
    (
        "return cjson.decode('{')",
        1,
        "return cjson.decode('{')",
        "Expected object key string but found T_END at character 2",
    ),
    ("local text = 'a\u2028b\x0cc'\n\nerror(text)", 3, "error(text)", "a\u2028b\x0cc"),
    ("local x\r\n\r\nerror('x')", 3, "error('x')", "x"),
    ("local ok, why = pcall(function()\n  error('inner')\nend)\nerror(why, 0)", 2, "error('inner')", "inner"),
]


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing[3])
async def test_the_error_of_a_failed_script_names_and_shows_the_line(conn, ours, raw, failing):
    source, line, shown, reason = failing
    script = Script(source, name="wrong")
    for client in (conn, ours, conn):
        raw.delete("k")
        with pytest.raises(ScriptError) as caught:
            await settled(script(client, keys=["k"]))
        error = caught.value
        assert isinstance(error, HandfastError)
        assert (error.name, error.line, error.source_line, error.reason) == ("wrong", line, shown, reason)
        assert str(error) == f"the script 'wrong' failed on line {line}: {reason}\n    {line} | {shown}"
        assert isinstance(error.__cause__, ResponseError | ServerRefused)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is ScriptError
        assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("return redis.error_reply('MY own words')", "MY own words"),
        ("return {err='MY own words'}", "MY own words"),
        (
            "redis.call('SET', KEYS[1], 1)\nreturn redis.pcall('LPUSH', KEYS[1], 1)",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ],
)
async def test_an_error_reply_returned_by_a_script_is_raised_unchanged(user, ours, source, words):
    with pytest.raises(ResponseError) as caught:
        await settled(Script(source)(user, keys=["k"]))
    assert str(caught.value) == words
    assert caught.value.__cause__ is None
    with pytest.raises(ServerRefused) as refused:
        await settled(Script(source, name="meant")(ours, keys=["k"]))
    assert (refused.value.name, refused.value.reply) == ("meant", words)


async def test_a_client_is_usable_after_an_error(user, ours, raw):
    for client in (user, ours):
        raw.delete("c")
        with pytest.raises(ScriptError, match="boom"):
            await settled(BOOM(client, counter="c"))
        assert await settled(COUNT(client, counter="c")) == 2, "its earlier writes remain"


async def test_the_error_of_a_killed_script_names_its_line(server, conn, ours, raw):
    forever = Script("local x = 0\nwhile true do x = x + 1 end", name="forever")

    def killed():
        with contextlib.suppress(ResponseError):  # the script does not run yet
            return raw.script_kill()

    raw.config_set("lua-time-limit", 5)
    for client in (conn, ours):
        if isinstance(client, redis.asyncio.Redis | AsyncHandfast):
            running = asyncio.ensure_future(forever(client))
        else:
            running = asyncio.get_running_loop().run_in_executor(None, forever, client)
        await eventually_async(killed)
        with pytest.raises(ScriptError) as caught:
            await running
        assert caught.value.line == 2
        assert "kill" in caught.value.reason.lower()
    raw.config_set("lua-time-limit", 5000)
