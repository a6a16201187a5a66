"""A lease that ends by another hand ends once for `lost`, its event, its callbacks, the events of the client and the gauge."""

from __future__ import annotations

import asyncio

import pytest

from handfast._kinds import KINDS
from handfast.events import Acquired, Lost, Released
from tests._support.helpers import settled
from tests._support.kinds import LONG_S, until


def applies(row, api):
    if row.shape == "calls" or KINDS[row.of].limit is None:
        return "it has no lease"
    return "the leases are of others" if row.loop == "watches" else None


@pytest.fixture
def gauge(client):
    """A function that returns how many leases the client has, as a program that measures it sees them."""
    prometheus_client = pytest.importorskip("prometheus_client")
    from handfast.metrics import prometheus

    registry = prometheus_client.CollectorRegistry()
    prometheus.install(client, registry=registry)
    prometheus.install(client, registry=registry)  # the second time it changes nothing

    def leases():
        families = {family.name: family for family in registry.collect()}
        return sum(sample.value for sample in families["handfast_leases"].samples)

    return leases


@pytest.mark.parametrize("way", ["taken", "closed", "closed and over"])
@pytest.mark.usefixtures("asks_often", "short_ticks")
async def test_told(request, there, row, visit, way):
    client, raw, suspend, gauge = map(request.getfixturevalue, ("client", "raw", "suspend", "gauge"))
    told, called = [], []
    client.on(told.append, Acquired, Lost, Released)
    one = visit()
    assert await one.enters()
    if lease := one.leases[0]:
        lease.add_lost_callback(lambda: called.append(1))
    await until(gauge)
    if way == "taken" and row.held:
        await asyncio.to_thread(there.hold, "a", LONG_S, kind=row.of, reason="a migration", now=True, grace=0)
    elif way == "taken":
        raw.flushall()
        suspend(2 * LONG_S)
    else:
        await settled(client.close(release=way == "closed"))
        if way == "closed and over":
            suspend(2 * LONG_S)
    if lease:
        await until(lambda: called)
        assert lease.lost
        assert lease.lost_event.is_set()
    one.may_leave = True
    if not row.loop:
        await until(lambda: one.ended)
        await until(lambda: not gauge())
    if way == "taken" and row.held:
        assert there.unhold("a", kind=row.of)
    one.cancel()
    await settled(client.close(release=True))
    await until(lambda: one.ended)
    await until(lambda: not gauge())
    begun = sorted(event.fence for event in told if isinstance(event, Acquired))
    assert begun == sorted(event.fence for event in told if not isinstance(event, Acquired))
    assert len(called) == bool(lease)
