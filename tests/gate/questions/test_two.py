"""Two clients of one process are as two processes: each has a place, and a close or a loss of one client leaves the other alone."""

from __future__ import annotations

from handfast import ClientClosed
from tests._support.helpers import settled
from tests._support.kinds import OPERATED, until


def applies(row, api):
    return None if row.shape != "calls" else "nothing is held, and nothing goes on"


async def test_two(there, row, client, other, visit):
    one = visit()
    assert await one.enters()
    two = visit(by=other)
    if row.held and row.room == 1:
        waited_for = OPERATED[row.of](there)
        await until(lambda: waited_for.status().waiting)
        assert not two.begun
    elif row.loop != "serves" and not row.takes_over:
        assert await two.enters(), repr(two.error)
    await settled(client.close(release=True))
    error = await one.leaves()
    assert error is None or isinstance(error, ClientClosed) or not row.loop, repr(error)
    assert await two.enters(), repr(two.error)
    if row.loop != "watches":
        assert two.inside
    if not row.endless:
        assert await two.leaves() is None
        row.forget(there)
        await until(lambda: not row.busy(there))
