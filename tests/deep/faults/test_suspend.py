"""A machine that is suspended: the clock that leases are measured with goes on, and the timers of the process do not.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

from tests._support.helpers import eventually_async


async def test_a_suspend_that_is_shorter_than_the_ttl_costs_no_lease(suspend, here, raw):
    lease = await here.lock("a", ttl=3600).acquire()
    suspend(1800.0)
    assert not lease.lost
    assert lease.remaining() <= 1800.0
    await eventually_async(lambda: lease.remaining() > 3500)
    assert await lease.release() is True
