"""What the linter believes of the servers, held against the one that the tests run on.

``HANDFAST_SERVER`` names another one; what only newer servers know of themselves is left out on older ones.
"""

from __future__ import annotations

import pytest
import redis

from handfast._engine.header import read_header
from handfast.embedded import PrivateServer
from handfast_lint import commands, versions
from handfast_lint.rules.names import GLOBALS, SOME

SAMPLES = {
    "BITOP": ["AND", "a", "b", "c"],
    "BLMPOP": ["0", "2", "a", "b", "LEFT"],
    "BZMPOP": ["0", "2", "a", "b", "MIN"],
    "EVAL": ["return 1", "2", "a", "b", "x"],
    "EVALSHA": ["ffff", "2", "a", "b", "x"],
    "GEORADIUS": ["a", "1", "1", "1", "m", "STORE", "b"],
    "GEORADIUSBYMEMBER": ["a", "x", "1", "m", "STOREDIST", "b"],
    "LMPOP": ["2", "a", "b", "LEFT"],
    "MEMORY": ["USAGE", "a"],
    "MIGRATE": ["host", "1", "a", "0", "1"],
    "MSETEX": ["2", "a", "1", "b", "2", "EX", "10"],
    "OBJECT": ["ENCODING", "a"],
    "PFDEBUG": ["GETREG", "a"],
    "SORT": ["a", "LIMIT", "0", "1", "STORE", "b"],
    "XGROUP": ["CREATE", "a", "g", "$"],
    "XINFO": ["STREAM", "a"],
    "XREAD": ["COUNT", "1", "STREAMS", "a", "b", "0", "0"],
    "XREADGROUP": ["GROUP", "g", "me", "STREAMS", "a", "b", ">", ">"],
}
"""Arguments of commands for which any will not do."""
SAMPLES |= dict.fromkeys(("EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO"), SAMPLES["EVAL"])
SAMPLES |= {name: ["2", "a", "b"] for name in ("SINTERCARD", "ZDIFF", "ZINTER", "ZINTERCARD", "ZUNION")}
SAMPLES |= {name: ["a", "2", "b", "c"] for name in ("ZDIFFSTORE", "ZINTERSTORE", "ZUNIONSTORE")}
SAMPLES["ZMPOP"] = ["2", "a", "b", "MIN"]

TEXT = """
GET s; GETDEL s; GETEX s; GETRANGE s 0 1; GETSET s x; SUBSTR s 0 1; HGET h f; HINCRBYFLOAT h f 0.5; INCRBYFLOAT s 0.5;
LINDEX l 0; LMOVE l m LEFT LEFT; RPOPLPUSH l m; XADD x * f v; ZINCRBY z 1 a; ZSCORE z a
"""
TEXTS = """
HGETALL h; HKEYS h; HMGET h f; HVALS h; LRANGE l 0 -1; MGET s; SDIFF t; SINTER t; SMEMBERS t; SUNION t; TIME; ZMSCORE z a;
ZPOPMAX z; ZPOPMIN z; ZRANGE z 0 -1; ZRANGEBYLEX z - +; ZRANGEBYSCORE z -inf +inf; ZREVRANGE z 0 -1; ZREVRANGEBYLEX z + -;
ZREVRANGEBYSCORE z +inf -inf
"""
INTEGERS = """
APPEND s 1; BITCOUNT s; BITPOS s 1; DECR s; DECRBY s 1; DEL s; EXISTS s; EXPIRE s 9; HDEL h f; HEXISTS h f; HINCRBY h f 1;
HLEN h; HSET h f 1; HSETNX h f 1; INCR s; INCRBY s 1; LINSERT l BEFORE a b; LLEN l; LPUSH l a; LREM l 0 a; PERSIST s;
PEXPIRE s 9999; PFCOUNT p; PTTL s; PUBLISH c m; RPUSH l a; SADD t a; SCARD t; SETNX s 1; SISMEMBER t a; SMOVE t u a; SREM t a;
STRLEN s; TTL s; UNLINK s; XACK x g 1-1; XDEL x 1-1; XLEN x; ZADD z 1 a; ZCARD z; ZCOUNT z 0 9; ZLEXCOUNT z - +; ZREM z a;
ZREMRANGEBYRANK z 0 0; ZREMRANGEBYSCORE z 0 9
"""


@pytest.fixture
def plain(server, raw):
    """A client that gives replies as they come."""
    client = redis.Redis.from_url(server.url, decode_responses=True, protocol=2)
    client.response_callbacks.clear()
    with client:
        yield client


@pytest.fixture
def known(plain):
    """What the server says of each of its commands."""
    rows = plain.execute_command("COMMAND")
    return {row[0].upper(): row for row in rows if row[0] not in ("host:", "post")}


@pytest.fixture
def docs(plain):
    """What the server says of the history of each of its commands."""
    try:
        pairs = plain.execute_command("COMMAND", "DOCS")
    except redis.ResponseError:
        pytest.skip("servers tell since 7.0")
    return {name.upper(): as_dict(doc) for name, doc in as_dict(pairs).items()}


