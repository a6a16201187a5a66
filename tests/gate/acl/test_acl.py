"""The least rights of a user: derived from the scripts, sufficient for every operation, and none too many."""

from __future__ import annotations

import contextlib
import itertools
import re
from importlib.resources import files
from typing import get_args

import pytest
import redis

from handfast import Handfast, Script, ServerRefused
from handfast.acl import NAMESPACED, USES, commands_of, missing_rights, rights_for, scripts_for
from handfast.acl.check import CHECK
from handfast.arguments import Kind
from handfast.errors import ServerUnsupported
from handfast_lab.chaos.apis import APIS
from tests._support.workloads import KEYS, WORKLOADS, Workload

WIRE = files("handfast._engine")

SCRIPTS = [*scripts_for(USES), CHECK]


NUMBERS = itertools.count()


@pytest.fixture
def user(raw, server):
    """Return a function that makes the user with the given rules and returns its URL.

    Each test has a user of its own: a client of an earlier test may still clean up.
    """
    name = f"app{next(NUMBERS)}"

    def make(*rules):
        raw.execute_command("ACL", "SETUSER", name, "reset", "on", ">secret", *rules)
        return server.url.replace("unix://", f"unix://{name}:secret@")

    make.refusals = lambda: [entry for entry in raw.acl_log() if entry["username"] == name]
    yield make
    raw.acl_deluser(name)
    raw.acl_log_reset()


@pytest.fixture
def can_ask(raw):
    """Skip the test if the server cannot tell what a user may do."""
    if version(raw) < (7, 0):
        pytest.skip("this server cannot tell")


def version(raw):
    return tuple(map(int, raw.info("server")["redis_version"].split(".")[:2]))


def of_use(use, **options):
    return rights_for([use], keys=[KEYS[use]] if use in KEYS else (), **options)


# --- commands of scripts


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_commands_of_finds_what_the_parser_finds(script):
    pytest.importorskip("tree_sitter")
    from handfast._engine.header import read_header
    from handfast_lint.parsing import build, parse
    from handfast_lint.script import CheckedScript
    from handfast_lint.versions import DEFAULT

    source = script.source
    checked = CheckedScript(script.name, source, read_header(source), build(parse(source), source), DEFAULT)
    found = {
        f"{sent.name}|{sent.words[0]}".lower() if sent.name == "PUBSUB" else sent.name.lower()
        for sent in checked.commands
    }
    assert commands_of(source) == found
    assert script is CHECK or found


def test_rights_cover_every_script_and_command_of_a_client():
    named = {file.name.removesuffix(".lua") for file in (WIRE / "lua").iterdir() if file.name.endswith(".lua")}
    assert {script.name for script in scripts_for(NAMESPACED)} == named
    sent = {
        name.lower()
        for file in WIRE.iterdir()
        if file.name.endswith(".py")
        for name in re.findall(r'\bcommand\("(\w+)"', file.read_text())
    }
    assert sent
    assert sent <= {command.partition("|")[0] for command in rights_for(NAMESPACED, cluster=True).commands}
    of_cluster = {"cluster|slots", "asking", "ssubscribe", "spublish", "pubsub|shardnumsub"}
    assert of_cluster <= {*rights_for(NAMESPACED, cluster=True).commands}
    assert not of_cluster & {*rights_for(NAMESPACED).commands}
    assert of_cluster & {*rights_for(NAMESPACED, cluster=True, sharded=False).commands} == {"cluster|slots", "asking"}


@pytest.mark.parametrize(
    "source",
    [
        "local name = 'GET' return redis.call(name, KEYS[1])",
        "local call = redis.call return call('GET', KEYS[1])",
        "return redis.pcall(ARGV[1])",
    ],
)
def test_commands_of_refuses_commands_that_are_not_literals(source):
    with pytest.raises(ValueError, match="on line 2 is not a literal"):
        commands_of(f"redis.call('GET', KEYS[1])\n{source}")


def test_commands_of_ignores_comments():
    assert commands_of("-- redis.call('FLUSHALL')\nredis.call('GET', KEYS[1]) -- redis.call('SET')") == {"get"}


def test_commands_of_names_subcommands():
    assert commands_of("redis.pcall('PUBSUB', 'NUMSUB', KEYS[1])") == {"pubsub|numsub"}


