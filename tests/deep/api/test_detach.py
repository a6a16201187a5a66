"""Ownership that travels: a lease is detached in one client and adopted in another one, another process as far as the server can tell.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from handfast import Handfast, LeaseLost
from tests._support.helpers import eventually_async
from tests._support.listings import commands
from tests.gate.api.test_detach import holders


async def test_a_detached_lease_is_not_renewed_where_it_was_acquired(here, there, raw):
    lease = await here.lock("a", ttl=0.2).acquire()
    token = await lease.detach()
    async with there.lock("a").acquire(timeout=10) as next_one:
        assert next_one.fence > lease.fence
    with pytest.raises(LeaseLost, match="it has ended, or the token is of another name") as lost:
        await there.lock("a").adopt(token)
    assert lost.value.fence == lease.fence
    assert not lease.lost, "it counts as released here"


async def test_an_adopted_lease_is_renewed(here, there, raw, short_ticks):
    token = await (await here.lock("a").acquire()).detach(ttl=0.2)
    adopted = await there.lock("a", ttl=0.3).adopt(token)
    raw.config_resetstat()
    await eventually_async(lambda: commands(raw).get("evalsha", 0) >= 5)
    adopted.check()
    assert await adopted.release() is True


async def test_an_adopted_lease_with_a_long_way_to_go_is_renewed_as_often_as_any(here, there, raw, short_ticks):
    """A renewal is how it learns of a force_release, which is announced to the client that acquired it."""
    token = await (await here.lock("a").acquire()).detach(ttl=3600)
    adopted = await there.lock("a", ttl=0.2).adopt(token)
    assert adopted.remaining() > 3000
    assert await here.lock("a").force_release(reason="enough") == 1
    await eventually_async(lambda: adopted.lost)


async def test_the_receiver_chooses_how_long_a_lease_lasts(here, there, raw):
    lease = await here.lock("a", ttl=5).acquire()
    token = await lease.detach(ttl=600)
    [holder] = (await there.lock("a").status()).holders
    assert 590 < holder.remaining <= 600
    async with await there.lock("a", ttl=10, renew=False).adopt(token) as adopted:
        assert 500 < adopted.remaining() <= 600
    assert not holders(raw)


# --- faults


def test_a_lease_travels_to_another_process(server, raw):
    program = textwrap.dedent("""
        import sys
        from handfast import Handfast
        with Handfast(sys.argv[1]) as hf, hf.lock("a").adopt(sys.stdin.read()) as lease:
            print(lease.fence, len(hf.lock("a").status().holders))
    """)
    with Handfast(server.url) as hf:
        lease = hf.lock("a").acquire()
        token = lease.detach()
    done = subprocess.run(
        [sys.executable, "-c", program, server.url], input=token, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{lease.fence} 1\n"
    assert not holders(raw)
