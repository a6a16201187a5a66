"""A function of the other API is refused with a TypeError, before it is called and before anything is sent."""

from __future__ import annotations

import asyncio

import pytest

from tests._support.apis import SYNC
from tests._support.family import NOWHERE
from tests._support.helpers import settled
from tests._support.kinds import until


def applies(row, api):
    if row.plain and api is not SYNC:
        return "a plain function will do, as its documentation says"
    return None if (row.run or row.decorates) and row.loop != "watches" else "it runs no function"


async def error_of(api, call):
    """Return the error of a call of either API, in a task or a thread of its own."""
    task = asyncio.create_task(asyncio.to_thread(call) if api is SYNC else call())
    try:
        await until(task.done)
    finally:
        task.cancel()
    return task.exception()


@pytest.fixture
async def nowhere(api):
    """A client whose requests fail: what sends one raises no TypeError."""
    client = api.handfast(NOWHERE, retry_for=0)
    yield client
    await settled(client.close())


async def test_function_of_the_other_api(api, nowhere, row):
    called = []

    async def coroutine_function(*args):
        called.append(args)

    def plain_function(*args):
        called.append(args)

    def call():
        return (row.run or decorated)(row.make(nowhere), coroutine_function if api is SYNC else plain_function)

    def decorated(made, function):
        return made(function)()

    async def call_async():
        await call()

    error = await error_of(api, call if api is SYNC else call_async)
    assert isinstance(error, TypeError), repr(error)
    assert "coroutine function" in str(error)
    assert not called
