"""Metrics of a client for Prometheus.

    from handfast.metrics import prometheus

    prometheus.install(hf)

Needs the extra ``handfast[prometheus]``. How the program shows its metrics, by ``prometheus_client.start_http_server()`` or
in its web framework, is up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from handfast.events import (
    Acquired,
    Admitted,
    Connected,
    Event,
    Found,
    Lost,
    NameEvent,
    Queued,
    Refused,
    Released,
    RenewalFailed,
)
from handfast.metrics import BUCKETS_S, Labels, collapse, outcome_of

if TYPE_CHECKING:
    from handfast import AsyncHandfast, Handfast

__all__ = ["install"]

_installed: WeakKeyDictionary[CollectorRegistry, _Metrics] = WeakKeyDictionary()
"""A registry has each metric once, however many clients write to it."""


def install(
    client: Handfast | AsyncHandfast,
    *,
    registry: CollectorRegistry = REGISTRY,
    label: Callable[[str], str] = collapse,
) -> Callable[[], None]:
    """Count and measure what a client does. Call it before the client is used.

    | metric | type | labels |
    |---|---|---|
    | ``handfast_acquire_seconds`` | histogram | kind, name, outcome: granted, found, or why not: see `handfast.events` |
    | ``handfast_hold_seconds`` | histogram | kind, name, outcome: released, lost |
    | ``handfast_leases`` | gauge | kind, name |
    | ``handfast_waiters`` | gauge | kind, name |
    | ``handfast_leases_lost_total`` | counter | kind, name, cause: see `handfast.events` |
    | ``handfast_renewals_failed_total`` | counter | |
    | ``handfast_connections_opened_total`` | counter | |

    Args:
        client: Whose events are measured.
        registry: Where the metrics are registered. All clients share those of a registry.
        label: Returns the label of a name. In one registry there are 200 different ones, and "other" for the rest. That of
            the first client of a registry counts.

    Returns:
        A function without arguments that ends it for this client.
    """
    if registry not in _installed:
        _installed[registry] = _Metrics(registry, Labels(label))
    return client.on(_installed[registry].take)


class _Metrics:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry, labels: Labels) -> None:
        named = ("kind", "name")
        self._labels = labels
        self._children: dict[tuple[object, ...], Any] = {}
        """The metric of each combination of labels: to look it up in the library takes longer."""
        self._acquire = Histogram(
            "handfast_acquire_seconds",
            "Time from a request to its grant, or to its end without one",
            (*named, "outcome"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._hold = Histogram(
            "handfast_hold_seconds",
            "Time from the grant of a lease to its end",
            (*named, "outcome"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._leases = Gauge("handfast_leases", "Leases that this process holds", named, registry=registry)
        self._waiters = Gauge("handfast_waiters", "Requests of this process in queues", named, registry=registry)
        lost, failed, opened = "Leases that were lost", "Renewals without a good reply", "Connections that were opened"
        self._lost = Counter("handfast_leases_lost", lost, (*named, "cause"), registry=registry)
        self._failed = Counter("handfast_renewals_failed", failed, registry=registry)
        self._opened = Counter("handfast_connections_opened", opened, registry=registry)

    def take(self, event: Event) -> None:
        """Count and measure an event."""
        if isinstance(event, NameEvent):
            self._take_named(event, event.kind, self._labels.of(event.name))
        elif isinstance(event, RenewalFailed):
            self._failed.inc()
        elif isinstance(event, Connected):
            self._opened.inc()

    def _take_named(self, event: NameEvent, kind: str, label: str) -> None:
        if isinstance(event, Acquired | Refused | Found | Admitted):
            self._child(self._acquire, kind, label, outcome_of(event)).observe(event.waited)
            if isinstance(event, Acquired):
                self._child(self._leases, kind, label).inc()
            if isinstance(event, Acquired | Refused) and event.position is not None:
                self._child(self._waiters, kind, label).dec()
        elif isinstance(event, Released | Lost):
            self._child(self._leases, kind, label).dec()
            outcome = "released" if isinstance(event, Released) else "lost"
            self._child(self._hold, kind, label, outcome).observe(event.held_for)
            if isinstance(event, Lost):
                self._child(self._lost, kind, label, event.cause).inc()
        elif isinstance(event, Queued):
            self._child(self._waiters, kind, label).inc()

    def _child(self, metric: Any, *labels: str) -> Any:
        key = (metric, *labels)
        if key not in self._children:
            self._children[key] = metric.labels(*labels)
        return self._children[key]
