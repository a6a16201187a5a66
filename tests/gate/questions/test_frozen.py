"""A caller is frozen, in the block or in the queue, until its lease and its place are over. Awake again it gets LeaseLost or its turn."""

from __future__ import annotations

import pytest

from handfast import LeaseLost
from tests._support.kinds import LONG_S, OPERATED, SHORT_TTL_S, until


def applies(row, api):
    if row.loop == "watches":
        return "it has no lease"
    return None if row.shape != "calls" else "nothing is held, and nothing goes on"


@pytest.mark.usefixtures("short_ticks")
async def test_frozen(request, there, row, visit):
    client, other, raw, suspend = map(request.getfixturevalue, ("client", "other", "raw", "suspend"))
    one = visit(row.make_with(client, ttl=SHORT_TTL_S))
    assert await one.enters()
    begun = one.begun
    waits = visit(row.make_with(other, ttl=SHORT_TTL_S))
    if is_waited_for := row.held and row.room == 1:
        await until(lambda: OPERATED[row.of](there).status().waiting)
    elif row.loop != "serves":
        assert await waits.enters()
    raw.flushall()
    suspend(2 * LONG_S)
    if row.loop:
        assert await one.until(lambda: one.begun > begun or waits.begun), f"it has ended: {one.error!r}"
        assert not one.ended
        return
    if is_waited_for:
        assert await waits.enters(), repr(waits.error)
        assert row.busy(there) == 1 + bool(row.also(there))
    for caller in (one, waits):
        error = await caller.leaves()
        assert error is None or isinstance(error, LeaseLost), repr(error)
        row.forget(there)
    await until(lambda: not row.busy(there))
    again = visit()
    assert await again.enters(), repr(again.error)
    assert await again.leaves() is None
