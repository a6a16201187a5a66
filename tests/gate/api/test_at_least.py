"""Locks that stay taken for a while since their grant, through both APIs."""

from __future__ import annotations

import warnings

import pytest

from handfast.testing import FaultProxy, script
from tests._support.engine import Engine
from tests._support.helpers import more
from tests._support.listings import commands

LONG = 600.0


async def test_a_lock_stays_taken_when_it_is_released_early(here, there, raw):
    lock = here.lock("a", at_least=LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with lock as lease:
            fence = lease.fence
    assert not lease.lost
    assert await lease.release() is False
    assert await there.lock("a").try_acquire() is None
    assert await lock.try_acquire() is None
    (holder,) = (await there.lock("a").status()).holders
    assert (holder.released, holder.fence, holder.token) == (True, fence, lease.token[:7])
    assert LONG - 60 < holder.remaining + holder.held_for <= LONG
    assert await there.lock("a").force_release(reason="test") == 1
    async with there.lock("a"):
        (holder,) = (await there.lock("a").status()).holders
        assert not holder.released


async def test_the_release_takes_one_call(here, raw):
    lock = here.lock("a", at_least=LONG)
    lease = await lock.acquire()
    raw.config_resetstat()
    assert await lease.release() is True
    assert commands(raw)["evalsha"] == 1


@pytest.mark.parametrize("what", ["lose_reply", *more("lose_request")])
async def test_a_release_that_is_sent_again_keeps_it_as_long(api, server, raw, what):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as far:
            lease = await far.lock("a", at_least=LONG).acquire()
            fault = getattr(proxy, what)(script("permit_release"))
            assert await lease.release() is True
            assert fault.happened == 1
    ((token, end),) = Engine(raw).stored().holders.items()
    assert (token, end - lease.fence) == ("." + lease.token.partition(".")[0], LONG * 1_000_000)
