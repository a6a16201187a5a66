"""Metrics of a client for Prometheus.

    from handfast.metrics import prometheus

    prometheus.install(hf)

Needs the extra ``handfast[prometheus]``. The program serves the metrics: by ``prometheus_client.start_http_server()``, or in
a web framework.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakKeyDictionary

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as _missing:
    _missing.add_note("handfast.metrics.prometheus needs prometheus-client: pip install 'handfast[prometheus]'")
    raise

from handfast.events import (
    Acquired,
    Admitted,
    Connected,
    Event,
    Found,
    LossCause,
    Lost,
    Queued,
    Refused,
    Released,
    RenewalFailed,
)
from handfast.metrics import BUCKETS_S, Labels, collapse, install_once

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
    """Measure a client. Call this before the client is used.

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
        label: Returns the label of a name. In one registry there are 200 different ones, and "other" for the rest. The function of
            the first client of a registry counts.

    Returns:
        A function without arguments, which ends it for this client. A client measured already gives the same
        function, and is counted once.
    """
    if registry not in _installed:
        _installed[registry] = _Metrics(registry, Labels(label))
    return install_once(client, registry, lambda: _installed[registry].take)


class _Metrics:
    """The metrics of a registry."""

    def __init__(self, registry: CollectorRegistry, labels: Labels) -> None:
        named = ("kind", "name")
        self._labels = labels
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
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
        # With several processes that share a folder, the sum of those that live.
        self._leases, self._waiters = (
            Gauge(name, text, named, registry=registry, multiprocess_mode="livesum")
            for name, text in (
                ("handfast_leases", "Leases that this process holds"),
                ("handfast_waiters", "Requests of this process in queues"),
            )
        )
        lost, failed, opened = "Leases that were lost", "Renewals without a good reply", "Connections that were opened"
        self._losses = Counter("handfast_leases_lost", lost, (*named, "cause"), registry=registry)
        renewals = Counter("handfast_renewals_failed", failed, registry=registry)
        connections = Counter("handfast_connections_opened", opened, registry=registry)
        self._takes: dict[type[Event], Callable[[Any], object]] = {
            Acquired: self._acquired,
            Admitted: self._answered,
            Connected: lambda _: connections.inc(),
            Found: self._answered,
            Lost: self._lost,
            Queued: self._queued,
            Refused: self._refused,
            Released: self._released,
            RenewalFailed: lambda _: renewals.inc(),
        }

    def take(self, event: Any) -> None:
        """Count and measure an event."""
        take = self._takes.get(type(event))
        if take is not None:
            take(event)

    def _acquired(self, event: Acquired) -> None:
        kind, label = event.kind, self._labels.of(event.name)
        self._child(self._acquire, kind, label, "granted").observe(event.waited)
        self._child(self._leases, kind, label).inc()
        if event.position is not None:
            self._child(self._waiters, kind, label).dec()

    def _answered(self, event: Admitted | Found) -> None:
        kind, label = event.kind, self._labels.of(event.name)
        outcome = "granted" if isinstance(event, Admitted) else "found"
        self._child(self._acquire, kind, label, outcome).observe(event.waited)
        if isinstance(event, Found) and event.position is not None:
            self._child(self._waiters, kind, label).dec()

    def _refused(self, event: Refused) -> None:
        kind, label = event.kind, self._labels.of(event.name)
        self._child(self._acquire, kind, label, event.outcome).observe(event.waited)
        if event.position is not None:
            self._child(self._waiters, kind, label).dec()

    def _queued(self, event: Queued) -> None:
        self._child(self._waiters, event.kind, self._labels.of(event.name)).inc()

    def _released(self, event: Released) -> None:
        kind, label = event.kind, self._labels.of(event.name)
        self._child(self._leases, kind, label).dec()
        self._child(self._hold, kind, label, "released").observe(event.held_for)

    def _lost(self, event: Lost) -> None:
        kind, label = event.kind, self._labels.of(event.name)
        self._child(self._leases, kind, label).dec()
        self._child(self._hold, kind, label, "lost").observe(event.held_for)
        self._child(self._losses, kind, label, event.cause).inc()

    def _child(self, metric: Any, *labels: str) -> Any:
        key = metric, labels
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
            if metric is self._leases:  # rates and alerts see a first loss only as the step from 0 to 1
                for cause in get_args(LossCause):
                    self._losses.labels(*labels, cause)
        return child
