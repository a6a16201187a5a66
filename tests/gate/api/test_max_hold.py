"""``max_hold``: a lease ends when it was held for long enough, whatever its holder does.

In both APIs, for every kind.
"""

from __future__ import annotations

import pytest

from handfast import LeaseLost
from tests._support.helpers import BOUND_S, eventually_async
from tests._support.kinds import ROWS

kinds = pytest.mark.parametrize("kind", ["lock", "rlock", "lock_all", "semaphore", "read", "write"])


@kinds
async def test_no_ttl_is_longer(here, kind):
    async with ROWS[kind].make(here, ttl=600, max_hold=100) as lease:
        assert 90 < lease.remaining() <= 100
        assert not lease.lost


async def test_extend_does_not_last_longer(here, raw):
    async with here.lock("a", ttl=60, max_hold=100) as lease:
        await lease.extend(3600)
        assert 90 < lease.remaining() <= 100
        [holder] = (await here.lock("a").status()).holders
        assert holder.remaining <= 101


@kinds
async def test_a_block_that_lasts_longer_has_lost_its_lease_and_the_next_one_gets_in(here, there, kind):
    with pytest.raises(LeaseLost, match=r"was lost: it was held for max_hold, 0\.05 s"):
        async with ROWS[kind].make(here, ttl=60, max_hold=0.05) as lease:
            await eventually_async(lambda: lease.lost)
    assert lease.held_for == pytest.approx(0.05)
    async with ROWS[kind].make(there).acquire(timeout=BOUND_S) as after:
        assert after.fence > lease.fence


def test_what_keeps_a_name_taken_is_not_longer(api):
    client = api.client("redis://nowhere.invalid")
    with pytest.raises(ValueError, match="at_least must not be longer than max_hold, 10 s, and is 11"):
        client.lock("a", at_least=11, max_hold=10)
    client.lock("a", at_least=10, max_hold=10)


async def test_a_run_of_once_that_lasts_longer_is_run_again(here, there):
    with pytest.raises(LeaseLost, match="max_hold"):
        async with here.once("a", ttl=60, max_hold=0.05) as run:
            await eventually_async(lambda: run.lost)
    async with there.once("a", timeout=BOUND_S) as run:
        assert not run.done
