"""Lost-callbacks: whatever one does, the renewals, the other callbacks and the replies go on.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, forever

pytestmark = pytest.mark.usefixtures("short_ticks")


def renewals_go_on(lease):
    """Wait until the lease was renewed twice more."""
    for _ in range(2):
        before = lease._state.deadline
        eventually(lambda before=before: lease._state.deadline > before)
    return not lease.lost


async def test_a_callback_that_fails_is_logged_and_does_not_stop_the_renewer(here, raw, caplog):
    called = []

    def fail():
        raise RuntimeError("mine")

    lease = await here.lock("a", ttl=0.2).acquire()
    lease.add_lost_callback(fail)
    lease.add_lost_callback(lambda: called.append(1))
    async with here.lock("b", ttl=0.2) as second:
        raw.delete(Engine(raw, "a").key("state"))
        await eventually_async(lambda: called)
        await asyncio.sleep(0.4)
        assert not second.lost
    assert called == [1]
    assert "mine" in caplog.text
    assert lease.token not in caplog.text
    await lease.release()


# --- only of the sync API: they have a thread of their own


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_that_ends_programs_ends_neither_renewals_nor_callbacks(hf, other, caplog, error):
    def fail():
        raise error

    lease, kept, called = hf.lock("a", ttl=0.5).acquire(), hf.lock("b", ttl=0.5).acquire(), []
    lease.add_lost_callback(fail)
    lease.add_lost_callback(lambda: called.append(1))
    assert other.lock("a").force_release() == 1
    assert eventually(lambda: called) == [1]
    assert renewals_go_on(kept)
    assert error.__name__ in caplog.text
    assert other.lock("b").force_release() == 1
    assert kept.lost_event.wait(10)


def test_a_callback_may_wait_for_the_lock_that_was_lost(hf, other):
    """The obvious thing to do.

    Meanwhile the other leases of the client are renewed, and their losses reach their holders.
    """
    first, kept, third = (hf.lock(name, ttl=0.5).acquire() for name in "abc")
    second = []
    first.add_lost_callback(lambda: second.append(hf.lock("a").acquire()))
    with ThreadPoolExecutor(1) as threads:
        next_holder = threads.submit(other.lock("a").acquire)
        eventually(lambda: other.lock("a").status().waiting)
        assert other.lock("a").force_release() == 1
        with next_holder.result():
            eventually(lambda: other.lock("a").status().waiting)
            assert renewals_go_on(kept)
            assert other.lock("c").force_release() == 1
            assert third.lost_event.wait(10)
            assert not second
    assert eventually(lambda: second)[0].release() is True
    assert kept.release() is True


# --- only of the asyncio API: they are called by the event loop


def test_an_interrupt_in_a_callback_ends_the_loop_but_hides_no_other_loss(server, raw):
    called = []

    def interrupt():
        raise KeyboardInterrupt

    async def lose():
        leases = [await hf.lock(name, ttl=0.05, renew=False).acquire() for name in "ab"]
        for lease in leases:
            lease.add_lost_callback(interrupt)
            lease.add_lost_callback(lambda lease=lease: called.append(lease.name))
        await forever()

    with asyncio.Runner() as runner:
        hf = AsyncHandfast(server.url)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                runner.run(lose() if not called else forever())
        assert sorted(called) == ["a", "b"]
        runner.run(hf.close())
