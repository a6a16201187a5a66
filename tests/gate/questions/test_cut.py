"""Connections break: who is in it stays in it, who waits gets in when it is free, and loops go on. Nothing is left."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from tests._support.helpers import settled
from tests._support.kinds import OPERATED, begin, kept_out, until
from tests._support.objects import is_waiting


def applies(row, api):
    return None if row.shape != "calls" or row.calls.wait else "no call waits"


@pytest.fixture
async def client(api, proxy, raw):
    """A client whose connections a test cuts."""
    made = api.handfast(proxy.url)
    yield made
    await settled(made.close())


async def test_cut(request, api, row, visit, proxy):
    client, there, raw = map(request.getfixturevalue, ("client", "there", "raw"))
    if row.calls is not None and row.calls.wait:
        await settled(row.calls.use(client, "a"))
        call = begin(api, lambda: row.calls.wait(client, "a"))
        await until(lambda: is_waiting(raw, row.of, "a"))
        proxy.cut()
        await asyncio.to_thread(row.calls.let_go, there, "a")
        await call
    if row.shape == "calls":
        return
    with kept_out(row, there) if row.held else nullcontext():
        one = visit()
        if row.held:
            await until(lambda: OPERATED[row.of](there).status().waiting)
            proxy.cut()
    assert await one.enters(), repr(one.error)
    proxy.cut()
    if row.loop == "watches":
        with there.group("a").join() if row.of == "group" else there.election("a"):
            assert await one.enters(2), f"it hears no more: {one.error!r}"
    elif row.endless:
        assert await one.until(lambda: one.inside and row.busy(there)), repr(one.error)
    else:
        assert await one.leaves() is None
        await until(lambda: not row.busy(there))
    assert one.begun == 1 or row.endless
