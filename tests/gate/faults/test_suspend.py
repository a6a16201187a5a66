"""A machine that is suspended: the clock that leases are measured with goes on, and the timers of the process do not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from handfast import LeaseLost
from tests._support.helpers import eventually_async, more

SUSPENDED_S = 3600.0


async def test_a_suspend_counts_as_elapsed_time_at_once(suspend, here):
    lease = await here.lock("a", ttl=30).acquire()
    suspend(SUSPENDED_S)
    assert lease.lost
    assert lease.remaining() == 0.0
    with pytest.raises(LeaseLost):
        lease.check()
    assert await lease.release() is False


@pytest.mark.parametrize("renew", [True, *more(False)])
async def test_callbacks_run_soon_after_the_resume_although_timers_stood_still(suspend, here, renew):
    lease = await here.lock("a", ttl=3600, renew=renew).acquire()
    lost = lease.lost_event
    suspend(SUSPENDED_S)
    await eventually_async(lost.is_set)
    assert await lease.release() is False


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no CLOCK_BOOTTIME")
def test_the_clock_is_the_one_that_counts_suspends():
    """A child process, since the clock is chosen on import: there CLOCK_BOOTTIME is an hour ahead of the other clocks."""
    child = f"""
import time
real = time.clock_gettime
time.clock_gettime = lambda number: real(number) + (number == time.CLOCK_BOOTTIME) * {SUSPENDED_S}
from handfast._drivers.aio import driver as aio
from handfast._drivers.sync import driver as sync
assert aio.monotonic is sync.monotonic
assert real(time.CLOCK_BOOTTIME) <= sync.monotonic() - {SUSPENDED_S} <= real(time.CLOCK_BOOTTIME)
"""
    subprocess.run([sys.executable, "-c", child], check=True, timeout=30)
