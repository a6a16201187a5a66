"""Once under faults: lost replies, cut connections, restarts, forks, frozen processes, cancellations and interrupts at every point.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast import Handfast, LeaseLost
from handfast.testing import FaultProxy, ServerController
from handfast_lab.children import ProcessGroup
from tests._support.apis import until_queued
from tests._support.once import PATIENCE, run, unexpected
from tests.gate.faults import test_once_faults as gate
from tests.gate.faults.test_once_faults import RECORD, block

proxy = gate.proxy
far = gate.far

api = gate.api


# --- what happens to servers and processes


async def test_a_run_goes_on_and_a_result_stays_when_the_server_comes_back_with_its_data(api):
    with ServerController(persistent=True) as server:
        async with api.client(server.url) as client, api.client(server.url) as other:
            await block(client.once("b"), "before")
            async with client.once("a") as current:
                waiter = asyncio.create_task(run(other.once("a"), unexpected(api), timeout=PATIENCE))
                await until_queued(client.once("a"))
                server.kill()
                server.restart(keep_data=True)
                await current.finish("after")
            assert await waiter == "after"
            assert (await other.once("b").acquire()).result == "before"


def runner(parent, url, ttl):
    """Run it, and finish when told to."""
    with Handfast(url) as hf:
        current = hf.once("a", ttl=ttl).acquire()

        def finish():
            try:
                current.finish("late")
            except LeaseLost:
                return "lost"
            return "recorded"

        parent.report("runs", current.fence)
        parent.serve({"finish": finish}, answer=True)


async def test_a_frozen_process_cannot_record_its_result_when_it_goes_on(server, here, raw, api):
    with ProcessGroup() as group:
        frozen = group.start(runner, server.url, 0.3)
        fence = frozen.expect("runs", PATIENCE).value
        frozen.freeze()
        async with here.once("a", timeout=PATIENCE) as current:
            assert current.fence > fence
            frozen.thaw()
            assert await asyncio.to_thread(frozen.ask, "finish") == "lost"
            await current.finish("in time")
    assert await here.once("a").run(unexpected(api)) == "in time"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is just what is tested
def test_a_forked_child_owns_no_run_and_uses_it_with_connections_of_its_own(hf, raw):
    once = hf.once("a")
    current = once.acquire()

    def is_refused():
        try:
            current.finish("by the child")
        except LeaseLost:
            return True
        return False

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            current.__exit__(None, None, None)
            works = once.try_acquire() is None and once.keyed("child").run(lambda: 1, timeout=5) == 1
            code = 0 if is_refused() and works else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert once.status().held_by.fence == current.fence
    current.finish("by the parent")
    assert once.run(int) == "by the parent"
    assert once.keyed("child").run(int) == 1


async def test_a_waiter_whose_message_is_lost_finds_the_result_by_asking(far, here, proxy, api):
    async with here.once("a") as current:
        waiter = asyncio.create_task(run(far.once("a"), unexpected(api), timeout=PATIENCE))
        await until_queued(here.once("a"))
        proxy.lose_pushes()
        await current.finish(1)
    assert await waiter == 1


async def test_a_result_that_could_not_be_sent_may_be_sent_again(api, server, here, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(f"{proxy.url}?socket_timeout=0.3", retry_for=0) as client:
            current = await client.once("a").acquire()
            fault = proxy.lose_request(RECORD, times=2)
            with pytest.raises(RedisConnectionError):
                await current.finish(1)
            assert fault.happened
            fault.clear()
            await current.finish(1)
            assert current.done
    assert (await here.once("a").acquire()).result == 1
