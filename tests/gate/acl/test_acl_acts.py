"""An act of an operator whose user lacks a right is refused before it has changed anything."""

from __future__ import annotations

import pytest
import redis

from handfast import Handfast, ServerRefused
from handfast._engine.calls import PARTS
from handfast._engine.packing import doubles
from handfast._engine.script import load
from handfast._engine.server_errors import may_have_written
from handfast.acl import commands_of, rights_for
from handfast.acl.rights import SHARDED
from tests._support.engine import Engine
from tests._support.limits import LimitScripts

OWNER = "- - me reason=test"

ANY = -1
"""In place of the end of a hold: whichever there is."""

USER = {"by": "me", "reason": "test"}

PERMITS = {
    "hold": {"times": doubles(60_000, 5_000, ANY, 0), **USER, "owner": OWNER},
    "unhold": {"times": doubles(0, -1, ANY, 0), **USER, "owner": OWNER},
    "revoke": {"up_to_fence": 2**52, "reason": "test", "from": 0, "by": "me", "least_fence": 0},
    "resize": {"limit": 5, "by": "me"},
    "resize to none": {"limit": 0, "by": "me"},
}

LIMITS = {
    "pause": ("pause", {"pause": doubles(90_000, 0)}),
    "resume": ("pause", {"pause": doubles(0, 0)}),
    "resize": ("resize", {"is_set": 1}),
    "resize to none": ("resize", {"is_set": 0}),
    "reset": ("reset", {"until": doubles(2**52)}),
}


@pytest.fixture
def user(raw, server):
    """Return a function that lends a client of the user that has the rights of an operator, but one."""
    clients = []
    url = server.url.replace("unix://", "unix://app:secret@")

    def lacks(right):
        rights = [rule for rule in rights_for(["operate"]).rules() if rule != right]
        raw.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
        clients.append(redis.Redis.from_url(url, decode_responses=True))
        return clients[-1]

    lacks.url = url
    yield lacks
    for client in clients:
        client.close()
    raw.acl_deluser("app")
    raw.acl_log_reset()


@pytest.fixture
def inboxes(raw):
    """Subscribe for waiters, so that they count as alive."""
    if tuple(map(int, raw.info("server")["redis_version"].split(".")[:2])) < (7, 0):
        pytest.skip("this server does not tell a script what its user may do")
    pubsub = raw.pubsub()
    pubsub.subscribe(*(f"hf:inbox:{token}" for token in ("w1", "w2")))
    pubsub.get_message(timeout=10)
    yield "hf:inbox:{}".format
    pubsub.close()


def stored(raw):
    """Return all that is stored, without the TTLs."""
    return {key: raw.dump(key) for key in raw.keys("*")}


def refused(client, script, keys, argv):
    """Return the error of a call that the server refuses; nothing if it is done."""
    try:
        client.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True)
    except redis.exceptions.ResponseError as error:
        return error


def check(raw, user, call, prepare):
    """Call a script without the right to each of its commands, and to the inboxes."""
    refusals = []
    prepare()
    assert refused(user(None), *call) is None, "it has all rights that it needs"
    for right in [*(f"+{command}" for command in sorted(commands_of(call[0].source) - SHARDED)), "&hf:inbox:*"]:
        raw.flushdb()
        prepare()
        before = stored(raw)
        error = refused(user(right), *call)
        if error is not None:
            assert stored(raw) == before, right
            asked = isinstance(error, redis.exceptions.NoPermissionError)
            assert not (asked and may_have_written(f"NOPERM {error}"))
            refusals.append(right)
    assert refusals
    return refusals


@pytest.mark.parametrize("act", PERMITS)
def test_of_a_name(raw, user, inboxes, act):
    engine = Engine(raw, limit=3, kind="semaphore")
    script = load("permit_hold" if act == "unhold" else f"permit_{act.split()[0]}")

    def prepare():
        engine.resize(4)
        engine.acquire("warm")
        engine.release("warm", copies=True)
        for token in ("a", "b", "expired"):
            engine.acquire(token, ttl=600_000, inbox="hf:inbox:gone hf:control:gone")  # both channels
        if act == "unhold":
            engine.run("hold", times=doubles(60_000, -1, ANY, 0), **USER, owner=OWNER)
        for token in ("w1", "w2"):
            engine.acquire(token, 2, inbox=inboxes(token))
        engine.end_lease("expired")

    keys = [engine.key(part) for part in PARTS]
    refusals = check(raw, user, (script, keys, [PERMITS[act][name] for name in script.header.args]), prepare)
    assert {"+hset", "+publish", "&hf:inbox:*"} <= {*refusals}


def test_resume_by_a_user_who_may_only_look_at_names_ends_nothing(raw, user, hf):
    limiter = hf.limiter("mail", "5/min")
    limiter.pause(60, reason="first")
    raw.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights_for(["names"]).rules())
    with Handfast(user.url, label="ann") as names, pytest.raises(ServerRefused, match="too few rights"):
        names.limiter("mail", "5/min").resume(reason="r")
    status = limiter.status()
    assert (status.last.what, status.paused_for > 50) == ("pause", True)


@pytest.mark.parametrize("act", LIMITS)
def test_of_a_limiter(raw, user, inboxes, act):
    limits = LimitScripts(raw, (6, 60_000))
    verb, special = LIMITS[act]
    script = load(f"limit_{verb}")

    def prepare():
        limits.acquire("t1", 2)
        raw.zadd(limits.windows[0], {"old 3": 1, "=": -5})
        if act == "resize to none":
            limits.resize()
        limits.pause(60_000)
        for token in ("w1", "w2"):
            limits.acquire(token, 4, inbox=inboxes(token))

    args = {"by": "me", "why": "test", "rates": limits.packed_rates, **special}
    refusals = check(raw, user, (script, limits.keys, [args[name] for name in script.header.args]), prepare)
    assert "+hset" in refusals
    assert act == "pause" or {"+zremrangebyrank", "&hf:inbox:*"} <= {*refusals}


def test_the_limit_of_a_budget_in_a_new_period(raw, user, inboxes):
    script = load("budget_set")
    keys = [f"{{hf:budget:a}}:{part}" for part in script.header.keys]

    def prepare():
        raw.hset(keys[0], mapping={"s": doubles(0, 1, 5, 0, -1, 9, 0), "d": "day UTC 1", "last": doubles(1) + b"x"})
        raw.pexpire(keys[0], 600_000)

    args = [doubles(4, 0, 0, 2**52, 9), "day UTC 1", "resize", "me", "test"]
    refusals = check(raw, user, (script, keys, args), prepare)
    assert {"+hset", "+rename", "+pexpire"} <= {*refusals}
