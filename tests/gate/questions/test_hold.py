"""An operator's hold: who is in it goes on, or with ``now`` must leave; no one gets in; afterwards loops go on and others get in."""

from __future__ import annotations

import asyncio

import pytest

from handfast import LeaseLost
from tests._support.family import until_listening
from tests._support.kinds import LONG_S, OPERATED, until


def applies(row, api):
    if not row.held:
        return "no operator holds it"
    return None if row.shape != "calls" else "nothing is held"


@pytest.mark.parametrize("way", ["taken", "asked"])
@pytest.mark.usefixtures("asks_often", "short_ticks")
async def test_hold(there, raw, row, visit, way):
    one = visit()
    assert await one.enters()
    await until_listening(raw)
    grace = LONG_S if way == "asked" else 0
    hold = asyncio.to_thread(there.hold, "a", 2 * LONG_S, kind=row.of, reason="a migration", now=True, grace=grace)
    holding = asyncio.create_task(hold)
    one.may_leave = one.is_blind()
    try:
        await until(lambda: not one.inside)
    finally:
        one.may_leave = True  # else the hold would wait for it
        await holding
        one.may_leave = False
    await until(lambda: not row.busy(there))
    assert one.error is None or isinstance(one.error, LeaseLost), repr(one.error)
    if row.loop:
        assert not one.ended, f"the loop has ended with {one.error!r}"
    else:
        await until(lambda: one.ended)
        row.forget(there)
        one = visit()
    before = one.begun
    waiting = OPERATED[row.of](there)
    assert await one.until(lambda: waiting.status().waiting), f"it does not wait: {one.error!r}"
    assert one.begun == before, "it got in"
    assert there.unhold("a", kind=row.of)
    assert await one.enters(before + 1), f"after the hold: {one.error!r}"


async def test_hold_of_those_who_come(there, row, visit):
    one = visit()
    assert await one.enters()
    await asyncio.to_thread(there.hold, "a", LONG_S, kind=row.of, reason="a migration")
    waiting, two = OPERATED[row.of](there), visit()
    assert await two.until(lambda: waiting.status().waiting), f"it does not wait: {two.error!r}"
    assert one.inside, f"it does not go on: {one.error!r}"
    if row.of != "once":  # whose result would be that of the other
        assert await one.leaves() is None
        assert waiting.status().waiting
    assert not two.begun, "it got in"
    assert there.unhold("a", kind=row.of)
    assert await one.leaves() is None
    assert row.of == "once" or await two.enters(), f"after the hold: {two.error!r}"
