"""A reply that is lost changes no result: what was sent is sent again, and is done once."""

from __future__ import annotations

from handfast.testing import containing
from tests._support.helpers import settled
from tests._support.kinds import Visit, begin, until


def applies(row, api):
    return None


async def turn(api, row, there, proxy):
    """Use a row once through the proxy, by a client of its own. Return what shows how it went."""
    client, shown = api.handfast(proxy.url), []
    if row.calls is not None:
        shown.append(repr(await begin(api, lambda: row.calls.use(client, "a"))))
    if row.shape != "calls":
        one = Visit(row, api, row.make(client))
        assert await one.enters(), repr(one.error)
        await until(lambda: row.busy(there) or not row.held)
        shown.append(row.busy(there) if row.held else None)
        if row.endless:
            one.cancel()
        else:
            assert await one.leaves() is None
        shown.append(one.begun)
    await settled(client.close(release=True))
    await until(lambda: row.shape == "calls" or row.is_free(there))
    return shown


async def test_lost_reply(api, there, raw, row, proxy):
    await turn(api, row, there, proxy)  # what is loaded once
    proxy.commands.clear()
    raw.flushall()
    expected, happened = await turn(api, row, there, proxy), 0
    sent = {one.args[0] for one in proxy.commands if one.name in {"EVALSHA", "ZADD"}}
    for script in sent:
        raw.flushall()
        loss = proxy.lose_reply(containing(script))
        assert await turn(api, row, there, proxy) == expected, script
        happened += loss.happened
    assert happened
