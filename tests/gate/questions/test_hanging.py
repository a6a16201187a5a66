"""Code of the user that hangs, also when it is cancelled, blocks only itself: another caller gets the name or the item."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from handfast import LeaseLost
from tests._support.apis import ASYNCIO
from tests._support.helpers import settled
from tests._support.kinds import LONG_S, POLL_S, SHORT_TTL_S, until


def applies(row, api):
    if row.loop == "watches":
        return "the code is in the user's own loop"
    return None if row.shape != "calls" else "no code of the user runs in it"


@pytest.fixture
def hang(api):
    """What hangs until its ``may_end`` is set. A cancellation before is raised then."""
    may_end = threading.Event()

    def hang():
        while not may_end.is_set():
            time.sleep(POLL_S)

    async def hang_async():
        cancelled = None
        while not may_end.is_set():
            try:
                await asyncio.sleep(POLL_S)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    function = hang_async if api is ASYNCIO else hang
    function.may_end = may_end
    yield function
    may_end.set()


@pytest.mark.usefixtures("short_ticks")
async def test_hanging(request, there, row, visit, hang):
    client, other, raw, suspend = map(request.getfixturevalue, ("client", "other", "raw", "suspend"))
    one = visit(row.make_with(client, ttl=SHORT_TTL_S), act=hang)
    assert await one.enters()
    if row.held:
        await asyncio.to_thread(there.hold, "a", LONG_S, kind=row.of, reason="it hangs", now=True, grace=0)
        assert there.unhold("a", kind=row.of)
    raw.flushall()
    suspend(2 * LONG_S)  # longer than each ttl
    if one.leases[-1] is not None:
        await until(lambda: one.leases[-1].lost)
    suspend(2 * LONG_S)
    next_one = visit(row.make_with(other, ttl=SHORT_TTL_S))
    await until(lambda: next_one.begun or one.begun > 1)
    assert not next_one.ended, repr(next_one.error)
    assert next_one.begun or row.loop == "serves"
    assert one.inside
    hang.may_end.set()
    if row.loop:
        next_one.cancel()
        await settled(other.close(release=True))
        assert await one.enters(2), f"it does not go on: {one.error!r}"
    else:
        error = await one.leaves()
        assert error is None or isinstance(error, LeaseLost), repr(error)
        assert await next_one.leaves() is None
        await until(lambda: not row.busy(there))
