"""What users see of clients, leases and lost blocks: reprs, and the lines that warnings point to."""

from __future__ import annotations

import inspect
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast, Handfast
from handfast.testing import script
from tests._support.helpers import eventually, eventually_async


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("redis://user:secret@example.org:6390/2", "redis://example.org:6390/2"),
        ("valkeys://:secret@example.org", "rediss://example.org:6379/0"),
        ("unix:///run/redis.sock?password=secret&db=3", "unix:///run/redis.sock?db=3"),
        ("redis+sentinel://:secret@one.example.org,two.example.org/primary/1", "redis+sentinel://…/primary/1"),
    ],
)
def test_a_client_shows_its_server_without_secrets(api, server, shown):
    client = api.handfast(server, namespace="shop", label="web-1")
    assert repr(client) == f"<{api.handfast.__name__} of {shown}, namespace 'shop', label 'web-1'>"


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


def test_a_status_as_text_says_who_holds_and_how_many_wait(hf, server):
    assert str(hf.lock("a").status()) == "not held; 0 waiting"
    with Handfast(server.url, label="web-1\n") as client, ThreadPoolExecutor(1) as threads:
        permits = [client.semaphore("a", 5).acquire() for _ in range(5)]
        waiter = threads.submit(hf.semaphore("a", 5).acquire)
        status = eventually(lambda: (found := hf.semaphore("a", 5).status()).waiting and found)
        one = r"'web-1\\n' for \d\.\d s"
        assert re.fullmatch(f"held by {one}, {one}, {one}, 2 more; 1 waiting", str(status))
        for permit in permits:
            permit.release()
        waiter.result(10).release()


def test_a_script_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(ValueError, match=r"no script 'acquire' but .*permit_acquire, .*permit_release"):
        script("acquire")
