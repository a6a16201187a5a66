"""What is reported of an outage to the functions of `Handfast.on`."""

from __future__ import annotations

import pytest
import redis

from handfast.events import Acquired, Connected, OutageBegan, OutageEnded, Released, RenewalFailed
from handfast.testing import FaultProxy
from tests._support.family import until_listening
from tests._support.helpers import eventually_async


@pytest.mark.usefixtures("short_ticks")
async def test_an_outage_begins_and_ends(api, server, raw, tmp_path):
    told = []

    async def until_told(kind):
        await eventually_async(lambda: any(isinstance(event, kind) for event in told))

    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            client.on(told.append)
            lease = await client.lock("a").acquire()
            await until_listening(raw)
            proxy.retarget(f"unix://{tmp_path}/nowhere")
            await until_told(OutageBegan)
            proxy.retarget(server.url)
            await until_told(OutageEnded)
            await lease.release()
            address = client._driver.address
    began, ended = (event for event in told if isinstance(event, OutageBegan | OutageEnded))
    assert (began.leases, ended.leases, bool(began.reason)) == (1, 1, True)
    assert 0 < began.ends_in <= 30
    assert ended.lasted >= 0
    assert any(isinstance(event, RenewalFailed) and event.reason for event in told)
    assert {event.server for event in told if isinstance(event, Connected)} == {address}
    assert [type(event) for event in told if isinstance(event, Acquired | Released)] == [Acquired, Released]


async def test_a_release_that_does_not_reach_the_server_is_reported(api, server, raw, tmp_path):
    told = []
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as client:
            client.on(told.append, Acquired, Released)
            lease = await client.lock("a").acquire()
            proxy.retarget(f"unix://{tmp_path}/nowhere")
            with pytest.raises(redis.exceptions.ConnectionError):
                await lease.release()
            assert [(type(event), event.fence) for event in told] == [(Acquired, lease.fence), (Released, lease.fence)]
            proxy.retarget(server.url)
