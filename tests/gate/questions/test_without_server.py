"""Without a server, at ``null:``, each caller is in at once, also beside another one; calls wait for nothing, or say what they need."""

from __future__ import annotations

from functools import partial

import pytest

from handfast import ServerUnsupported
from tests._support.helpers import settled
from tests._support.kinds import begin


def applies(row, api):
    return None


@pytest.fixture
async def client(api):
    """A client without a server."""
    made = api.handfast("null:")
    yield made
    await settled(made.close())


async def test_without_server(api, client, row, visit):
    for call in (row.calls.use, row.calls.wait) if row.calls is not None and row.calls.wait else ():
        await begin(api, partial(call, client, "a"))
    if row.shape == "calls" and not row.calls.wait:
        with pytest.raises(ServerUnsupported, match="needs a server"):
            await begin(api, partial(row.calls.use, client, "a"))
    if row.shape != "calls":
        both = [visit(), visit()]
        for one in both:
            assert await one.enters(), repr(one.error)
        assert row.loop == "watches" or all(one.inside for one in both)
        for one in () if row.endless else both:
            assert await one.leaves() is None
