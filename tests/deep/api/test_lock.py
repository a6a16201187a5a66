"""The lock through both APIs.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast import (
    LeaseLost,
)
from tests._support.engine import Engine

# --- holding


async def test_extend_sets_a_new_ttl(here, raw):
    lease = await here.lock("a", ttl=1.0, renew=False).acquire()
    await lease.extend(100)
    (holder,) = (await here.lock("a").status()).holders
    assert 90 < lease.remaining() <= holder.remaining <= 100
    await lease.extend(1)
    assert lease.remaining() > 90, "extend never shortens the ttl"
    with pytest.raises(ValueError, match="ttl must be"):
        await lease.extend(0)
    raw.delete(Engine(raw).key("state"))
    with pytest.raises(LeaseLost):
        await lease.extend(100)
    assert lease.lost
    assert await lease.release() is False
