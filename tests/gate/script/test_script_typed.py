"""Stubs: every annotation through every client, and replies and signatures that do not match."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import pytest
import redis
import redis.asyncio

from handfast import AsyncHandfast, Handfast, Reply, Script
from tests._support.helpers import settled
from tests._support.scripting import COUNT, ECHO, OPTIONS, TAKE

if TYPE_CHECKING:
    from nowhere import Unknown


class Taken(NamedTuple):
    outcome: Literal["taken", "short"]
    amount: int


@dataclass
class Name:
    name: str
    raw: bytes


TYPED = [
    (None, "return {1, 2}", None),
    (bool, "return 1", True),
    (bool, "return 0", False),
    (bool, "return false", False),
    (bool, "return true", True),
    (bool, "return redis.call('SET', KEYS[1], 1)", True),
    (int, "return 12", 12),
    (int, "return '-12'", -12),
    (int, "return string.format('%.0f', 2^53)", 2**53),
    (int, "return '123456789012345678901234567890'", 123456789012345678901234567890),
    (int, "return {double=3}", 3),
    (float, "return '2.5'", 2.5),
    (float, "return 2", 2.0),
    (float, "return {double=2.5}", 2.5),
    (str, "return 'gör'", "gör"),
    (str, "return 7", "7"),
    (str, "return ''", ""),
    (bytes, "return 'gör'", "gör".encode()),
    (bytes, "return 7", b"7"),
    (str | None, "return redis.call('GET', KEYS[1])", None),
    (int | None, "return '5'", 5),
    (list[int], "return {'1', 2}", [1, 2]),
    (list[str], "return {}", []),
    (tuple[str, ...], "return {'a', 'b'}", ("a", "b")),
    (tuple[str, int], "return {'a', '1'}", ("a", 1)),
    (set[str], "return {'a', 'b', 'a'}", {"a", "b"}),
    (frozenset[int], "return {1, '1'}", frozenset({1})),
    (set[str], "return {set={a=true}}", {"a"}),
    (dict[str, int], "return {'a', 1, 'b', '2'}", {"a": 1, "b": 2}),
    (dict[str, int], "return {map={a=1}}", {"a": 1}),
    (
        dict[str, int],
        "redis.setresp(3) redis.call('HSET', KEYS[1], 'a', 1) return redis.call('HGETALL', KEYS[1])",
        {"a": 1},
    ),
    (Taken, "return {'taken', '3'}", Taken("taken", 3)),
    (Name, "return {'é', 'é'}", Name("é", "é".encode())),
    (list[Taken], "return {{'taken', 3}, {'short', 4}}", [Taken("taken", 3), Taken("short", 4)]),
    (Literal["a", "b"], "return 'b'", "b"),
    (Annotated[int, "how many"], "return '1'", 1),
    (Reply, "-- REPLY seen count\nreturn {'seen', 4}", Reply("seen", {"count": 4})),
    (Reply | None, "-- REPLY seen\nreturn false", None),
    (Any, "return {1, {2}}", [1, [2]]),
]


def stub(annotation, *, awaited=False):
    """Return a stub with that return annotation, for a script without named parameters."""

    def plain(client, *, keys=("typed",)): ...

    async def coroutine(client, *, keys=("typed",)): ...

    made = coroutine if awaited else plain
    made.__annotations__ = {"return": annotation}
    return made


@pytest.fixture
async def everyone(server, raw):
    """Yield clients of both APIs with both decode_responses settings and both protocols, and Handfast clients."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [redis.Redis(unix_socket_path=server.socket, **options) for options in OPTIONS]
        clients.append(Handfast(server.url))
        awaited = [redis.asyncio.Redis(unix_socket_path=server.socket, **options) for options in OPTIONS]
        awaited.append(AsyncHandfast(server.url))
        for client in clients:
            stack.enter_context(client)
        for client in awaited:
            await stack.enter_async_context(client)
        yield [(client, False) for client in clients] + [(client, True) for client in awaited]
    raw.script_flush()


@pytest.mark.parametrize(
    ("annotation", "source", "value"),
    TYPED,
    ids=[f"{getattr(one[0], '__name__', one[0])}: {one[1]:.30}" for one in TYPED],
)
async def test_a_stub_returns_its_annotated_type_with_every_client(everyone, raw, annotation, source, value):
    script = Script(source)
    for client, awaited in everyone:
        raw.delete("typed")
        found = await settled(script.typed(stub(annotation, awaited=awaited))(client))
        assert found == value, client
        assert type(found) is type(value)


