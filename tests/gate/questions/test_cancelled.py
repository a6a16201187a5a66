"""A caller that is cancelled in it is out at once, with its cancellation, and holds nothing."""

from __future__ import annotations

import asyncio

from tests._support.apis import SYNC
from tests._support.kinds import until


def applies(row, api):
    if api is SYNC:
        return "a thread has no cancellation"
    return None if row.shape != "calls" else "nothing is held"


async def test_cancelled(there, row, visit):
    one = visit()
    assert await one.enters()
    one.cancel()
    await until(lambda: one.ended)
    assert isinstance(one.error, asyncio.CancelledError), repr(one.error)
    await until(lambda: row.is_free(there))
