"""A closed client ends the calls that wait, and refuses all that come, with ClientClosed. Nothing is left."""

from __future__ import annotations

import pytest

from handfast import ClientClosed
from tests._support.helpers import settled
from tests._support.kinds import OPERATED, begin, kept_out, until
from tests._support.objects import is_waiting

CLOSED = "this client was closed; 'with' opens it again"

METHODS = ("acquire", "try_acquire", "status", "locked", "wait", "members", "leader", "owners", "forget")
"""Methods that need no argument, where there are any of these names."""


def applies(row, api):
    return None


async def test_closed(request, api, row, visit):
    client, there, raw = map(request.getfixturevalue, ("client", "there", "raw"))
    made, calls = row.make(client), row.calls
    if row.held:
        with kept_out(row, there):
            one = visit()
            await until(lambda: OPERATED[row.of](there).status().waiting)
            await settled(client.close())
            await until(lambda: one.ended)
            assert isinstance(one.error, ClientClosed), repr(one.error)
            assert not OPERATED[row.of](there).status().waiting
    elif calls is not None:
        await settled(calls.use(client, "a"))
        if calls.wait is not None:
            call = begin(api, lambda: calls.wait(client, "a"))
            await until(lambda: is_waiting(raw, row.of, "a"))
        await settled(client.close())
        with pytest.raises(ClientClosed, match=CLOSED):
            await (call if calls.wait is not None else settled(calls.use(client, "a")))
    await settled(client.close())
    for method in (getattr(made, name) for name in METHODS if hasattr(made, name)):
        with pytest.raises(ClientClosed, match=CLOSED):
            await settled(method())
    if calls is not None:
        with pytest.raises(ClientClosed, match=CLOSED):
            await settled(calls.use(client, "a"))
    if row.shape != "calls":
        one = visit()
        await until(lambda: one.ended)
        assert isinstance(one.error, ClientClosed), repr(one.error)
        assert not one.begun
        assert not row.busy(there)