@pytest.mark.parametrize("options", [{}, {"encoding_errors": "replace"}, {"encoding": "latin-1"}], ids=str)
@pytest.mark.parametrize(
    ("annotation", "value"), [(bytes, b"\xe9\xff"), (list[bytes], [b"\xe9\xff"]), (bytes | None, b"\xe9\xff")]
)
async def test_bytes_are_those_of_the_reply_whatever_the_client_decodes(server, raw, annotation, value, options):
    script = Script(
        "-- KEYS k\nreturn '\\233\\255'" if annotation != list[bytes] else "-- KEYS k\nreturn {'\\233\\255'}"
    )
    kinds = redis.Redis, redis.asyncio.Redis
    for kind in kinds:
        client = kind(unix_socket_path=server.socket, decode_responses=True, **options)

        def plain(client, *, k="typed"): ...

        async def coroutine(client, *, k="typed"): ...

        made = plain if kind is redis.Redis else coroutine
        made.__annotations__ = {"return": annotation}
        assert await settled(script.typed(made)(client)) == value
        await settled(client.close() if kind is redis.Redis else client.aclose())
    raw.script_flush()


@pytest.mark.parametrize(
    ("annotation", "source", "words"),
    [
        (int, "return 'x'", "the script 'script': invalid literal"),
        (int, "return {1}", "the script 'script': the reply \\[1\\] is no whole number"),
        (int, "return false", "the reply None is no whole number"),
        (float, "return {}", "no number"),
        (str, "return {'a'}", "no text"),
        (bool, "return 2", "neither true"),
        (list[int], "return 1", "takes an array"),
        (tuple[int, str], "return {1, redis.error_reply('MY bad')}", "no text"),
        (Taken, "return {'gone', 1}", "'gone' is none of 'taken', 'short'"),
        (Taken, "return {'taken'}", "takes 2 items, but the reply has 1"),
        (
            Reply,
            "-- REPLY seen\nreturn {'other'}",
            "^the script 'script': its header does not list the reply \\['other'|b'other'\\]",
        ),
        (Reply, "-- REPLY seen\n-- REPLY - or a number\nreturn 1", "its header does not list the reply 1"),
        (Reply, "return {'seen'}", "its header does not list the reply"),
        (list[Reply], "-- REPLY seen\nreturn {{'seen'}, 1}", "its header does not list the reply 1"),
        (dict[str, int], "return {'a'}", "alternating keys and values"),
    ],
)
async def test_a_reply_that_does_not_fit_the_annotation_raises_value_error(everyone, annotation, source, words):
    script = Script(source)
    for client, awaited in everyone:
        with pytest.raises(ValueError, match=words):
            await settled(script.typed(stub(annotation, awaited=awaited))(client))


@TAKE.typed
def take_from(conn: redis.Redis, /, account: str, amount: int = 2, *, log: str = "l") -> Taken:
    """Take a little."""


@TAKE.typed
async def take_soon(conn: redis.asyncio.Redis, *, account: str, log: str, amount: int) -> Taken:
    """Take a little, awaited."""


def test_a_stub_keeps_its_name_docstring_and_signature():
    assert (take_from.__name__, take_from.__doc__, take_from.__module__) == ("take_from", "Take a little.", __name__)
    assert list(inspect.signature(take_from).parameters) == ["conn", "account", "amount", "log"]
    assert inspect.unwrap(take_from) is not take_from
    assert inspect.iscoroutinefunction(take_soon)
    assert not inspect.iscoroutinefunction(take_from)


def test_a_stub_passes_defaults_and_positional_arguments(server, raw):
    raw.set("a", 10)
    assert take_from(raw, "a") == Taken("taken", 8)
    assert take_from(raw, "a", 3, log="m") == Taken("taken", 5)
    assert take_from(raw, amount=6, account="a") == Taken("short", 1)
    assert (raw.lrange("l", 0, -1), raw.lrange("m", 0, -1)) == (["2"], ["3"])


async def test_a_stub_refuses_arguments_that_its_signature_or_script_refuses(server, raw):
    for wrong in ({}, {"account": "a", "note": 1}, {"account": "a", "amount": None}, {"account": ["a"]}):
        with pytest.raises(TypeError):
            take_from(raw, **wrong)
    with pytest.raises(TypeError, match="missing"):
        take_from()
    with pytest.raises(TypeError, match="amount of the script 'take' must be"):
        await take_soon(redis.asyncio.Redis(), account="a", log="l", amount=None)
    with pytest.raises(TypeError, match="a script takes a client of redis-py"):
        take_from(None, "a")


