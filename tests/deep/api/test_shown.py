"""What users see of clients, leases and lost blocks: reprs, and the lines that warnings point to.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import inspect
import os

import pytest

from handfast import AsyncHandfast
from tests._support.helpers import eventually, eventually_async


@pytest.mark.parametrize("entered", ["primitive", "lease"])
def test_the_warning_of_a_lost_block_points_to_the_block(hf, entered):
    lock = hf.lock("a", ttl=0.05, renew=False, on_lost="warn")
    block = lock if entered == "primitive" else lock.acquire()
    with pytest.warns(RuntimeWarning, match="'a'") as caught:
        first = inspect.currentframe().f_lineno + 1
        with block as lease:
            eventually(lambda: lease.lost)
        last = inspect.currentframe().f_lineno
    assert (caught[0].filename, first <= caught[0].lineno <= last) == (__file__, True)


@pytest.mark.parametrize("entered", ["primitive", "acquire()", "lease"])
async def test_the_warning_of_a_lost_asyncio_block_points_to_the_block(server, raw, entered):
    async with AsyncHandfast(server.url) as hf:
        lock = hf.lock("a", ttl=0.05, renew=False, on_lost="warn")
        block = lock if entered == "primitive" else lock.acquire()
        if entered == "lease":
            block = await block
        with pytest.warns(RuntimeWarning, match="'a'") as caught:
            first = inspect.currentframe().f_lineno + 1
            async with block as lease:
                await eventually_async(lambda: lease.lost)
            last = inspect.currentframe().f_lineno
    assert (caught[0].filename, first <= caught[0].lineno <= last) == (__file__, True)


async def test_a_lost_lease_is_shown_as_lost_after_its_release(here):
    lease = await here.lock("a", ttl=0.05, renew=False).acquire()
    await eventually_async(lambda: lease.lost)
    await lease.release()
    assert repr(lease).endswith(", lost>")


def test_a_lease_of_the_parent_is_shown_as_lost_in_a_forked_child(hf):
    lease = hf.lock("a").acquire()
    child = os.fork()
    if child == 0:
        os._exit(0 if repr(lease).endswith(", lost>") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert repr(lease).endswith(" s left>")
    lease.release()
    assert repr(lease).endswith(", released>")