@pytest.mark.parametrize(
    ("uses", "options", "words"),
    [
        (["nonsense"], {}, "no use 'nonsense'"),
        ([], {}, "name at least one use"),
        (["compat"], {}, "compat needs the patterns of the keys"),
        (["lock"], {"keys": ["a*"]}, "only compat and fencing"),
        (["lock"], {"namespace": ""}, "namespace must not be empty"),
        (["compat"], {"keys": ["a b"]}, "without blanks"),
        (["fencing"], {"keys": ["a\n"]}, "without blanks"),
        (["fencing"], {"keys": ["hf:fence:m4l:a"]}, "is the name of a guard"),
    ],
)
def test_invalid_arguments_are_refused(uses, options, words):
    with pytest.raises(ValueError, match=words):
        rights_for(uses, **options)


def test_single_string_for_several_names_is_refused():
    for mistaken in (lambda: rights_for("lock"), lambda: scripts_for("lock"), lambda: rights_for(["compat"], keys="a")):
        with pytest.raises(TypeError, match="not the string"):
            mistaken()


def test_each_use_has_only_its_own_keys():
    assert of_use("lock").keys == of_use("lock_all").keys == ("{hf:lock:*",)
    kinds = get_args(Kind)
    assert of_use("names").keys == tuple(f"{{hf:{kind}:*" for kind in kinds)
    assert of_use("scores").keys == ("{hf:scores:*",)
    assert rights_for(["lock", "rwlock"], namespace="billing").keys == ("{billing:lock:*", "{billing:rwlock:*")
    assert rights_for(["compat"], keys=["a", "b*"]).keys == ("a", "b*", "a:handfast:*")
    assert rights_for(["fencing"], keys=["a?"]).keys == ("a?", "hf:fence:m4l:a?")
    assert rights_for(["fencing", "lock"], keys=["*"]).keys == ("*",)
    assert rights_for(["fencing"], keys=["*"]).channels == ()
    assert of_use("lock").channels == ("hf:inbox:*", "hf:control:*")


# --- the rights suffice


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_all_operations_work_with_least_rights_without_silent_refusals(api, use, raw, server, user):
    tells = not (7, 0) <= version(raw) < (7, 2)
    raw.acl_log_reset()
    notes = live(api, use, raw, user(*of_use(use, tells_its_name=tells).rules()))
    assert notes
    assert {note.outcome for note in notes} <= {"done", "no"}, notes
    assert user.refusals() == []


def live(api, use, raw, url):
    """Run the workload of that user: see `tests._support.workloads`."""
    return api.run(_live(api, use, raw, url))


async def _live(api, use, raw, url):
    async with contextlib.AsyncExitStack() as stack:
        if use in NAMESPACED:
            clients = [await stack.enter_async_context(api.client(url)) for _ in range(2)]
        else:
            clients = [api.library.Redis.from_url(url) for _ in range(2)]
            for client in clients:
                if api.name == "sync":
                    stack.callback(client.close)
                else:
                    stack.push_async_callback(client.aclose)
        workload = Workload(api, raw, *clients)
        await WORKLOADS[use](workload)
        return workload.observations


# --- the rights are minimal


def test_least_rights_allow_nothing_else(raw, server, user):
    raw.set("elsewhere", "x")
    raw.zadd("{hf:semaphore:a}:tokens", {"x": 1})
    raw.expire("{hf:semaphore:a}:tokens", 60)
    everything = [
        use for use in USES if use not in KEYS and use not in ("names", "operate", "check_server", "min_replicas")
    ]  # which look around
    for uses in (["lock"], everything):
        with redis.Redis.from_url(user(*rights_for(uses).rules())) as client:
            allowed = "{hf:lock:a}:tokens"
            for command in (
                "FLUSHALL",
                "FLUSHDB",
                "CONFIG GET maxmemory",
                "KEYS *",
                "SCAN 0",
                "RANDOMKEY",
                "ACL WHOAMI",
                "ACL SETUSER app +@all",
                "SCRIPT FLUSH",
                "SCRIPT LOAD x",
                "CLIENT LIST",
                "MONITOR",
                "PSUBSCRIBE *",
                "PUBSUB CHANNELS",
                "SELECT 1",
                "GET elsewhere",
                "ZCOUNT {hf:lockx:a}:tokens 0 1",
                "ZCOUNT {other:lock:a}:tokens 0 1",
                "ZCOUNT hf:lock:a 0 1",
                "PUBLISH hf:x x",
                "PUBLISH other:control:x x",
                "PUBLISH hf:controlx x",
                f"RENAME {allowed} x",
                f"DUMP {allowed}",
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command.split(" "))
            assert client.zcount(allowed, 0, 1) == 0
            if uses == ["lock"]:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.zcount("{hf:semaphore:a}:tokens", 0, 1)
            with pytest.raises(redis.ResponseError, match=r"ACL|permission|can't (?:access|run)"):
                client.eval("return redis.call('GET', 'elsewhere')", 0)
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.eval("return 1", 1, "elsewhere")
    assert raw.get("elsewhere") == "x"