@pytest.fixture
def here(raw):
    """The kind of the server, and its version."""
    info = raw.info("server")
    kind = "valkey" if "valkey_version" in info else "redis"
    return kind, tuple(map(int, info[f"{kind}_version"].split(".")[:2]))


def as_dict(flat):
    return dict(zip(flat[::2], flat[1::2], strict=True))


def flagged(known, flag):
    """The commands that have it, or one of whose subcommands does."""
    found = set()
    for name, row in known.items():
        inner = row[9] if len(row) > 9 else []
        if flag in row[2] or any(flag in sub[2] for sub in inner):
            found.add(name)
    return found


def split(text):
    return [sample.split() for sample in text.replace("\n", " ").split(";")]


def test_table_has_every_command(known):
    assert set(known) - set(commands.KNOWN) == set()


def test_table_has_every_write_command(known):
    not_for_scripts = {"CLUSTER", "FUNCTION"}
    containers = {"XGROUP"}  # of which the oldest servers say nothing
    assert flagged(known, "write") - not_for_scripts - containers == commands.WRITING & set(known) - containers


def test_table_has_every_command_refused_in_scripts(known):
    refused = flagged(known, "noscript")
    assert (
        refused - commands.NOT_IN_SCRIPTS - set(commands.BLOCKING) - {"CLUSTER", "COMMANDLOG", "FUNCTION", "SLOWLOG"}
        == set()
    )


def test_table_has_every_blocking_command(known):
    by_option = {"XREAD", "XREADGROUP"}
    assert flagged(known, "blocking") - by_option <= set(commands.BLOCKING)


def test_tables_name_only_existing_commands():
    tables = [commands.WRITING, commands.CLEANUP, commands.ALL_KEYS, commands.BLOCKING, commands.NOT_IN_SCRIPTS]
    tables += [commands.RANDOM, commands.INTEGER_REPLIES, *commands.TEXT_REPLIES.values(), versions.COMMANDS]
    tables += [[name for name, _ in versions.OPTIONS], [name for name in commands.BLOCKING.values() if name]]
    for table in tables:
        assert set(table) <= set(commands.KNOWN)


