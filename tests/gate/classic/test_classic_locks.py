"""The classic locks behave as documented, flaws included; `hf.lock` does not have these flaws."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import redis

from handfast import Handfast, ServerUnsupported, classic
from handfast.classic import watch
from handfast.classic.watch import pipelines
from handfast.testing import command, script
from tests._support import listings
from tests._support.helpers import eventually
from tests._support.listings import Interrupted, commands

conn, form, proxy, resending = listings.conn, listings.form, listings.proxy, listings.resending

ACQUIRE_COMMAND = {watch: "SETNX", classic: "EVALSHA"}
"""The command with which each form acquires a lock."""


def pausing(monkeypatch, form, act):
    """Call a function in place of each pause between two polls, and advance the clock by the pause."""
    paused = []

    def sleep(seconds):
        paused.append(seconds)
        act()

    monkeypatch.setattr(form.locks, "time", SimpleNamespace(monotonic=lambda: sum(paused), sleep=sleep))
    return paused


# --- behaviour


def test_lock_excludes_until_its_holder_releases(form, conn):
    mine = form.acquire_lock_with_timeout(conn, "a")
    assert len(mine) == 32
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0) is False
    assert form.release_lock(conn, "a", mine) is True
    theirs = form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0)
    assert theirs not in {mine, False}
    assert form.release_lock(conn, "a", theirs.encode()) is True


def test_only_the_holder_releases(form, conn):
    mine = form.acquire_lock_with_timeout(conn, "a")
    assert form.release_lock(conn, "a", "another") is False
    assert form.release_lock(conn, "b", mine) is False
    assert conn.exists("lock:a")
    assert form.release_lock(conn, "a", mine) is True
    assert form.release_lock(conn, "a", mine) is False


def test_release_of_a_free_lock_returns_false(form, conn):
    assert form.release_lock(conn, "a", "None") is False


def test_acquire_returns_false_after_its_timeout(form, conn):
    form.acquire_lock_with_timeout(conn, "a")
    began = time.monotonic()
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0.05) is False
    assert time.monotonic() - began >= 0.05


def test_lock_expires_after_whole_seconds(form, conn):
    form.acquire_lock_with_timeout(conn, "a", lock_timeout=1.2)
    assert 1200 < conn.pttl("lock:a") <= 2000
    conn.pexpire("lock:a", 1)
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=5)


@pytest.mark.parametrize("seconds", [0, -1, 1e18])
def test_a_time_that_no_server_takes_grants_nothing_and_leaves_nothing(form, conn, raw, seconds):
    for _ in range(2):
        with pytest.raises(redis.ResponseError):
            form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0, lock_timeout=seconds)
        assert not raw.exists("lock:a")


def test_a_token_that_is_no_text_releases_nothing(form, conn):
    assert form.acquire_lock_with_timeout(conn, "a")
    assert form.release_lock(conn, "a", b"\xff\xfe") is False


def test_a_cluster_is_refused_where_its_pipelines_cannot_watch(monkeypatch):
    class Cluster(redis.RedisCluster):
        def __init__(self): ...

    monkeypatch.setattr(pipelines, "WATCHES_IN_CLUSTERS", False)
    for call in (watch.acquire_lock_with_timeout, watch.release_lock, watch.autocomplete_on_prefix):
        with pytest.raises(ServerUnsupported, match=r"has no WATCH for a cluster; take 6\.2 or newer"):
            call(Cluster(), "a", *(["x"] if call is not watch.acquire_lock_with_timeout else []))


@pytest.mark.parametrize(("one", "other"), [(watch, classic), (classic, watch)], ids=["first-lua", "lua-first"])
def test_both_forms_use_the_same_lock(one, other, conn):
    mine = one.acquire_lock_with_timeout(conn, "a")
    assert other.acquire_lock_with_timeout(conn, "a", acquire_timeout=0) is False
    assert other.release_lock(conn, "a", "another") is False
    assert other.release_lock(conn, "a", mine) is True
    assert one.acquire_lock_with_timeout(conn, "a", acquire_timeout=0)


# --- flaws of the first form


def test_flaw_first_form_release_starts_over_when_the_ttl_is_repaired(conn, hf, raw):
    mine = watch.acquire_lock_with_timeout(conn, "a")
    disturbed = Interrupted(conn, EXEC=[lambda: conn.expire("lock:a", 10)])
    assert watch.release_lock(disturbed, "a", mine) is True
    assert disturbed.sent == ["WATCH", "GET", "EXEC"] * 2

    hf.lock("a").acquire().release()
    lease = hf.lock("a").acquire()
    raw.config_resetstat()
    assert lease.release() is True
    assert commands(raw)["evalsha"] == 1


def test_flaw_failed_attempt_of_the_first_form_takes_two_round_trips(conn):
    watch.acquire_lock_with_timeout(conn, "a")
    sent = {}
    for form in (watch, classic):
        loser = Interrupted(conn)
        assert form.acquire_lock_with_timeout(loser, "a", acquire_timeout=0) is False
        sent[form] = loser.sent
    assert sent == {watch: ["SETNX", "TTL"], classic: ["EVALSHA"]}


# --- flaws of both forms


def test_flaw_releasing_client_may_overtake_waiters(form, conn, hf, other, monkeypatch):
    held = [form.acquire_lock_with_timeout(conn, "a")]

    def release_and_take():
        assert form.release_lock(conn, "a", held[-1]) is True
        held.append(form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0))

    pausing(monkeypatch, form, release_and_take)
    assert form.acquire_lock_with_timeout(conn, "a", acquire_timeout=0.02) is False
    assert len(held) > 20, "the lock was free that often"
    assert False not in held

    lease = hf.lock("a").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(other.lock("a").acquire, timeout=20)
        eventually(lambda: hf.lock("a").status().waiters)
        lease.release()
        assert hf.lock("a").try_acquire() is None
        waiter.result().release()


def test_flaw_lost_reply_makes_the_caller_wait_for_its_own_lock(form, conn, resending, proxy, hf):
    fault = proxy.lose_reply(command(ACQUIRE_COMMAND[form]))
    assert form.acquire_lock_with_timeout(resending, "a", acquire_timeout=0) is False
    assert fault.spent
    assert conn.exists("lock:a"), "no other client has it"

    hf.lock("a").acquire().release()
    with Handfast(proxy.url) as far:
        fault = proxy.lose_reply(script("permit_acquire"))
        with far.lock("a").acquire(timeout=10) as lease:
            assert fault.spent
            lease.check()
