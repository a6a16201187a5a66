"""The classic locks behave as documented, flaws included; `hf.lock` does not have these flaws.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast.classic import watch
from tests._support import listings
from tests._support.helpers import eventually
from tests._support.listings import Crash, Interrupted, commands, crash
from tests.gate.classic.test_classic_locks import ACQUIRE_COMMAND, pausing

conn, form = listings.conn, listings.form


# --- flaws of the first form


def test_flaw_crash_between_setnx_and_expire_leaves_a_lock_without_ttl(conn, actors, raw):
    with pytest.raises(Crash):
        watch.acquire_lock_with_timeout(Interrupted(conn, EXPIRE=[crash]), "a", lock_timeout=1)
    assert conn.ttl("lock:a") == -1  # no TTL, until another client wants it
    assert watch.acquire_lock_with_timeout(conn, "a", acquire_timeout=0, lock_timeout=1) is False
    assert 0 < conn.pttl("lock:a") <= 1000  # the loser's repair: only now its time begins
    assert watch.acquire_lock_with_timeout(conn, "a", acquire_timeout=5)

    (holder,) = actors(1)
    holder.ask("acquire")
    holder.kill()
    assert all(raw.pttl(key) > 0 for key in raw.keys("{hf:lock:*")), "it expires without another client"


# --- flaws of both forms


def test_flaw_waiter_polls(form, conn, hf, raw, monkeypatch):
    mine = form.acquire_lock_with_timeout(conn, "a")
    paused = pausing(monkeypatch, form, lambda: len(paused) < 5 or form.release_lock(conn, "a", mine))
    waiting = Interrupted(conn)
    assert form.acquire_lock_with_timeout(waiting, "a")
    assert waiting.sent.count(ACQUIRE_COMMAND[form]) == 6

    hf.lock("a").acquire().release()  # the server knows the scripts
    lease = hf.lock("a", renew=False).acquire()
    with ThreadPoolExecutor(1) as threads:
        short = hf.lock("a", ttl=2, renew=False)  # a longer one would be confirmed
        waiter = threads.submit(short.acquire, timeout=20)
        eventually(lambda: hf.lock("a").status().waiters)
        raw.config_resetstat()
        lease.release()
        theirs = waiter.result()
    assert commands(raw)["evalsha"] == 1, "the release, which handed the lock over"
    theirs.release()


def test_flaw_timeout_is_rounded_up_to_seconds_and_never_renewed(form, hf, raw):
    form.acquire_lock_with_timeout(raw, "a", lock_timeout=0.1)
    assert raw.pttl("lock:a") > 900
    raw.pexpire("lock:a", 1)  # its time goes by
    assert form.acquire_lock_with_timeout(raw, "a", acquire_timeout=5), (
        "while the first client believes that it holds the lock"
    )

    with hf.lock("a", ttl=1.5) as lease:
        assert lease.remaining() <= 1.5
        ends = time.monotonic() + lease.remaining()
        eventually(lambda: time.monotonic() > ends)
        lease.check()
        assert hf.lock("a").try_acquire() is None


def test_flaw_holder_is_not_notified_of_the_loss(form, conn, hf, other):
    mine = form.acquire_lock_with_timeout(conn, "a")
    conn.delete("lock:a")
    assert isinstance(mine, str), "the identifier is all that the holder has"
    assert form.release_lock(conn, "a", mine) is False

    lease = hf.lock("a").acquire()
    other.lock("a").force_release(reason="test")
    assert lease.lost_event.wait(10)
    assert lease.lost is True
