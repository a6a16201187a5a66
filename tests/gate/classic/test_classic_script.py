"""`script_load` behaves as documented, flaws included; `handfast.Script` does not have these flaws."""

from __future__ import annotations

import pytest
import redis
from redis.exceptions import NoScriptError

from handfast import Handfast, Script, classic, testing
from tests._support import listings
from tests._support.helpers import eventually
from tests._support.listings import Interrupted

conn, proxy, resending = listings.conn, listings.proxy, listings.resending

COUNT = (
    "-- count\n-- KEYS counter\n-- ARGV step\n-- REPLY - what it is now\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])"
)


def test_source_is_sent_only_if_the_server_does_not_know_the_script(conn):
    call = classic.script_load("return {KEYS[1], ARGV[1]}")
    watched = Interrupted(conn)
    conn.script_flush()
    answers = [
        call(watched, ["k"], [1]),
        call(watched, keys=["k"], args=[1]),
        call(watched, ["k"], [1], force_eval=True),
    ]
    assert watched.sent == ["EVALSHA", "EVAL", "EVALSHA", "EVAL"]
    assert answers[0] in (["k", "1"], [b"k", b"1"])
    assert answers[0] == answers[1] == answers[2]


def test_call_without_keys_and_arguments_works(conn):
    assert classic.script_load("return #KEYS + #ARGV")(conn) == 0


def test_error_of_the_script_is_not_taken_for_noscript(conn):
    failing = classic.script_load("return redis.error_reply('ERR no')")
    watched = Interrupted(conn)
    with pytest.raises(redis.ResponseError, match="no"):
        failing(watched)
    conn.script_load("return redis.error_reply('ERR no')")
    watched.sent.clear()
    with pytest.raises(redis.ResponseError, match="no"):
        failing(watched)
    assert watched.sent == ["EVALSHA"]


def test_lua_forms_survive_a_script_flush(conn):
    mine = classic.acquire_lock_with_timeout(conn, "a")
    conn.script_flush()
    assert classic.release_lock(conn, "a", mine) is True


def copied(script):
    """The listing as it is often copied, without its handling of NOSCRIPT."""
    learned = []

    def call(conn, keys=(), args=()):
        if not learned:
            learned.append(conn.script_load(script))
        return conn.evalsha(learned[0], len(keys), *keys, *args)

    return call


def test_flaw_digest_from_script_load_fails_after_a_restart(conn):
    calls = {"copied": copied(COUNT), "ours": classic.script_load(COUNT)}
    script = Script(COUNT)
    assert [call(conn, ["{c}"], [1]) for call in calls.values()] == [1, 2]
    conn.script_flush()  # as a restart does, or a failover
    with pytest.raises(NoScriptError):
        calls["copied"](conn, ["{c}"], [1])
    assert calls["ours"](conn, ["{c}"], [1]) == 3
    conn.script_flush()
    assert script(conn, counter="{c}", step=1) == 4


def test_flaw_keys_and_arguments_are_not_checked(conn):
    call = classic.script_load(COUNT)
    with pytest.raises(redis.ResponseError):  # the server's word for it, after the way there
        call(conn, ["{c}"])
    assert call(conn, ["{c}", "{d}"], [1, 2]) == 1, "superfluous keys and arguments are ignored"

    for wrong in ({}, {"step": 1, "more": 2}):
        with pytest.raises(TypeError, match="takes counter, step"):
            Script(COUNT)(conn, counter="{c}", **wrong)


def test_flaw_noscript_in_a_pipeline_comes_too_late(conn):
    call = classic.script_load(COUNT)
    conn.script_flush()
    with conn.pipeline() as pipe:
        pipe.set("{c}:before", 1)
        call(pipe, ["{c}"], [1])
        with pytest.raises(NoScriptError):
            pipe.execute()
        assert conn.exists("{c}:before", "{c}") == 1, "the other commands of the pipeline have run"
        call(pipe, ["{c}"], [1], force_eval=True)
        assert pipe.execute() == [1]

        conn.script_flush()
        Script(COUNT)(pipe, counter="{c}", step=1)
        assert pipe.execute() == [2]


def test_flaw_lost_reply_runs_the_script_twice(conn, resending, proxy):
    call, script = classic.script_load(COUNT), Script(COUNT)
    assert call(conn, ["{c}"], [1], force_eval=True) == 1
    fault = proxy.lose_reply(testing.command("EVALSHA"))
    assert call(resending, ["{c}"], [1]) == 3, "once with a lost reply, and once more"
    assert fault.spent

    with Handfast(proxy.url) as hf:
        assert script(hf, counter="{c}", step=1) == 4
        fault = proxy.lose_reply(testing.script(script))
        with pytest.raises(redis.ConnectionError):  # its header does not say what happens TWICE
            script(hf, counter="{c}", step=1)
        assert fault.spent
        eventually(lambda: int(conn.get("{c}")) == 5)
        assert script(hf, counter="{c}", step=1) == 6
