"""Places in the queue survive a connection that is remade, and the loss of all data: who came first is served first."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AsyncHandfast
from tests._support.apis import ASYNCIO, CROWDED, SYNC, until_queued
from tests._support.engine import Engine
from tests._support.helpers import eventually_async

EARLIER, LATER = 200, 20


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda one: one.name)
def api(request):
    return request.param


async def test_a_connection_that_is_cut_at_a_release_costs_none_of_its_waiters_its_place(server, raw):
    """One waiter that came later gets what was free at that moment; all others are served in the order of arrival."""
    engine = Engine(raw)
    engine.acquire("first")
    served, expected = [], [("earlier", number) for number in range(EARLIER)]
    expected += [("later", number) for number in range(LATER)]

    async def take(client, who, number):
        async with client.lock("a"):
            served.append((who, number))
            if len(served) == 1:  # until those whose connection was cut are back
                await eventually_async(lambda: len(engine.queue()) == EARLIER + LATER - 1)

    async def wait(client, who, count):
        for number in range(count):
            tasks.create_task(take(client, who, number))
        return await until_queued(client.lock("a"), len(engine.queue()) + count)

    async with AsyncHandfast(server.url) as one, AsyncHandfast(server.url) as other, asyncio.TaskGroup() as tasks:
        others = {client["id"] for client in raw.client_list()}
        await wait(one, "earlier", EARLIER)
        (connection,) = {client["id"] for client in raw.client_list()} - others
        await wait(other, "later", LATER)
        raw.client_kill_filter(_id=connection)
        while engine.release("first")[1]:
            pass  # a hundred of them are skipped at a time
    overtaken = expected.pop(EARLIER)
    assert served == [overtaken, *expected]


@pytest.mark.parametrize("lost", ["connections", "data"])
async def test_waiters_come_back_to_their_places(api, server, raw, lost):
    engine = Engine(raw)
    engine.acquire("first")
    served = []
    async with api.client(server.url) as one, api.client(server.url) as other:

        async def take(client, number):
            async with client.lock("a"):
                served.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(take((one, other)[number % 2], number))
                await eventually_async(lambda count=number + 1: len(engine.queue()) == count)
            tokens = engine.queue()
            if lost == "data":
                raw.flushall()
                engine.acquire("first")
            else:
                engine.lose_places(*tokens)
            raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually_async(lambda: len(engine.queue()) == 6)
            assert engine.queue() == tokens
            assert engine.release("first") == ["released", 0]
    assert served == list(range(6))
