"""The probe of a client, in both APIs: what happens where no message comes through, and what is said where nothing can work.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio

import pytest

from handfast import ServerRefused
from handfast.acl import rights_for
from handfast.testing import ServerController
from tests._support.apis import until_queued
from tests.gate.faults import test_probe as gate

proxy = gate.proxy
only_messages = gate.only_messages


@pytest.mark.usefixtures("only_messages")
async def test_waiters_behind_a_proxy_without_messages_are_served_in_their_order_by_asking(api, proxy, there, caplog):
    lost = proxy.lose_pushes()
    async with api.client(proxy.url) as client:
        holder, inside, served = await there.lock("a").acquire(), [], []

        async def wait(number):
            async with client.lock("a").acquire(timeout=30):
                assert not inside
                inside.append(number)
                await asyncio.sleep(0.01)
                served.append(number)
                inside.clear()

        waiters = []
        for number in range(4):
            waiters.append(asyncio.create_task(wait(number)))
            await until_queued(there.lock("a"), number + 1)
        await holder.release()
        await asyncio.wait_for(asyncio.gather(*waiters), 60)
    assert served == [0, 1, 2, 3]
    assert lost.happened
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "no messages of" in record.getMessage()


# --- nothing can work


async def test_a_server_without_the_clock_in_its_scripts_is_refused_in_words(api):
    with ServerController("--rename-command", "TIME", "") as server:
        async with api.client(server.url) as client:
            with pytest.raises(ServerRefused, match="services without TIME in scripts"):
                await client.lock("a").acquire(timeout=5)
        assert server.admin.dbsize() == 0


async def test_without_the_right_to_the_clock_nothing_is_acquired(api, server, raw):
    rules = [rule for rule in rights_for(["lock"]).rules() if rule != "+time"]
    raw.execute_command("ACL", "SETUSER", "timeless", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://timeless:x@")) as client:
            with pytest.raises(ServerRefused, match="too few rights for that"):
                await client.lock("a").acquire(timeout=5)
        assert raw.dbsize() == 0
    finally:
        raw.execute_command("ACL", "DELUSER", "timeless")
