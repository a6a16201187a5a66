"""Metrics and traces of a client for OpenTelemetry.

    from handfast.metrics import opentelemetry

    opentelemetry.install(hf)

Needs the extra ``handfast[otel]``, which is the API of OpenTelemetry. The program chooses an SDK and sets up the SDK's providers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as _missing:
    _missing.add_note("handfast.metrics.opentelemetry needs opentelemetry-api: pip install 'handfast[otel]'")
    raise

from handfast._version import __version__
from handfast.events import (
    Acquired,
    Admitted,
    Connected,
    Event,
    Found,
    LossCause,
    Lost,
    NameEvent,
    Queued,
    Refused,
    Released,
    RenewalFailed,
)
from handfast.metrics import BUCKETS_S, Labels, collapse, install_once

if TYPE_CHECKING:
    from handfast import AsyncHandfast, Handfast

__all__ = ["install"]

NS = 1_000_000_000
"""Nanoseconds in a second: the times of spans are in those."""


def install(
    client: Handfast | AsyncHandfast,
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    min_wait: float = 0.1,
    label: Callable[[str], str] = collapse,
) -> Callable[[], None]:
    """Measure a client, and trace waits. Call this before the client is used.

    | instrument | type, unit | attributes |
    |---|---|---|
    | ``handfast.acquire.duration`` | histogram, s | ``handfast.kind``, ``handfast.name``, ``handfast.outcome`` |
    | ``handfast.hold.duration`` | histogram, s | the same |
    | ``handfast.lease.active`` | up-down counter, {lease} | ``handfast.kind``, ``handfast.name`` |
    | ``handfast.waiter.active`` | up-down counter, {waiter} | the same |
    | ``handfast.lease.lost`` | counter, {lease} | the same, and ``handfast.cause`` |
    | ``handfast.renewal.failed`` | counter, {renewal} | |
    | ``handfast.connection.opened`` | counter, {connection} | |

    A request of ``min_wait`` seconds or more becomes a span, such as "acquire lock", under the span of the caller. Its
    ``handfast.name`` is the whole name, in metrics it is the label.

    Args:
        client: Whose events are measured.
        meter_provider: None takes the global provider.
        tracer_provider: None takes the global provider.
        min_wait: From how many seconds on a request becomes a span, from 0 on; ``math.inf`` for none. A span takes some 40
            microseconds.
        label: Returns the label of a name. There are 200 different ones, and "other" for the rest.

    Returns:
        A function without arguments, which ends it for this client. A client measured already gives the same
        function, and is counted once.

    Raises:
        ValueError: ``min_wait`` is negative or ``nan``.
    """
    if not min_wait >= 0:
        raise ValueError(f"min_wait must be a number of seconds from 0 on, not {min_wait!r}")

    def make() -> Callable[[Event], None]:
        tracer = trace.get_tracer("handfast", __version__, tracer_provider)
        meter = metrics.get_meter("handfast", __version__, meter_provider)
        return _Telemetry(client, meter, tracer, min_wait, label).take

    # The global provider is one place, whether or not the program has set it already.
    place = None if meter_provider is metrics.get_meter_provider() else meter_provider
    return install_once(client, place, make)


class _Telemetry:
    """The instruments of a client."""

    def __init__(
        self,
        client: Handfast | AsyncHandfast,
        meter: metrics.Meter,
        tracer: trace.Tracer,
        min_wait: float,
        label: Callable[[str], str],
    ) -> None:
        self._tracer = tracer
        self._min_wait = min_wait
        self._labels = Labels(label)
        self._begun: set[tuple[str, str]] = set()
        """The kinds and labels whose losses are counted from 0 on."""
        self._server = client._driver.address  # noqa: SLF001 -- the URL without a password
        self._acquire, self._hold = (
            meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=BUCKETS_S)
            for name, text in (
                ("handfast.acquire.duration", "Time from a request to its grant, or to its end without one"),
                ("handfast.hold.duration", "Time from the grant of a lease to its end"),
            )
        )
        self._leases = meter.create_up_down_counter("handfast.lease.active", "{lease}", "Leases that are held")
        self._waiters = meter.create_up_down_counter("handfast.waiter.active", "{waiter}", "Requests in queues")
        self._lost = meter.create_counter("handfast.lease.lost", "{lease}", "Leases that were lost")
        self._failed = meter.create_counter("handfast.renewal.failed", "{renewal}", "Renewals without a good reply")
        self._opened = meter.create_counter(
            "handfast.connection.opened", "{connection}", "Connections that were opened"
        )
        self._failed.add(0)
        self._opened.add(0)

    def take(self, event: Event) -> None:
        """Measure an event, and trace it if it was a wait."""
        if isinstance(event, NameEvent):
            named = {"handfast.kind": event.kind, "handfast.name": self._labels.of(event.name)}
            self._take_named(event, named)
        elif isinstance(event, RenewalFailed):
            self._failed.add(1)
        elif isinstance(event, Connected):
            self._opened.add(1)

    def _take_named(self, event: NameEvent, named: dict[str, str]) -> None:
        if isinstance(event, Acquired | Refused | Found | Admitted):
            self._acquire.record(event.waited, named | {"handfast.outcome": outcome_of(event)})
            if isinstance(event, Acquired):
                self._begin(named)
                self._leases.add(1, named)
            if isinstance(event, Acquired | Refused | Found) and event.position is not None:
                self._waiters.add(-1, named)
            if event.waited >= self._min_wait:
                self._trace(event, event.waited)
        elif isinstance(event, Released | Lost):
            self._leases.add(-1, named)
            outcome = "released" if isinstance(event, Released) else "lost"
            self._hold.record(event.held_for, named | {"handfast.outcome": outcome})
            if isinstance(event, Lost):
                self._lost.add(1, named | {"handfast.cause": event.cause})
        elif isinstance(event, Queued):
            self._waiters.add(1, named)

    def _begin(self, named: dict[str, str]) -> None:
        """Count losses from 0 on: rates and alerts see a first loss only as the step from 0 to 1."""
        place = (named["handfast.kind"], named["handfast.name"])
        if place not in self._begun:
            self._begun.add(place)
            for cause in get_args(LossCause):
                self._lost.add(0, named | {"handfast.cause": cause})

    def _trace(self, event: NameEvent, waited: float) -> None:
        """Make a span of a finished request. The caller's span is the current span here."""
        attributes: dict[str, str | int] = {
            "handfast.kind": event.kind,
            "handfast.name": event.name,
            "handfast.outcome": outcome_of(event),
            "db.system.name": "redis",
            "server.address": self._server,
        }
        if isinstance(event, Acquired):
            attributes["handfast.fence"] = event.fence
        if isinstance(event, Acquired | Refused | Found) and event.position is not None:
            attributes["handfast.position"] = event.position
        began, ended = round((event.at - waited) * NS), round(event.at * NS)
        span = self._tracer.start_span(
            f"acquire {event.kind}", kind=SpanKind.INTERNAL, attributes=attributes, start_time=began
        )
        if isinstance(event, Refused) and event.outcome == "error":
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended)


def outcome_of(event: NameEvent) -> str:
    """Return how a request ended, as an attribute."""
    if isinstance(event, Refused):
        return event.outcome
    return "found" if isinstance(event, Found) else "granted"
