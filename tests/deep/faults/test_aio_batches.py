"""Batches under faults: each task gets its own lock or its own error, and nothing is left, wherever one is lost or cut.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import contextlib

import redis

from handfast import AsyncHandfast, ServerRefused
from tests._support.cancelling import settled
from tests._support.engine import Engine
from tests.gate.faults import test_aio_batches as gate
from tests.gate.faults.test_aio_batches import BATCHES, NAMES, acquire_all, nothing_left, release_all

proxy = gate.proxy
hf = gate.hf


async def test_an_error_of_one_name_concerns_no_other(hf, proxy, raw):
    """The script fails in the middle: some have been granted by then, and find their grants."""
    raw.set(Engine(raw, "n3").key("state"), "no hash")
    outcomes = await asyncio.gather(*(hf.lock(name).acquire() for name in NAMES), return_exceptions=True)
    failed = outcomes.pop(3)
    assert isinstance(failed, (ServerRefused, redis.ResponseError))
    assert await release_all(outcomes) == [True] * 5
    raw.delete(Engine(raw, "n3").key("state"))
    await settled(hf)
    assert nothing_left(raw)


async def test_a_client_that_closes_with_a_batch_on_its_way_leaves_no_task_waiting(proxy, raw):
    hf = AsyncHandfast(proxy.url)
    await release_all(await acquire_all(hf))
    proxy.delay(BATCHES["acquire"], seconds=0.2)
    tasks = [asyncio.create_task(hf.lock(name).acquire()) for name in NAMES]
    await asyncio.sleep(0.05)
    await hf.close()
    done, pending = await asyncio.wait(tasks, timeout=10)
    assert not pending
    for task in done:
        with contextlib.suppress(Exception):
            await task
