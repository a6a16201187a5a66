"""A loop ends when its own client is closed: its caller gets ClientClosed."""

from __future__ import annotations

from handfast import ClientClosed
from tests._support.helpers import settled
from tests._support.kinds import until


def applies(row, api):
    return None if row.loop else "it is no loop"


async def test_ended_by_its_client(client, there, row, visit):
    one = visit()
    assert await one.enters()
    await settled(client.close(release=True))
    await until(lambda: one.ended)
    assert isinstance(one.error, ClientClosed), repr(one.error)
    await until(lambda: not row.busy(there))
