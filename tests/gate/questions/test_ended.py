"""A loop ends when its own client is closed, also if the client is open again at once: its caller gets ClientClosed."""

from __future__ import annotations

import pytest

from handfast import AsyncHandfast, ClientClosed
from tests._support.helpers import settled
from tests._support.kinds import until


def applies(row, api):
    return None if row.loop else "it is no loop"


@pytest.mark.parametrize("then", ["closed", "open again"])
async def test_ended_by_its_client(client, there, row, visit, then):
    one = visit()
    assert await one.enters()
    await settled(client.close(release=True))
    if then == "open again":
        await settled(client.__aenter__() if isinstance(client, AsyncHandfast) else client.__enter__())
    await until(lambda: one.ended)
    assert isinstance(one.error, ClientClosed), repr(one.error)
    await until(lambda: not row.busy(there))
