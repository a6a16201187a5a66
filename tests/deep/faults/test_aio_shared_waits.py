"""Tasks that ask `once` for the same result take turns: few ask the server, all have an answer, and none an old one.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio

from redis.exceptions import ConnectionError as RedisConnectionError

from tests._support.helpers import eventually_async
from tests.gate.faults import test_aio_shared_waits as gate
from tests.gate.faults.test_aio_shared_waits import MANY, Work, start, until_waiting

proxy = gate.proxy
hf = gate.hf


async def test_an_outage_is_an_answer_for_all(hf, proxy):
    once, work = hf.once("a"), Work()
    (runner,) = start(once, work, 1)
    await eventually_async(lambda: work.runs)
    tasks = start(once, work)
    await until_waiting(once)
    proxy.close()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, RedisConnectionError) for error in errors), set(map(type, errors))
    assert len({id(error) for error in errors}) == MANY, "each has a traceback of its own"
    runner.cancel()
    await asyncio.wait([runner])
