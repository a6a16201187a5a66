"""Once through both APIs, and over the connection that threads share: who runs, who gets the result, and what is left of a run.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio

import pytest

from handfast import (
    AsyncHandfast,
    Handfast,
    LeaseLost,
    NotCompleted,
)
from handfast_lab.children import ProcessGroup
from tests._support.apis import until_queued
from tests._support.family import until_listening
from tests._support.once import PATIENCE, is_free, run
from tests.gate.api import test_once as gate

api = gate.api


# --- one runs, and all get its result


async def test_a_run_is_extended_and_renewed_like_a_lease(here):
    async with here.once("a", ttl=0.5) as current:
        await current.extend(100)
        assert current.remaining() > 10
        assert (await here.once("a").status()).held_by.fence == current.fence


# --- what did not complete


def runner(parent, url, ttl, rerun):
    """Begin a run, and never end it."""
    with Handfast(url) as hf, hf.once("a", ttl=ttl, rerun=rerun) as current:
        parent.report("runs", current.fence)
        parent.receive()


@pytest.mark.parametrize("rerun", [True, False])
async def test_a_run_whose_process_dies_is_repeated_by_a_waiter_or_not_at_all(server, here, raw, api, *, rerun):
    once = here.once("a", rerun=rerun)
    with ProcessGroup() as group:
        process = group.start(runner, server.url, 0.5, rerun)
        fence = process.expect("runs", PATIENCE).value
        waiter = asyncio.create_task(run(once, api.function(lambda: "by the waiter"), timeout=PATIENCE))
        await until_queued(once)
        process.kill()
        if rerun:
            assert await waiter == "by the waiter"
            assert (await once.acquire()).fence > fence
        else:
            with pytest.raises(NotCompleted, match="began and did not end") as failed:
                await waiter
            assert (failed.value.state, failed.value.reason) == ("begun", "")
            assert (await once.status()).state == "begun"
            assert await once.forget()
            assert await once.run(api.function(lambda: 1)) == 1
    assert await is_free(once)


# --- runs that are lost


async def test_a_task_whose_run_is_lost_is_cancelled_and_nothing_is_recorded(server, raw):
    async with AsyncHandfast(server.url) as client:
        with pytest.raises(LeaseLost, match="by the operator"):
            async with client.once("a"):
                await until_listening(raw)
                await client.once("a").force_release(reason="by the operator")
                await asyncio.sleep(PATIENCE)
        assert (await client.once("a").status()).state == "idle"
