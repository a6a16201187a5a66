"""The server is away for longer than ``retry_for``, in the middle or at the beginning: loops go on, and callers begin again.

It comes back with its data or without. Only `partition.run` raises the error of its first attempt, as its documentation
says: a wrong address shows at once.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager

import pytest
import redis

from handfast import LeaseLost
from tests._support.apis import SYNC
from tests._support.helpers import settled
from tests._support.kinds import until

RETRY_FOR_S = 0.05
"""How long the client retries, in seconds."""

AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
"""The errors of a server that is away. Beside other load an attempt may time out before it is refused."""


def applies(row, api):
    return None if row.shape != "calls" else "nothing is held, and nothing goes on"


@pytest.fixture
async def client(api, proxy, raw):
    """A client that soon gives up a server which is away."""
    made = api.handfast(proxy.url, retry_for=RETRY_FOR_S)
    yield made
    await settled(made.close())


@contextmanager
def impatience():
    """Let clients wait no longer than ``retry_for``, while they can't connect. At other times a late reply is no outage."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            for constant in ("MIN_REPLY_S", "UNDO_WAIT"):
                if name.startswith("handfast.") and constant in vars(module):
                    patch.setattr(module, constant, RETRY_FOR_S)
        yield


async def gives_up(api, client):
    """Have a call begin, and wait until the client gives up."""
    with pytest.raises(AWAY):
        await (asyncio.to_thread(client.lock("other").acquire) if api is SYNC else client.lock("other").acquire())


@pytest.mark.usefixtures("short_ticks")
@pytest.mark.parametrize("data", ["kept", "lost"])
async def test_outage(request, row, data, tmp_path, visit):
    api, server, client, proxy = map(request.getfixturevalue, ("api", "server", "client", "proxy"))
    there = request.getfixturevalue("there")
    one = visit()
    assert await one.enters()
    begun = one.begun
    with impatience():
        proxy.retarget(f"unix://{tmp_path}/nowhere")
        if data == "lost":
            request.getfixturevalue("raw").flushall()
            request.getfixturevalue("suspend")(3600)  # longer than each ttl
        for _ in range(2):  # then it has lasted longer than retry_for, for all that began with it
            await gives_up(api, client)
    proxy.retarget(server.url)
    if row.loop:
        assert not one.ended, f"the loop has ended with {one.error!r}"
    if row.loop == "watches":
        with there.group("a").join() if row.of == "group" else there.election("a"):
            assert await one.enters(begun + 1), f"it hears no more: {one.error!r}"
    elif row.loop:
        assert await one.until(lambda: one.inside and row.busy(there)), f"it does not go on: {one.error!r}"
    else:
        error = await one.leaves()
        assert error is None or (data == "lost" and isinstance(error, LeaseLost)), repr(error)
        row.forget(there)
        again = visit()
        assert await again.enters(), repr(again.error)
        assert await again.leaves() is None
        await until(lambda: not row.busy(there))


@pytest.mark.usefixtures("there")
async def test_outage_at_the_beginning(request, row, tmp_path, visit):
    api, server, client, proxy = map(request.getfixturevalue, ("api", "server", "client", "proxy"))
    with impatience():
        proxy.retarget(f"unix://{tmp_path}/nowhere")
        one = visit()
        for _ in range(2):
            await gives_up(api, client)
        if not row.loop:
            await until(lambda: one.ended)
    proxy.retarget(server.url)
    if one.ended and not row.loop:
        assert isinstance(one.error, AWAY), repr(one.error)
        assert not one.begun
        one = visit()
    assert await one.enters(), f"with a server: {one.error!r}"
    if not row.loop:
        assert await one.leaves() is None
        await until(lambda: not row.busy(request.getfixturevalue("there")))
