"""At maxmemory a call is refused with ServerRefused and leaves nothing; who is in it leaves as ever, and loops go on afterwards."""

from __future__ import annotations

import pytest

from handfast import ServerRefused
from tests._support.helpers import settled
from tests._support.kinds import until


def applies(row, api):
    return "it only reads" if row.loop == "watches" else None


@pytest.fixture
def limit(raw, visit):
    """A function that sets ``maxmemory``, which ends before callers and clients do: they write what they could not."""
    yield lambda size: raw.config_set("maxmemory", size)
    raw.config_set("maxmemory", 0)


async def test_memory(request, row, limit, visit):
    client, there, raw = map(request.getfixturevalue, ("client", "there", "raw"))
    if row.calls is not None:
        await settled(row.calls.use(client, "warm"))
    before = raw.keys("*")
    limit(1)
    if row.calls is not None:
        with pytest.raises(ServerRefused):
            await settled(row.calls.use(client, "a"))
    if row.shape == "calls":
        assert raw.keys("*") == before
        return
    one = visit()
    if not row.loop:
        await until(lambda: one.ended)
        assert isinstance(one.error, ServerRefused), repr(one.error)
    assert not one.begun
    assert raw.keys("*") == before
    limit(0)
    if not row.loop:
        one = visit()
    assert await one.enters(), repr(one.error)
    limit(1)
    if not row.endless:
        assert await one.leaves() is None
        await until(lambda: not row.busy(there))
