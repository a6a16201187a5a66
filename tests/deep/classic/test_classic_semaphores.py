"""The classic semaphores behave as documented, flaws included; `hf.semaphore` does not have these flaws.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast.classic import watch
from tests._support import listings
from tests._support.actor import Actors, family_user
from tests._support.helpers import eventually, kill_waiter
from tests._support.listings import Crash, Interrupted, crash
from tests.gate.classic import test_classic_semaphores as gate
from tests.gate.classic.test_classic_semaphores import FAIR, FIRST, LOCKED, LUA, every_kind, free, trips

conn, form = listings.conn, listings.form


clock = gate.clock


# --- flaws of the first form


def test_flaw_client_that_dies_in_a_failed_attempt_takes_a_permit(conn, clock, hf, server, raw):
    mine = FIRST.acquire(conn, "s", 1)
    with pytest.raises(Crash):
        FIRST.acquire(Interrupted(conn, ZREM=[crash]), "s", 1)
    FIRST.release(conn, "s", mine)
    assert FIRST.acquire(conn, "s", 1) is None
    clock.now += 10.1
    assert FIRST.acquire(conn, "s", 1)

    conn.flushall()
    mine = LUA.acquire(conn, "s", 1)
    loser = Interrupted(conn)
    assert LUA.acquire(loser, "s", 1) is None
    assert loser.sent == ["EVALSHA"], "a failed attempt has nothing to undo"
    assert conn.zcard("s") == 1

    with Actors(family_user, server.url) as actors, hf.semaphore("a", 1) as lease:
        (loser,) = actors()
        loser.tell("acquire", kind="semaphore", limit=1)
        eventually(lambda: hf.semaphore("a", 1).status().waiters)
        kill_waiter(loser, raw)
        lease.release()
        assert free(hf.semaphore("a", 1)), "a dead waiter is skipped"


def test_flaw_first_form_cannot_be_refreshed(conn, clock, hf, other):
    assert not hasattr(watch, "refresh_semaphore")
    first, fair = watch.acquire_semaphore(conn, "s", 1), watch.acquire_fair_semaphore(conn, "t", 1)
    assert first
    assert watch.refresh_fair_semaphore(conn, "t", fair) is True

    with hf.semaphore("s", 1, ttl=0.3) as lease:
        ends = time.monotonic() + lease.remaining()
        eventually(lambda: time.monotonic() > ends)
        lease.check()
        assert other.semaphore("s", 1).try_acquire() is None


# --- flaws of all forms


@every_kind
def test_flaw_timeout_of_a_new_client_ends_the_permit_of_a_holder(kind, conn, clock, hf, other):
    mine = kind.acquire(conn, "s", 1, timeout=60)
    clock.now += 2
    assert kind.acquire(conn, "s", 1, timeout=1)
    assert kind.release(conn, "s", mine) is False

    with hf.semaphore("s", 1, ttl=60, renew=False) as lease:
        assert other.semaphore("s", 1, ttl=0.001).try_acquire() is None
        assert lease.remaining() > 1


def test_flaw_holder_is_not_notified_of_the_loss(conn, hf, other):
    for kind in (FIRST, FAIR, LOCKED, LUA):
        mine = kind.acquire(conn, "s", 1)
        conn.delete("s", "s:owner")
        assert isinstance(mine, str), "the identifier is all that the holder has"
        assert kind.release(conn, "s", mine) is False

    lease = hf.semaphore("s", 1).acquire()
    other.semaphore("s", 1).force_release(reason="test")
    assert lease.lost_event.wait(10)
    assert lease.lost is True


@every_kind
def test_flaw_there_is_no_queue_and_no_notification(kind, conn, hf, other, raw):
    mine = kind.acquire(conn, "s", 1)
    assert kind.acquire(conn, "s", 1) is None, "first attempt"
    kind.release(conn, "s", mine)
    assert kind.acquire(conn, "s", 1), "a later client may come first"
    assert kind.acquire(conn, "s", 1) is None

    hf.semaphore("s", 2).acquire(permits=2).release()  # the server knows the scripts then
    lease = hf.semaphore("s", 2).acquire(permits=2)
    with ThreadPoolExecutor(1) as threads:
        short = other.semaphore("s", 2, ttl=2, renew=False)  # a longer one would be confirmed
        waiter = threads.submit(short.acquire, permits=2, timeout=20)
        eventually(lambda: hf.semaphore("s", 2).status().waiters)
        raw.config_resetstat()
        lease.release()
        assert hf.semaphore("s", 2).try_acquire() is None
        theirs = waiter.result()
    assert trips(raw) == {"evalsha": 2}, "the release, which handed the permit over, and the failed attempt"
    assert theirs.release() is True
