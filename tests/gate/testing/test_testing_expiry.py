"""`expire_now`, in both APIs."""

from __future__ import annotations

import pytest

from handfast import LeaseLost
from handfast.testing import expire_now
from tests._support.helpers import eventually_async, settled
from tests._support.kinds import ROWS


@pytest.mark.parametrize("kind", ["lock", "semaphore", "read", "election"])
async def test_a_lease_ends_and_its_holder_hears_of_it(plain, there, kind):
    lease = await settled(ROWS[kind].make(plain).acquire())
    event = lease.lost_event
    await settled(expire_now(lease))
    await (await ROWS[kind].make(there).acquire(timeout=5)).release()
    await eventually_async(event.is_set)
    with pytest.raises(LeaseLost, match="expire_now"):
        lease.check()


async def test_another_holder_of_the_name_keeps_its_lease(plain, there):
    first, second = await settled(plain.semaphore("a", 2).acquire()), await there.semaphore("a", 2).acquire()
    await settled(expire_now(first))
    await eventually_async(lambda: first.lost)
    assert [one.fence for one in (await there.semaphore("a", 2).status()).holders] == [second.fence]
    await second.release()


async def test_what_ends_is_the_lease_of_a_name(plain):
    both = await settled(plain.lock_all(["a", "b"]).acquire())
    for what in ("a", both):
        with pytest.raises(TypeError, match="needs a lease of one name"):
            expire_now(what)
    await settled(both.release())