async def test_a_stub_takes_clients_of_its_own_api_only(server, raw):
    raw.set("a", 10)
    async with redis.asyncio.Redis.from_url(server.url) as awaited, AsyncHandfast(server.url) as ours_awaited:
        with Handfast(server.url) as ours:
            for client in (awaited, ours_awaited):
                with pytest.raises(TypeError, match="take_from takes a sync client, not"):
                    take_from(client, "a")
                assert await take_soon(client, account="a", log="l", amount=1)
            for client in (raw, ours):
                with pytest.raises(TypeError, match="take_soon takes an asyncio client, not"):
                    await take_soon(client, account="a", log="l", amount=1)
                assert take_from(client, "a").outcome == "taken"
        with pytest.raises(TypeError, match="take_soon takes an asyncio client, not None"):
            await take_soon(None, account="a", log="l", amount=1)
    assert raw.get("a") == "4"


async def test_a_stub_takes_a_pipeline_and_returns_it(server, raw):
    raw.set("a", 10)
    with raw.pipeline() as pipe:
        assert take_from(pipe, "a") is pipe
        assert take_from(pipe, "a") is pipe
        assert [TAKE.read(reply).left for reply in pipe.execute()] == [8, 6]
        pipe.watch("a")
        assert take_from(pipe, "a", 100) == Taken("short", 94)
    async with redis.asyncio.Redis.from_url(server.url) as client, client.pipeline() as pipe:
        assert await take_soon(pipe, account="a", log="l", amount=1) is pipe
        assert TAKE.read((await pipe.execute())[0]) == Reply("taken", {"left": 5})
        await pipe.watch("a")
        assert await take_soon(pipe, account="a", log="l", amount=100) == Taken("short", 95)


def test_a_stub_may_use_names_known_only_to_type_checkers(raw):
    @COUNT.typed
    def count(conn: Unknown, *, counter: Unknown) -> int: ...

    assert count(raw, counter="c") == 1


def test_a_stub_may_take_variadic_positional_arguments(raw):
    many = Script("-- KEYS first\n-- ARGV rest...\nreturn #ARGV")

    @many.typed
    def count(conn: redis.Redis, first: str, *rest: int) -> int: ...

    assert [count(raw, "a"), count(raw, "a", 1, 2)] == [0, 2]


def test_a_stub_of_a_script_without_a_header_may_take_keys_and_args(raw):
    @ECHO.typed
    def both(conn: redis.Redis, *, keys: list[str], args: list[int]) -> tuple[list[str], list[int]]: ...

    @ECHO.typed
    def one(conn: redis.Redis, args: list[int]) -> tuple[list[str], list[int]]: ...

    @ECHO.typed
    def none(conn: redis.Redis) -> Any: ...

    assert both(raw, keys=["a"], args=[1]) == (["a"], [1])
    assert one(raw, [1]) == ([], [1])
    assert none(raw) == [[], []]


def test_parameters_of_a_stub_may_have_the_names_of_internal_parameters(raw):
    odd = Script("-- KEYS self client\n-- ARGV args kwargs\nreturn {KEYS[1], KEYS[2], ARGV[1], ARGV[2]}")

    @odd.typed
    def names(conn: redis.Redis, self: str, client: str, *, args: str, kwargs: str) -> list[str]: ...

    assert names(raw, "1", "2", args="3", kwargs="4") == ["1", "2", "3", "4"]
    assert names(conn=raw, client="2", self="1", kwargs="4", args="3") == ["1", "2", "3", "4"]


def nothing(): ...


def too_few(conn: redis.Redis, *, account: str, log: str) -> Reply: ...


def too_many(conn: redis.Redis, *, account: str, log: str, amount: int, note: str) -> Reply: ...


def no_client(*, account: str, log: str, amount: int) -> Reply: ...


def any_words(conn: redis.Redis, **values: str) -> Reply: ...


def gives_nothing(conn: redis.Redis, *, account: str, log: str, amount: int): ...


def one_key(conn: redis.Redis, key: str) -> Any: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (nothing, "nothing must take a client and then account, log, amount, not "),
        (too_few, "must take a client and then account, log, amount, not account, log"),
        (too_many, "not account, log, amount, note"),
        (no_client, "not log, amount"),
        (any_words, "not values"),
        (gives_nothing, "gives_nothing has no return annotation; add one, at least Any"),
    ],
)
def test_a_stub_that_does_not_match_the_header_is_refused_at_once(function, words):
    with pytest.raises(TypeError, match=words):
        TAKE.typed(function)


def test_a_stub_that_does_not_match_a_script_without_names_is_refused_at_once():
    with pytest.raises(TypeError, match="then keys and args, as a script without a header does, not key"):
        ECHO.typed(one_key)
    with pytest.raises(TypeError, match="must take a client and then nothing, not key"):
        Script("-- KEYS\nreturn 1").typed(one_key)
    with pytest.raises(TypeError, match="a reply cannot be read as <class 'complex'>"):
        ECHO.typed(stub(complex))
