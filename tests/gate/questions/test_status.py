"""The status says in each state who holds and who waits. `locked()` says whether a caller that does not wait is refused."""

from __future__ import annotations

from tests._support.helpers import settled
from tests._support.kinds import LONG_S, OPERATED, until

HEAD_START_S = 600
"""A head start is no time that a caller has waited."""


def applies(row, api):
    return None if row.shape == "block" and row.held and row.has("locked") else "it has no `locked()`"


async def looked(row, client, there):
    """Return the status, after comparing what it says with what a caller is given that does not wait."""
    made, status = row.make(client), OPERATED[row.of](there).status()
    lease = None if status.waiting else await settled(made.try_acquire())
    if lease is not None:
        await settled(lease.release())
    assert await settled(made.locked()) == (lease is None), str(status)
    assert (len(status.holders), len(status.waiters)) == (status.holding, status.waiting)
    assert status.held == sum(one.weight for one in status.holders)
    assert status.free == (0 if status.hold else status.limit - status.held)
    text = str(status)
    assert ("; on hold until" in text) == (status.hold is not None)
    assert f"{status.waiting} waiting" in text
    assert all(one.label in text for one in status.holders)
    if 1 < status.limit < 1000:
        assert text.startswith(f"{status.held} of {status.limit} permits held")
    else:
        assert text.startswith("held by " if status.holders else "not held")
    return status.holding, status.waiting, status.hold is not None


async def test_status(request, there, row, visit):
    client, other = map(request.getfixturevalue, ("client", "other"))
    assert await looked(row, other, there) == (0, 0, False)
    places = int(min(row.room, 2))
    visits = [visit() for _ in range(places)]
    for one in visits:
        assert await one.enters()
    assert await looked(row, other, there) == (places, 0, False)
    there.hold("a", LONG_S, kind=row.of, reason="a migration")
    assert await looked(row, other, there) == (places, 0, True)
    waiting = visit(row.make_with(client, head_start=HEAD_START_S))
    await until(lambda: OPERATED[row.of](there).status().waiting)
    assert await looked(row, other, there) == (places, 1, True)
    (waiter,) = OPERATED[row.of](there).status().waiters
    assert waiter.waited_for < HEAD_START_S
    for one in visits:
        assert await one.leaves() is None
    assert await looked(row, other, there) == (0, 1, True)
    assert there.unhold("a", kind=row.of)
    assert await waiting.enters()
    assert await waiting.leaves() is None
    assert await looked(row, other, there) == (0, 0, False)
