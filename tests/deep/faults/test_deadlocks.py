"""Callers that would wait for themselves are refused, those that may be served are not, and long waits for oneself are logged.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AcquireTimeout
from handfast._protocol import waiting
from tests.gate.faults import test_deadlocks as gate

ahf = gate.ahf


# --- not certain: others may let it go


def test_a_lease_that_is_not_renewed_ends_by_itself(hf):
    with pytest.raises(Exception, match="its ttl ended"), hf.lock("a", ttl=0.2, renew=False):
        hf.lock("a").acquire(timeout=30).release()


async def test_a_lease_of_asyncio_that_is_not_renewed_ends_by_itself(ahf):
    async with ahf.lock("a", ttl=0.2, renew=False, on_lost="warn") as lease:
        later = await ahf.lock("a").acquire(timeout=30)
        assert later.fence > lease.fence
        await later.release()
        lease._on_lost = "raise"
        await lease.release()


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(waiting, "WARN_AFTER_S", 0.05)


def said(caplog):
    return [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("kind", ["lock", "rwlock"])
def test_a_long_wait_for_what_the_same_client_holds_is_logged_once_for_each_name(hf, soon, caplog, kind):
    def make():
        return hf.lock("a") if kind == "lock" else hf.rwlock("a").write()

    lease = make().acquire()
    with ThreadPoolExecutor(3) as threads:
        waiters = [threads.submit(make().acquire, timeout=0.3) for _ in range(3)]
        for waiter in waiters:
            with pytest.raises(AcquireTimeout):
                waiter.result(10)
    [record] = said(caplog)
    assert record.name == "handfast.lease"
    assert record.getMessage().startswith("a call waits for 'a', which this client itself has held for ")
    assert (record.lock, record.fence) == ("a", lease.fence)
    lease.release()


async def test_a_long_wait_of_asyncio_is_logged_once_for_each_name(ahf, soon, caplog):
    leases = [await ahf.lock("a").acquire(), await ahf.lock_all(["b", "c"]).acquire()]
    for name in ("a", "a", "b", "b"):
        with pytest.raises(AcquireTimeout):
            await ahf.lock(name).acquire(timeout=0.2)
    assert [record.lock for record in said(caplog)] == ["a", "b, c"]
    for lease in leases:
        await lease.release()


def test_a_long_wait_for_others_is_not_logged(hf, other, soon, caplog):
    held = [other.lock("a").acquire(), hf.semaphore("s", 1).acquire(), hf.lock("b", renew=False, ttl=60).acquire()]
    for wait in (hf.lock("a"), hf.semaphore("s", 1), hf.lock("b")):
        with pytest.raises(AcquireTimeout):
            wait.acquire(timeout=0.2)
    assert not said(caplog)
    for lease in held:
        lease.release()


def test_the_names_that_were_logged_do_not_pile_up(hf, soon, caplog, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_WARNED", 2)
    leases = [hf.lock(name).acquire() for name in "abc"]
    for name in "abc":
        with pytest.raises(AcquireTimeout):
            hf.lock(name).acquire(timeout=0.1)
    assert len(hf._driver._here.leases.warned) == 1
    assert len(said(caplog)) == 3
    for lease in leases:
        lease.release()