def test_table_has_the_positions_of_keys(plain, known):
    seen = 0
    for name, row in known.items():
        if not commands.KNOWN[name] or (name.startswith("X") and len(row) < 10):
            continue
        arguments = SAMPLES.get(name) or [f"a{place}" for place in range(max(abs(row[1]) - 1, 1) + 2 * (row[1] < 0))]
        if name not in SAMPLES and row[5] == 2:
            arguments = arguments[: len(arguments) // 2 * 2]
        try:
            keys = plain.execute_command("COMMAND", "GETKEYS", name, *arguments)
        except redis.ResponseError as error:
            pytest.fail(f"{name} {arguments}: {error}")
        places = commands.key_places(name, [word.upper() for word in arguments], len(arguments))
        assert sorted(arguments[place] for place in places) == sorted(keys), name
        seen += 1
    assert seen > 150


def test_versions_match_the_documentation_of_the_server(docs, here):
    kind, _ = here
    first = versions.DEFAULT[kind]
    told = {name: tuple(map(int, doc["since"].split(".")[:2])) for name, doc in docs.items()}
    newer = {name: max(since, first) for name, since in told.items() if since > (6, 2)}
    assert newer == {name: since[kind] for name, since in versions.COMMANDS.items() if name in told}


def test_versions_match_the_commands_of_the_server(known, here):
    kind, version = here
    there = {name for name, since in versions.COMMANDS.items() if since[kind] is not None and since[kind] <= version}
    assert there == set(versions.COMMANDS) & set(known)


def test_options_match_the_documentation_of_the_server(docs, here):
    kind, version = here

    def tokens(arguments):
        for argument in map(as_dict, arguments):
            yield argument.get("token")
            yield from tokens(argument.get("arguments", []))

    for (name, option), since in versions.OPTIONS.items():
        inner = [as_dict(sub).get("arguments", []) for sub in docs[name].get("subcommands", [])[1::2]]
        offered = {token for arguments in (docs[name].get("arguments", []), *inner) for token in tokens(arguments)}
        is_there = since[kind] is not None and since[kind] <= version
        assert (option in offered) == is_there, (name, option)


def test_server_has_the_listed_globals(raw):
    for table, names in GLOBALS.items():
        for name in names.split():
            full = f"{table}.{name}" if table else name
            assert raw.eval(f"return type({full})", 0) != "nil", full


def test_server_has_no_other_globals(raw, here):
    found = raw.eval(
        """
        local names = {}
        for name in pairs(_G) do names[#names + 1] = name end
        local behind = getmetatable(_G)
        if behind and type(behind.__index) == 'table' then
            for name in pairs(behind.__index) do names[#names + 1] = name end
        end
        return names""",
        0,
    )
    not_for_scripts = {"__redis__err__handler", "__server__err__handler", "print", "getfenv", "setfenv", "newproxy"}
    assert set(found) - set(GLOBALS) - set(GLOBALS[""].split()) - not_for_scripts <= {"server", "os"}


def test_server_functions_exist_from_their_version_on(raw, here):
    kind, version = here
    for name, since in versions.API.items():
        is_there = since[kind] is not None and since[kind] <= version
        source = f"local ok, value = pcall(function() return {name} end) return ok and value ~= nil and 1"
        assert (raw.eval(source, 0) == 1) == is_there, name
    assert {f"redis.{name}" for name in SOME["redis"]} == {name for name in versions.API if name.startswith("redis.")}


def test_shebang_needs_a_newer_server(raw, here):
    kind, version = here
    if version >= versions.SHEBANG[kind]:
        assert raw.eval("#!lua\nreturn 1", 0) == 1
    else:
        with pytest.raises(redis.ResponseError):
            raw.eval("#!lua\nreturn 1", 0)


@pytest.mark.parametrize(
    ("samples", "table", "kind"),
    [
        (TEXT, commands.TEXT_REPLIES["one"], "string"),
        (TEXTS, commands.TEXT_REPLIES["items"], "strings"),
        (INTEGERS, commands.INTEGER_REPLIES, "number"),
    ],
    ids=["texts", "arrays of texts", "integers"],
)
def test_replies_have_the_type_in_the_table(raw, samples, table, kind):
    assert {name for name, *_ in split(samples)} == table
    for sample in split(samples):
        raw.flushall()
        raw.eval(
            """
            redis.call('SET', 's', '1')
            redis.call('HSET', 'h', 'f', '1')
            redis.call('RPUSH', 'l', 'a')
            redis.call('SADD', 't', 'a')
            redis.call('ZADD', 'z', 1, 'a')
            redis.call('XADD', 'x', '1-1', 'f', 'v')
            redis.call('XGROUP', 'CREATE', 'x', 'g', '0')
            redis.call('PFADD', 'p', 'a')""",
            0,
        )
        told = raw.eval(
            """
            local reply = redis.call(unpack(ARGV))
            if type(reply) ~= 'table' then return type(reply) end
            for _, item in ipairs(reply) do if type(item) ~= 'string' then return type(item) end end
            return #reply > 0 and 'strings' or 'nothing'""",
            0,
            *sample,
        )
        assert told == kind, sample
    raw.flushall()


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("return tostring(1700000000123456)", "1.7000000001235e+15"),
        ("return 1700000000123456 .. ''", "1.7000000001235e+15"),
        ("return string.format('%s', 1700000000123456)", "1.7000000001235e+15"),
        ("return table.concat({1700000000123456})", "1.7000000001235e+15"),
        ("return cjson.encode({1700000000123456})", "[1.7000000001235e+15]"),
        ("return string.format('%.0f', 1700000000123456)", "1700000000123456"),
        ("return 2.7", 2),
        ("return {1, nil, 3}", [1]),
        ("return {1, left = 2}", [1]),
        ("return ('10' < '9') and 1", 1),
        ("return ('5' == 5) and 1", None),
        ("return '5' + 1", 6),
    ],
)
def test_statements_of_the_messages_are_true(raw, source, reply):
    assert raw.eval(source, 0) == reply


@pytest.mark.parametrize(
    "source",
    ["return ('5' < 6) and 1", "x = 1", "return x", "string.trim = 1", "return require('x')", "return os.time()"],
)
def test_failures_of_the_messages_fail(raw, source):
    with pytest.raises(redis.ResponseError):
        raw.eval(source, 0)


def test_math_random_repeats_itself(here):
    source = "return {math.random(1000000), math.random(1000000)}"
    found = []
    for _ in range(2):
        with PrivateServer() as server, redis.Redis.from_url(server.url) as client:
            found.append([client.eval(source, 0), client.eval(source, 0)])
    (first, second), after_a_restart = found
    assert [first, second] == after_a_restart
    assert first[0] != first[1]
    assert (first == second) == (here[1] < (7, 0)), "newer servers go on"


def test_default_servers_are_those_of_the_library():
    assert versions.DEFAULT == {"redis": (6, 2), "valkey": (7, 2)}
    assert read_header("").needs == {}


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("redis=6.2", {"redis": (6, 2)}),
        ("redis=7.0, valkey=8.0.1", {"redis": (7, 0), "valkey": (8, 0)}),
    ],
)
def test_parse_oldest_returns_versions(text, servers):
    assert versions.parse_oldest(text) == servers


@pytest.mark.parametrize("text", ["", "redis", "redis=7", "keydb=6.3", "redis=7.0,", "redis 7.0"])
def test_parse_oldest_refuses_other_text(text):
    with pytest.raises(ValueError, match=r"write redis=6\.2 or valkey=7\.2"):
        versions.parse_oldest(text)
