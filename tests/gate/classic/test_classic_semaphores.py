"""The classic semaphores behave as documented, flaws included; `hf.semaphore` does not have these flaws."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from handfast import AcquireTimeout, Handfast, LeaseLost, classic
from handfast.classic import watch
from handfast.testing import command, script
from tests._support import listings
from tests._support.listings import Crash, Interrupted, commands, crash

conn, form, proxy, resending = listings.conn, listings.form, listings.proxy, listings.resending


class Kind(NamedTuple):
    """One version of the semaphore, with uniform names for its functions."""

    acquire: object
    release: object
    refresh: object = None


FIRST = Kind(watch.acquire_semaphore, watch.release_semaphore)

FAIR = Kind(watch.acquire_fair_semaphore, watch.release_fair_semaphore, watch.refresh_fair_semaphore)

LOCKED = Kind(watch.acquire_semaphore_with_lock, watch.release_fair_semaphore, watch.refresh_fair_semaphore)

LUA = Kind(classic.acquire_semaphore, classic.release_semaphore, classic.refresh_semaphore)

every_kind = pytest.mark.parametrize("kind", [FIRST, FAIR, LOCKED, LUA], ids=["first", "fair", "locked", "lua"])

refreshing = pytest.mark.parametrize("kind", [FAIR, LUA], ids=["fair", "lua"])

by_time_only = pytest.mark.parametrize("kind", [FIRST, LUA], ids=["first", "lua"])


class Clock:
    """The clock of the current client. Each reading advances it by a microsecond."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def time(self):
        self.now += 1e-6
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of all clients, which only the test advances."""
    clock = Clock()
    for module in (watch.semaphores, classic.semaphores):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=clock.time))
    return clock


@contextmanager
def wrong_clock(ahead):
    """Set the wall clock of this process ahead by that many seconds."""
    right = time.time
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", lambda: right() + ahead)
        yield


def free(semaphore):
    """Return whether a new client gets a permit now; it releases it at once."""
    lease = semaphore.try_acquire()
    return lease is not None and lease.release()


def trips(raw):
    """Count the round trips with scripts and transactions since CONFIG RESETSTAT."""
    return {name: calls for name, calls in commands(raw).items() if name in {"eval", "evalsha", "exec"}}


# --- behaviour


@every_kind
def test_semaphore_grants_as_many_permits_as_its_limit(kind, conn):
    mine = [kind.acquire(conn, "s", 3) for _ in range(3)]
    assert {len(identifier) for identifier in mine} == {32}
    assert len(set(mine)) == 3
    assert kind.acquire(conn, "s", 3) is None
    assert kind.release(conn, "s", mine[1]) is True
    assert isinstance(kind.acquire(conn, "s", 3), str)
    assert kind.acquire(conn, "s", 3) is None
    assert conn.zcard("s") == 3


@every_kind
def test_only_the_holder_releases_a_permit(kind, conn):
    mine = kind.acquire(conn, "s", 1)
    assert kind.release(conn, "s", "another") is False
    assert kind.release(conn, "t", mine) is False
    assert kind.acquire(conn, "s", 1) is None
    assert kind.release(conn, "s", mine.encode()) is True
    assert kind.release(conn, "s", mine) is False


@every_kind
def test_permit_times_out(kind, conn, clock):
    old = kind.acquire(conn, "s", 1, timeout=5)
    clock.now += 4.9
    assert kind.acquire(conn, "s", 1, timeout=5) is None
    clock.now += 0.2
    assert kind.acquire(conn, "s", 1, timeout=5)
    assert kind.release(conn, "s", old) is False


@refreshing
def test_refresh_restarts_the_time_of_a_permit(kind, conn, clock):
    mine = kind.acquire(conn, "s", 1)
    for _ in range(3):
        clock.now += 9.9
        assert kind.refresh(conn, "s", mine) is True
    assert kind.acquire(conn, "s", 1) is None
    clock.now += 10.1
    assert kind.refresh(conn, "s", mine.encode()) is True, "no other client has removed it yet"
    clock.now += 10.1
    theirs = kind.acquire(conn, "s", 1)
    assert kind.refresh(conn, "s", mine) is False
    assert conn.zrange("s", 0, -1) in ([theirs], [theirs.encode()]), "the failed refresh has left nothing"


def test_refresh_script_replies_as_its_header_says(conn):
    source = (listings.LUA / "semaphore_refresh.lua").read_text()
    mine = LUA.acquire(conn, "s", 1)
    assert conn.eval(source, 1, "s", mine, time.time()) == 1
    assert conn.eval(source, 1, "s", "another", time.time()) == 0


@pytest.mark.parametrize(("one", "other"), [(FIRST, LUA), (LUA, FIRST)], ids=["first-lua", "lua-first"])
def test_both_forms_use_the_same_semaphore(one, other, conn):
    mine, theirs = one.acquire(conn, "s", 2), other.acquire(conn, "s", 2)
    assert theirs
    assert one.acquire(conn, "s", 2) is other.acquire(conn, "s", 2) is None
    assert classic.refresh_semaphore(conn, "s", mine) is True
    assert other.release(conn, "s", mine) is True
    assert one.acquire(conn, "s", 2)


def test_times_keep_their_digits_in_lua(conn, clock):
    clock.now = 1_700_000_000.123456
    mine = classic.acquire_semaphore(conn, "s", 1)
    assert conn.zscore("s", mine) == clock.now
    classic.refresh_semaphore(conn, "s", mine)
    assert conn.zscore("s", mine) == clock.now


# --- flaws of the first form


def test_flaw_client_10_ms_slow_steals_the_last_permit(conn, clock, hf, other):
    for kind, stolen in ((FIRST, True), (FAIR, False), (LOCKED, False), (LUA, False)):
        conn.flushall()
        mine = kind.acquire(conn, "s", 1)
        clock.now -= 0.01
        assert bool(kind.acquire(conn, "s", 1)) is stolen
        assert kind.release(conn, "s", mine) is True, "its holder still has it"

    leases = [hf.semaphore("s", 2).acquire() for _ in range(2)]
    for ahead in (-3600, -0.01):
        with wrong_clock(ahead):
            assert other.semaphore("s", 2).try_acquire() is None
    assert [lease.release() for lease in leases] == [True, True]


def test_flaw_client_10_ms_ahead_loses_its_permit(conn, clock, hf, other):
    for kind, stolen in ((FIRST, True), (FAIR, False), (LOCKED, False), (LUA, False)):
        conn.flushall()
        clock.now += 0.01
        mine = kind.acquire(conn, "s", 1)
        clock.now -= 0.01
        assert bool(kind.acquire(conn, "s", 1)) is stolen
        assert kind.release(conn, "s", mine) is True

    for ahead in (0.01, 3600):
        with wrong_clock(ahead):
            lease = hf.semaphore("s", 2).acquire(permits=2)
        assert other.semaphore("s", 2).try_acquire() is None
        lease.extend(30)
        assert lease.release() is True


def test_flaw_failed_attempt_of_the_first_form_blocks_others(conn, hf, other, raw):
    def release_and_ask():
        kind.release(conn, "s", mine)
        got.append(kind.acquire(conn, "s", 1))

    got = []
    for kind in (FIRST, LUA):
        mine = kind.acquire(conn, "s", 1)
        loser = Interrupted(conn, ZREM=[release_and_ask])
        assert kind.acquire(loser, "s", 1) is None
        if "ZREM" not in loser.sent:
            release_and_ask()  # a script has no ZREM that could be interrupted
    assert got[0] is None, "the permit was free, and no client got it"
    assert got[1]

    lease = hf.semaphore("s", 1).acquire()
    raw.config_resetstat()
    assert other.semaphore("s", 1).try_acquire() is None
    assert trips(raw) == {"evalsha": 1}, "refused in one round trip"
    assert hf.semaphore("s", 1).status().waiters == (), "without a queue entry"
    with pytest.raises(AcquireTimeout):
        other.semaphore("s", 1).acquire(timeout=0.01)
    assert hf.semaphore("s", 1).status().waiters == ()
    lease.release()
    assert free(other.semaphore("s", 1))


# --- flaws of the fair form


def overtaken(conn, kind):
    """Return whether two clients hold one permit if one gets its number first and the other adds itself first."""
    got = []
    slow = Interrupted(conn, EXEC=[lambda: None, lambda: got.append(kind.acquire(conn, "s", 1))])
    got.append(kind.acquire(slow, "s", 1))
    assert len(got) == 2
    return all(got)


def test_flaw_fair_form_client_with_a_smaller_number_steals_a_permit(conn, hf, raw):
    assert overtaken(conn, FAIR)
    conn.flushall()
    assert not overtaken(conn, LOCKED), "the lock prevents the race"

    conn.flushall()
    lua = Interrupted(conn)
    assert LUA.acquire(lua, "s", 1)
    assert lua.sent == ["EVALSHA"], "one atomic step"

    hf.semaphore("s", 1).acquire().release()
    raw.config_resetstat()
    with hf.semaphore("s", 1):
        assert trips(raw) == {"evalsha": 1}


def test_flaw_fair_form_takes_round_trips_and_a_lock(conn, hf, raw):
    sent = {}
    for name, kind in {"fair": FAIR, "locked": LOCKED, "lua": LUA}.items():
        conn.flushall()
        for outcome in ("won", "lost"):
            client = Interrupted(conn)
            assert bool(kind.acquire(client, "s", 1)) is (outcome == "won")
            sent[name, outcome] = len(client.sent)
    assert sent == {
        ("fair", "won"): 2,
        ("fair", "lost"): 3,
        ("locked", "won"): 7,
        ("locked", "lost"): 8,
        ("lua", "won"): 1,
        ("lua", "lost"): 1,
    }

    semaphore = hf.semaphore("s", 1)
    semaphore.acquire().release()
    raw.config_resetstat()
    with semaphore:
        assert trips(raw) == {"evalsha": 1}
        assert semaphore.try_acquire() is None
        assert trips(raw) == {"evalsha": 2}


def test_flaw_counter_of_the_fair_form_has_no_ttl(conn, hf, raw):
    FAIR.release(conn, "s", FAIR.acquire(conn, "s", 1))
    LUA.release(conn, "t", LUA.acquire(conn, "t", 1))
    assert [key if isinstance(key, str) else key.decode() for key in conn.keys()] == ["s:counter"]  # noqa: SIM118 -- no dict
    assert conn.ttl("s:counter") == -1

    hf.semaphore("s", 1).acquire().release()
    mine = raw.keys("{hf:semaphore:s}:*")
    assert mine, "the keys of tombstones"
    assert all(raw.pttl(key) > 0 for key in mine), "all of them expire"


def test_flaw_busy_lock_leaves_free_permits_unused(conn, hf):
    lock = classic.acquire_lock_with_timeout(conn, "s")
    assert LOCKED.acquire(conn, "s", 5) is None
    assert LUA.acquire(conn, "s", 5)
    with hf.lock("s"):
        assert free(hf.semaphore("s", 5)), "hf.semaphore uses no lock"
    classic.release_lock(conn, "s", lock)


def test_flaw_client_that_dies_in_a_failed_refresh_takes_a_permit(conn, clock, hf, other):
    mine = FAIR.acquire(conn, "s", 1)
    clock.now += 10.1
    FAIR.release(conn, "s", FAIR.acquire(conn, "s", 1))
    with pytest.raises(Crash):
        FAIR.refresh(Interrupted(conn, EXEC=[crash]), "s", mine)
    assert conn.zcard("s") == 1

    conn.flushall()
    refreshing = Interrupted(conn)
    assert LUA.refresh(refreshing, "s", mine) is False
    assert refreshing.sent == ["EVALSHA"]
    assert conn.zcard("s") == 0

    lease = hf.semaphore("s", 1, renew=False).acquire()
    assert other.semaphore("s", 1).force_release() == 1
    while not lease.lost:  # whether it has heard of it or asks: it brings nothing back
        with pytest.raises(LeaseLost):
            lease.extend(30)
    assert hf.semaphore("s", 1).status().holders == ()
    assert free(other.semaphore("s", 1))


@by_time_only
def test_flaw_fair_form_does_not_see_permits_of_the_other_forms(kind, conn, hf, other):
    assert kind.acquire(conn, "s", 1)
    assert FAIR.acquire(conn, "s", 1), "a second one"

    with hf.semaphore("s", 2).acquire(permits=2):
        assert not free(other.semaphore("s", 2)), "hf.semaphore has one version only"


# --- flaws of all forms


@every_kind
def test_flaw_fast_clock_ends_permits_of_others_early(kind, conn, clock, hf, other):
    mine = kind.acquire(conn, "s", 1)
    clock.now += 9.995
    assert kind.acquire(conn, "s", 1) is None
    clock.now += 0.01  # of a client 10 ms ahead
    assert kind.acquire(conn, "s", 1)
    assert kind.release(conn, "s", mine) is False

    with hf.semaphore("s", 1, ttl=60, renew=False) as lease:
        with wrong_clock(3600):
            assert other.semaphore("s", 1).try_acquire() is None
        lease.check()


@every_kind
def test_flaw_slow_client_loses_its_permit_early(kind, conn, clock, hf, other):
    clock.now -= 9.995
    mine = kind.acquire(conn, "s", 1)
    clock.now += 9.995  # the others' clock; by the server's, no time has gone by
    assert kind.acquire(conn, "s", 1) is None
    clock.now += 0.01
    assert kind.acquire(conn, "s", 1)
    assert kind.release(conn, "s", mine) is False

    with wrong_clock(-3600):
        lease = hf.semaphore("s", 1, ttl=60, renew=False).acquire()
    assert other.semaphore("s", 1).try_acquire() is None
    (holder,) = other.semaphore("s", 1).status().holders
    assert holder.remaining > 30
    assert lease.release() is True


@refreshing
def test_flaw_refresh_with_a_slow_clock_shortens_the_time(kind, conn, clock, hf, other):
    mine = kind.acquire(conn, "s", 1)
    clock.now -= 9
    assert kind.refresh(conn, "s", mine) is True
    clock.now += 9 + 1.1
    assert kind.acquire(conn, "s", 1), "one second after a permit of ten seconds was acquired and refreshed"

    with hf.semaphore("s", 1, ttl=60, renew=False) as lease:
        with wrong_clock(-3600):
            lease.extend(90)
        (holder,) = other.semaphore("s", 1).status().holders
        assert holder.remaining > 60


def test_flaw_lost_reply_may_refuse_because_of_the_own_permit(conn, resending, proxy, hf):
    fault = proxy.lose_reply(command("EVALSHA"))
    assert LUA.acquire(resending, "s", 1) is None
    assert fault.spent
    assert conn.zcard("s") == 1, "no other client has it"

    hf.semaphore("s", 1).acquire().release()
    with Handfast(proxy.url) as far:
        fault = proxy.lose_reply(script("permit_acquire"))
        with far.semaphore("s", 1).acquire(timeout=10) as lease:
            assert fault.spent
            lease.check()