# --- missing rights


@pytest.mark.parametrize("use", ["lock", "autocomplete", "compat", "fencing", "cluster"])
def test_missing_rights_names_each_missing_right(use, raw, user, can_ask):
    rights = rights_for(["scores", "semaphore"], cluster=True) if use == "cluster" else of_use(use)
    with redis.Redis.from_url(user(*rights.rules())) as client:
        assert missing_rights(client, rights) == ()
        for rule in rights.rules():
            if rule[0] in "+~&":
                user(*(other for other in rights.rules() if other != rule))
                raw.script_flush()
                named = missing_rights(client, rights)
                assert rule in named
                if rule in ("+eval", "+evalsha"):
                    assert set(named) == {other for other in rights.rules() if other[0] == "+"}, "it cannot ask"
                    continue
                if rule[0] == "~" and len(rights.keys) == 1:
                    continue  # nor can it about the commands on keys
                assert named == (rule,) or all(re.match(r"&|\+s?publish|\+s?subscribe", other) for other in named)
                assert named == (rule,) or use != "lock", "two channels, and two commands on channels"
    assert {entry["context"] for entry in raw.acl_log()} <= {"toplevel"}, "it only asks"


@pytest.mark.parametrize("granted", [(), ("+eval", "+evalsha"), ("+eval", "+evalsha", "~*"), ("+@read", "~*", "&*")])
def test_missing_rights_are_named_in_two_steps_at_most(raw, user, can_ask, granted):
    rights = of_use("lock")
    with redis.Redis.from_url(user("resetchannels", *granted)) as client:
        for _ in range(1 if "+eval" in granted else 2):
            missing = missing_rights(client, rights)
            granted = *granted, *missing
            user("resetchannels", *granted)
        assert missing_rights(client, rights) == ()


def test_missing_rights_of_an_unrestricted_user_are_none(raw, user, can_ask):
    with redis.Redis.from_url(user("~*", "&*", "+@all")) as client:
        assert missing_rights(client, rights_for(USES, keys=["a[bc]*", r"d\*", "[^x-z]?"])) == ()
        assert missing_rights(client, of_use("lock", preloaded=True, tells_its_name=True)) == ()


def test_missing_rights_tries_a_key_that_the_pattern_matches(raw, user, can_ask):
    patterns = ["a[bc]?*", r"d\*e", "[^x-z]f"]
    rights = rights_for(["fencing"], keys=patterns)
    with redis.Redis.from_url(user(*rights.rules())) as client:
        assert missing_rights(client, rights) == ()
        user(*(rule for rule in rights.rules() if rule != "~d\\*e"))
        assert missing_rights(client, rights) == ("~d\\*e",)


def test_missing_rights_raises_if_the_server_cannot_tell(raw, user):
    if version(raw) >= (7, 0):
        pytest.skip("this server can tell")
    with redis.Redis.from_url(user(*of_use("lock").rules())) as client, pytest.raises(ServerUnsupported, match=r"7\.0"):
        missing_rights(client, of_use("lock"))


# --- preloaded scripts


def load(raw, use="lock"):
    for script in scripts_for([use]):
        raw.script_load(script.source)


@pytest.mark.parametrize("use", ["lock", "compat", "fencing"])
@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_preloaded_user_runs_loaded_scripts(api, use, raw, user):
    raw.script_flush()
    load(raw, use)
    url = user(*of_use(use, preloaded=True).rules())
    notes = live(api, use, raw, url)
    assert {note.outcome for note in notes} <= {"done", "no"}, notes


def test_preloaded_user_can_run_no_other_script(raw, user):
    with redis.Redis.from_url(user(*of_use("lock", preloaded=True).rules())) as client:
        for command in (("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1"), ("EVAL_RO", "return 1", 0)):
            with pytest.raises(redis.ResponseError, match=r"permission|unknown command"):
                client.execute_command(*command)


def test_scripts_of_a_user_need_the_rights_to_their_commands(raw, user):
    take = Script("-- KEYS counter\nreturn redis.call('INCR', KEYS[1])", name="take")
    with Handfast(user(*of_use("lock").rules(), "~counter")) as hf:
        with pytest.raises(ServerRefused, match="ACL SETUSER"):
            take(hf, counter="counter")
        user(*of_use("lock").rules(), "~counter", "+incr")
        assert take(hf, counter="counter") == 1
