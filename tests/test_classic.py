"""The classic listings do what they are known for, flaws included."""

from __future__ import annotations

import time

import pytest
import redis

from holdfast import classic
from holdfast.classic import watch


@pytest.fixture(params=[False, True], ids=["bytes", "str"])
def conn(request, server, raw):
    """A client as a user of the listings has it, with decode_responses off and on."""
    with redis.Redis.from_url(server.url, decode_responses=request.param) as client:
        yield client


@pytest.fixture(params=[watch, classic], ids=["first", "lua"])
def form(request):
    return request.param


def test_the_lock_excludes_until_its_owner_releases(form, conn):
    mine = form.acquire_lock_with_timeout(conn, "a")
    assert len(mine) == 32
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0) is False
    assert form.release_lock(conn, "a", mine) is True
    theirs = form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0)
    assert theirs not in {mine, False}
    assert form.release_lock(conn, "a", theirs.encode()) is True


def test_only_the_owner_releases(form, conn):
    mine = form.acquire_lock_with_timeout(conn, "a")
    assert form.release_lock(conn, "a", "somebody else") is False
    assert form.release_lock(conn, "b", mine) is False
    assert conn.exists("lock:a")
    assert form.release_lock(conn, "a", mine) is True
    assert form.release_lock(conn, "a", mine) is False


def test_who_waits_gives_up_after_its_timeout(form, conn):
    form.acquire_lock_with_timeout(conn, "a")
    began = time.monotonic()
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0.05) is False
    assert time.monotonic() - began >= 0.05


def test_the_lock_ends_by_itself_in_whole_seconds(form, conn):
    form.acquire_lock_with_timeout(conn, "a", lock_timeout=1.2)
    assert 1200 < conn.pttl("lock:a") <= 2000
    conn.pexpire("lock:a", 1)
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=5)


def test_both_forms_are_the_same_lock(conn):
    mine = watch.acquire_lock_with_timeout(conn, "a")
    assert classic.acquire_lock_with_timeout(conn, "a", acquire_timeout=0) is False
    assert classic.release_lock(conn, "a", mine) is True


class Crash(BaseException):
    """The end of a process, at a moment of our choice."""


class Crashing:
    """A client whose process dies before it can send EXPIRE."""

    def __init__(self, conn):
        self.setnx = conn.setnx

    def expire(self, *_):
        raise Crash


def test_flaw_a_crash_between_setnx_and_expire_leaves_a_lock_that_only_the_next_loser_ends(conn):
    with pytest.raises(Crash):
        watch.acquire_lock_with_timeout(Crashing(conn), "a", lock_timeout=1)
    assert conn.ttl("lock:a") == -1  # for ever, as long as nobody wants it
    assert watch.acquire_lock_with_timeout(conn, "a", acquire_timeout=0, lock_timeout=1) is False
    assert 0 < conn.pttl("lock:a") <= 1000  # the loser's repair: only now its time begins
    assert watch.acquire_lock_with_timeout(conn, "a", acquire_timeout=5)


def test_flaw_the_first_form_releases_all_over_again_when_a_loser_repairs_meanwhile(conn, server):
    mine = watch.acquire_lock_with_timeout(conn, "a")
    disturbed = []

    class Disturbed(type(conn.pipeline())):
        def get(self, name):
            value = super().get(name)
            if not disturbed:
                disturbed.append(conn.expire(name, 10))
            return value

    conn.pipeline = lambda: Disturbed(conn.connection_pool, conn.response_callbacks, True, None)
    assert watch.release_lock(conn, "a", mine) is True
    assert disturbed == [True]


def test_a_script_is_sent_whole_only_where_the_server_does_not_know_it(conn):
    sent = []

    class Watched(type(conn)):
        def execute_command(self, *args, **options):
            sent.append(args[0])
            return super().execute_command(*args, **options)

    watched = Watched(connection_pool=conn.connection_pool)
    call = classic.script_load("return {KEYS[1], ARGV[1]}")
    conn.script_flush()
    answers = [
        call(watched, ["k"], [1]),
        call(watched, keys=["k"], args=[1]),
        call(watched, ["k"], [1], force_eval=True),
    ]
    assert sent == ["EVALSHA", "EVAL", "EVALSHA", "EVAL"]
    assert answers[0] in (["k", "1"], [b"k", b"1"])
    assert answers[0] == answers[1] == answers[2]


def test_the_lua_lock_survives_a_server_that_forgets_its_scripts(conn):
    mine = classic.acquire_lock_with_timeout(conn, "a")
    conn.script_flush()
    assert classic.release_lock(conn, "a", mine) is True
