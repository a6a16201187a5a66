"""Metrics and traces of clients.

`handfast.metrics.prometheus` needs the extra ``handfast[prometheus]``, `handfast.metrics.opentelemetry` the extra
``handfast[otel]``. ``handfast exporter`` serves metrics of the server.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from handfast import AsyncHandfast, Handfast

__all__ = ["BUCKETS_S", "MAX_LABELS", "OTHER", "Installations", "Labels", "collapse"]

BUCKETS_S = (0.001, 0.0025, 0.006, 0.015, 0.04, 0.1, 0.25, 0.6, 1.5, 4.0, 10.0, 25.0, 60.0, 150.0, 300.0)
"""Upper bounds of the buckets of all histograms, in seconds: each some 2.5 times the one before."""

MAX_LABELS = 200
"""How many different labels names have, in one process. Further names share the label `OTHER`."""

OTHER = "other"

_REMEMBERED = 10_000
"""Names whose labels are remembered."""

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_HEX = r"(?<![0-9a-zA-Z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![0-9a-zA-Z])"
_VARIABLE: list[re.Pattern[str]] = []


def collapse(name: str) -> str:
    """Return the label of a name: a UUID, 8 or more hexadecimal digits, and other digits become ``*``.

    So ``order:4711`` and ``order:4712`` share the label ``order:*``.
    """
    if not _VARIABLE:
        _VARIABLE.append(re.compile(f"{_UUID}|{_HEX}|[0-9]+"))
    return _VARIABLE[0].sub("*", name)


class Labels:
    """The labels of names: at most `MAX_LABELS`, however many names there are.

    Args:
        label: Returns the label of a name.
        keeping: Tells whether a name is a label of its own.
    """

    def __init__(
        self, label: Callable[[str], str] = collapse, *, keeping: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._label = label
        self._keeping = keeping
        self._known: set[str] = set()
        self.of: Callable[[str], str] = lru_cache(_REMEMBERED)(self._of)
        """Return the label of a name."""

    def _of(self, name: str) -> str:
        label = name if self._keeping(name) else str(self._label(name))
        if label not in self._known:
            if len(self._known) >= MAX_LABELS:
                return OTHER
            self._known.add(label)
        return label


class Installations:
    """The clients that are measured into one place, such as a registry: each of them once."""

    def __init__(self) -> None:
        self._stops: WeakKeyDictionary[Handfast | AsyncHandfast, Callable[[], None]] = WeakKeyDictionary()
        """What ends it for each client. None of these functions has a reference to its client."""
        self._lock = threading.Lock()

    def install(
        self, client: Handfast | AsyncHandfast, make: Callable[[], Callable[[Any], object]]
    ) -> Callable[[], None]:
        """Have the function that ``make`` returns called with the events of a client. Return what ends that.

        A client that is measured already gives the function that ends it, and is measured as before.
        """
        with self._lock:
            if (known := self._stops.get(client)) is not None:
                return known
            end, reference = client.on(make()), ref(client)

            def stop() -> None:
                end()
                measured = reference()
                if measured is not None and self._stops.get(measured) is stop:
                    del self._stops[measured]

            self._stops[client] = stop
        return stop
