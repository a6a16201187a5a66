"""Metrics and traces for OpenTelemetry, of real clients."""

from __future__ import annotations

import asyncio
from math import inf
from typing import get_args

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from handfast import AcquireTimeout, AsyncHandfast, Handfast
from handfast.events import LossCause
from handfast.metrics import BUCKETS_S
from handfast.metrics.opentelemetry import install
from tests._support.apis import ASYNCIO, until_queued
from tests._support.once import finds

SOON_S = 0.05


class Telemetry:
    """The SDK, in memory."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    def install(self, client, **options):
        client = getattr(client, "_thing", client)
        return install(client, meter_provider=self.meters, tracer_provider=self.tracers, **options)

    def points(self):
        """Return the points of each metric, by name."""
        data = self._reader.get_metrics_data()
        metrics = [one for whole in data.resource_metrics for scope in whole.scope_metrics for one in scope.metrics]
        return {metric.name: list(metric.data.data_points) for metric in metrics}

    def spans(self):
        return self._spans.get_finished_spans()


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    telemetry.tracers.shutdown()
    telemetry.meters.shutdown()


def count(points, **attributes):
    wanted = {f"handfast.{key}": value for key, value in attributes.items()}
    return sum(
        getattr(point, "count", None) or getattr(point, "value", 0)
        for point in points
        if wanted.items() <= point.attributes.items()
    )


async def test_a_lease_is_measured(here, there, telemetry):
    telemetry.install(here)
    async with here.lock("order:1"):
        with pytest.raises(AcquireTimeout):
            await here.lock("order:1").acquire(timeout=0)
        points = telemetry.points()
        assert count(points["handfast.lease.active"], kind="lock", name="order:*") == 1
    points = telemetry.points()
    assert count(points["handfast.lease.active"], kind="lock") == 0
    assert count(points["handfast.acquire.duration"], kind="lock", name="order:*", outcome="granted") == 1
    assert count(points["handfast.acquire.duration"], kind="lock", name="order:*", outcome="busy") == 1
    assert count(points["handfast.hold.duration"], outcome="released") == 1
    assert points["handfast.hold.duration"][0].explicit_bounds == BUCKETS_S
    assert telemetry.spans() == ()


async def test_losses_and_failures_are_counted_from_0_on(here, telemetry):
    telemetry.install(here)
    async with here.lock("a"):
        pass
    points = telemetry.points()
    assert {point.attributes["handfast.cause"] for point in points["handfast.lease.lost"]} == {*get_args(LossCause)}
    assert count(points["handfast.lease.lost"]) == 0
    assert [point.value for point in points["handfast.renewal.failed"]] == [0]


async def test_a_client_that_is_installed_twice_is_counted_once(here, telemetry):
    stop, again = telemetry.install(here), telemetry.install(here)
    async with here.lock("a"):
        assert count(telemetry.points()["handfast.lease.active"]) == 1
    assert stop is again
    stop()
    async with here.lock("a"):
        assert count(telemetry.points()["handfast.lease.active"]) == 0
    telemetry.install(here)
    async with here.lock("a"):
        assert count(telemetry.points()["handfast.lease.active"]) == 1


def test_the_global_meter_provider_has_each_client_once(hf):
    first = install(hf)
    assert install(hf, meter_provider=metrics.get_meter_provider()) is first
    assert install(hf) is first
    first()


async def test_a_call_that_finds_the_record_it_waited_for_waits_no_more(api, here, there, telemetry):
    telemetry.install(here)

    await finds(api, here, there, lambda: count(telemetry.points().get("handfast.waiter.active", ())))


async def test_a_wait_is_a_span_under_that_of_its_caller(api, server, here, telemetry):
    """In the task that waits, or in the thread."""
    tracer = telemetry.tracers.get_tracer("test")

    async def request():
        async with AsyncHandfast(server.url) as client:
            telemetry.install(client, min_wait=0)
            with tracer.start_as_current_span("request"):
                async with client.lock("order:1") as lease:
                    return lease.fence

    def request_in_thread():
        with Handfast(server.url) as client:
            telemetry.install(client, min_wait=0)
            with tracer.start_as_current_span("request"), client.lock("order:1") as lease:
                return lease.fence

    lease = await here.lock("order:1").acquire()
    waiter = asyncio.create_task(request() if api is ASYNCIO else asyncio.to_thread(request_in_thread))
    await until_queued(here.lock("order:1"))
    await lease.release()
    fence = await waiter
    wait, whole = telemetry.spans()
    assert (wait.name, whole.name) == ("acquire lock", "request")
    assert wait.parent.span_id == whole.context.span_id
    assert whole.start_time <= wait.start_time < wait.end_time <= whole.end_time
    assert dict(wait.attributes) == {
        "handfast.kind": "lock",
        "handfast.name": "order:1",
        "handfast.outcome": "granted",
        "handfast.fence": fence,
        "handfast.position": 0,
        "db.system.name": "redis",
        "server.address": here._driver.address,
    }
    assert wait.status.status_code is StatusCode.UNSET


async def test_a_wait_that_times_out_is_a_span_as_well(here, there, telemetry):
    telemetry.install(here, min_wait=SOON_S)
    async with there.lock("a"):
        with pytest.raises(AcquireTimeout):
            await here.lock("a").acquire(timeout=2 * SOON_S)
    (span,) = telemetry.spans()
    assert span.attributes["handfast.outcome"] == "timeout"
    assert "handfast.fence" not in span.attributes
    points = telemetry.points()
    assert count(points["handfast.waiter.active"]) == 0


async def test_spans_can_be_turned_off_and_a_wrong_bound_is_refused(here, there, telemetry):
    telemetry.install(here, min_wait=inf)
    async with there.lock("a"):
        with pytest.raises(AcquireTimeout):
            await here.lock("a").acquire(timeout=SOON_S)
    assert telemetry.spans() == ()
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="min_wait must be a number of seconds from 0 on"):
            telemetry.install(here, min_wait=wrong)
