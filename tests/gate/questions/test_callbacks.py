"""A callback or a listener that raises costs itself: the others are called, the block ends, and the connection stays."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AsyncHandfast, events
from tests._support.family import until_listening
from tests._support.kinds import LONG_S, until


def applies(row, api):
    return None if row.shape == "block" and row.held else "it has no lease that an operator ends"


async def coroutine():
    """Nothing would await it."""


def bad(*_event):
    raise ValueError("of a callback")


@pytest.mark.parametrize("how", ["taken", "asked"])
@pytest.mark.usefixtures("asks_often", "short_ticks")
async def test_callbacks(request, there, row, visit, how):
    client, raw = map(request.getfixturevalue, ("client", "raw"))
    told, called = [], []
    client.on(bad)
    client.on(told.append)
    one = visit()
    assert await one.enters()
    for add in (one.leases[0].add_wanted_callback, one.leases[0].add_lost_callback):
        with pytest.raises(TypeError, match="coroutine function"):
            add(coroutine)
        add(bad)
        add(lambda: called.append(how))
    await until_listening(raw)
    connected = sum(isinstance(event, events.Connected) for event in told)
    grace = 0 if how == "taken" else LONG_S
    holding = asyncio.to_thread(there.hold, "a", LONG_S, kind=row.of, reason="a migration", now=True, grace=grace)
    holding = asyncio.create_task(holding)
    await until(lambda: called)
    await one.leaves()
    await holding
    await until(lambda: any(isinstance(event, events.Lost | events.Released) for event in told))
    if isinstance(client, AsyncHandfast):  # the sync API has a connection for each thread
        assert sum(isinstance(event, events.Connected) for event in told) == connected
    assert there.unhold("a", kind=row.of)
    row.forget(there)
    again = visit()
    assert await again.enters()
