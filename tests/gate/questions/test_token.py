"""A lease that is handed on by its token is the adopter's: it extends, releases, hears requests and losses. A token counts once."""

from __future__ import annotations

import asyncio

import pytest

from handfast import LeaseLost, NotHeld
from tests._support.family import until_listening
from tests._support.helpers import settled
from tests._support.kinds import LONG_S, until


def applies(row, api):
    return None if row.shape == "block" and row.has("_adopts") else "its leases can't be detached"


@pytest.fixture
async def handed_on(row, client, other):
    """A lease of the other client that the first one has acquired, and its token."""
    lease = await settled(row.make(client).acquire())
    token = await settled(lease.detach())
    assert not lease.lost
    with pytest.raises(NotHeld):
        lease.check()
    adopted = await settled(row.make(other).adopt(token))
    assert adopted.fence == lease.fence
    return adopted, token


async def test_token(client, other, there, row, handed_on):
    lease, token = handed_on
    assert row.busy(there) == 1
    with pytest.raises(ValueError, match="held by this client"):
        await settled(row.make(other).adopt(token))
    await settled(lease.extend(LONG_S))
    assert lease.remaining() > LONG_S / 2
    assert await settled(lease.release())
    assert not row.busy(there)
    for by in (client, other):
        with pytest.raises(LeaseLost):
            await settled(row.make(by).adopt(token))


@pytest.mark.usefixtures("short_ticks", "asks_often")
@pytest.mark.parametrize("way", ["asked", "taken", "lost"])
async def test_token_after_it_was_handed_on(request, there, row, handed_on, way):
    raw, (lease, _) = request.getfixturevalue("raw"), handed_on
    wanted, lost = [], []
    lease.add_wanted_callback(lambda: wanted.append(way))
    lease.add_lost_callback(lambda: lost.append(way))
    await until_listening(raw)
    if way == "lost":
        raw.flushall()
        request.getfixturevalue("suspend")(2 * LONG_S)
        await until(lambda: lost)
    else:
        grace = LONG_S if way == "asked" else 0
        hold = asyncio.to_thread(there.hold, "a", LONG_S, kind=row.of, reason="a migration", now=True, grace=grace)
        holding = asyncio.create_task(hold)
        await until(lambda: wanted if way == "asked" else lost)
        if way == "asked":
            assert lease.wanted
            assert await settled(lease.release())
        await holding
    assert lease.lost == (way != "asked")
    assert len(lost) == (way != "asked")
    with pytest.raises(NotHeld if way == "asked" else LeaseLost):
        lease.check()
