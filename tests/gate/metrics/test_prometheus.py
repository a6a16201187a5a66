"""Metrics for Prometheus, of real clients."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from handfast import AcquireTimeout, Handfast
from handfast.events import LossCause
from handfast.metrics import BUCKETS_S, MAX_LABELS
from handfast.metrics.prometheus import install
from tests._support.apis import take, until_queued
from tests._support.family import until_listening
from tests._support.helpers import eventually_async
from tests._support.once import finds

SOON_S = 0.05

CAUSES = get_args(LossCause)


@pytest.fixture
def registry():
    return CollectorRegistry()


def bare(client):
    return getattr(client, "_thing", client)


async def test_a_lease_is_measured(here, there, registry, raw):
    install(bare(here), registry=registry)
    labels = {"kind": "lock", "name": "order:*"}

    def value(name, **more):
        return registry.get_sample_value(f"handfast_{name}", {**labels, **more})

    async with here.lock("order:1"):
        assert value("leases") == 1
        assert value("acquire_seconds_count", outcome="granted") == 1
        with pytest.raises(AcquireTimeout):
            await here.lock("order:1").acquire(timeout=0)
    assert value("leases") == 0
    assert value("hold_seconds_count", outcome="released") == 1
    assert value("acquire_seconds_count", outcome="busy") == 1

    lease = await there.lock("order:2").acquire()
    waiter = asyncio.create_task(take(here.lock("order:2")))
    await until_queued(there.lock("order:2"))
    await eventually_async(lambda: value("waiters") == 1)
    await lease.release()
    await waiter
    assert value("waiters") == 0
    with pytest.raises(AcquireTimeout):
        async with there.lock("order:2"):
            await here.lock("order:2").acquire(timeout=SOON_S)
    assert value("waiters") == 0
    assert value("acquire_seconds_count", outcome="timeout") == 1
    assert 0 < value("acquire_seconds_sum", outcome="timeout") < 60


@pytest.mark.usefixtures("short_ticks")
async def test_a_loss_is_counted_by_its_cause(here, there, registry, raw):
    install(bare(here), registry=registry)
    lease = await here.lock("a").acquire()
    await until_listening(raw)
    await there.lock("a").force_release(reason="a test")
    labels = {"kind": "lock", "name": "a"}
    await eventually_async(
        lambda: registry.get_sample_value("handfast_leases_lost_total", {**labels, "cause": "revoked"}) == 1
    )
    assert lease.lost
    assert registry.get_sample_value("handfast_hold_seconds_count", {**labels, "outcome": "lost"}) == 1
    assert registry.get_sample_value("handfast_leases", labels) == 0
    assert registry.get_sample_value("handfast_connections_opened_total") >= 1
    assert registry.get_sample_value("handfast_renewals_failed_total") == 0


async def test_limiters_and_once_are_measured(api, here, registry):
    install(bare(here), registry=registry)
    limiter = here.limiter("api", "1/h")
    await limiter.acquire()
    assert not await limiter.try_acquire()
    for _ in range(2):
        await here.once("job").run(api.function(lambda: 1))

    def count(kind, name, outcome):
        labels = {"kind": kind, "name": name, "outcome": outcome}
        return registry.get_sample_value("handfast_acquire_seconds_count", labels)

    assert [count("limiter", "api", outcome) for outcome in ("granted", "busy")] == [1, 1]
    assert [count("once", "job", outcome) for outcome in ("granted", "found")] == [1, 1]


async def test_clients_share_the_metrics_of_a_registry(here, there, registry):
    stop = install(bare(here), registry=registry)
    install(bare(there), registry=registry)
    for client in (here, there):
        async with client.lock("a"):
            pass
    stop()
    async with here.lock("a"):
        pass
    labels = {"kind": "lock", "name": "a", "outcome": "granted"}
    assert registry.get_sample_value("handfast_acquire_seconds_count", labels) == 2


async def test_a_client_that_is_installed_twice_is_counted_once(here, there, registry):
    labels = {"kind": "lock", "name": "a"}

    async def leases():
        async with here.lock("a"):
            return registry.get_sample_value("handfast_leases", labels)

    stop, again = (install(bare(here), registry=registry) for _ in range(2))
    assert await leases() == 1
    again()
    assert await leases() == 0
    install(bare(here), registry=registry)
    stop()  # of the time before: it ends nothing now
    assert await leases() == 1
    install(bare(there), registry=registry)
    async with there.lock("a"):
        assert registry.get_sample_value("handfast_leases", labels) == 1


def test_what_is_installed_keeps_no_client(registry):
    client = Handfast("null:")
    install(client, registry=registry)
    gone = weakref.ref(client)
    client.close()
    del client
    gc.collect()
    assert gone() is None


async def test_losses_are_counted_from_0_on_with_the_first_lease(here, registry):
    """The step from 0 to 1 is what an alert sees: a series that begins with 1 has no increase."""
    install(bare(here), registry=registry)
    async with here.lock("order:1"):
        pass
    labels = {"kind": "lock", "name": "order:*"}
    found = {
        cause: registry.get_sample_value("handfast_leases_lost_total", {**labels, "cause": cause}) for cause in CAUSES
    }
    assert found == dict.fromkeys(CAUSES, 0)


async def test_a_call_that_finds_the_record_it_waited_for_waits_no_more(api, here, there, registry):
    install(bare(here), registry=registry)

    def waiters():
        return registry.get_sample_value("handfast_waiters", {"kind": "once", "name": "a"})

    await finds(api, here, there, waiters)


def test_gauges_of_several_processes_are_the_sum_of_those_that_live(registry):
    with Handfast("null:") as client:
        install(client, registry=registry)
    gauges = {one._name: one for one in registry._collector_to_names if isinstance(one, Gauge)}
    assert {name: one._multiprocess_mode for name, one in gauges.items()} == {
        "handfast_leases": "livesum",
        "handfast_waiters": "livesum",
    }


async def test_names_of_others_are_escaped_and_few(here, registry):
    install(bare(here), registry=registry)
    strange = 'a"} 1\n# TYPE fake counter\nfake{x="\\'
    async with here.lock(strange):
        pass
    for number in range(MAX_LABELS + 50):
        await take(here.lock("x" * (number + 1)))
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert "fake" not in families
    names = {sample.labels["name"] for sample in families["handfast_leases"].samples}
    assert strange.replace("1", "*") in names
    assert "other" in names
    assert len(names) == MAX_LABELS + 1
    bounds = [
        float(sample.labels["le"])
        for sample in families["handfast_acquire_seconds"].samples
        if sample.labels["name"] == "x" and "le" in sample.labels
    ]
    assert bounds[:-1] == list(BUCKETS_S)
