"""A `force_release` or a `preempt` ends the holder, the next caller is in at once, and a loop stands again.

With the fence of this holder, a `force_release` ends no holder beside it; with another fence, none.
"""

from __future__ import annotations

import asyncio

import pytest

from handfast import LeaseLost
from tests._support.family import until_listening
from tests._support.kinds import LONG_S, OPERATED, until


def applies(row, api):
    if row.shape == "calls" or row.loop == "watches":
        return "nothing is held"
    return None if row.held and row.of != "once" else "its lease can't be taken by name"


@pytest.mark.usefixtures("short_ticks")
@pytest.mark.parametrize("way", ["force_release", "fence", "preempt"])
async def test_revoked(request, there, row, visit, way):
    if way == "preempt" and row.of != "lock":
        pytest.skip("a lock alone has a preempt()")
    raw, taker = request.getfixturevalue("raw"), OPERATED[row.of](there)
    one = visit()
    assert await one.enters()
    await until_listening(raw)
    beside = None
    if way == "fence":
        (holder,) = (await asyncio.to_thread(taker.status)).holders
        beside = await asyncio.to_thread(row.make(there).acquire) if row.room > 1 else None
        assert await asyncio.to_thread(taker.force_release, fence=holder.fence - 1) == 0
        assert one.inside
        revoked = await asyncio.to_thread(taker.force_release, reason="it hangs", fence=holder.fence)
        assert revoked == 1
    elif way == "force_release":
        revoked = await asyncio.to_thread(taker.force_release, reason="it hangs")
        assert revoked == 1
    else:
        one.may_leave = one.is_blind()
        with await asyncio.to_thread(taker.preempt, grace=LONG_S):
            assert not one.inside
            one.may_leave = False
    if row.loop:
        assert await one.enters(2), f"the loop has ended with {one.error!r}"
    else:
        await until(lambda: one.ended)
        assert isinstance(one.error, LeaseLost) or one.is_blind(), repr(one.error)
        again = visit()
        assert await again.enters(), repr(again.error)
        assert await again.leaves() is None
    if beside is not None:
        assert await asyncio.to_thread(beside.release) is True
    if not row.loop:
        await until(lambda: not row.busy(there))
