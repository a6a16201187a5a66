"""Metrics and traces of clients.

`handfast.metrics.prometheus` needs the extra ``handfast[prometheus]``, `handfast.metrics.opentelemetry` the extra
``handfast[otel]``. ``handfast exporter`` serves metrics of the server.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from handfast import AsyncHandfast, Handfast

__all__ = ["BUCKETS_S", "MAX_LABELS", "OTHER", "Labels", "collapse", "install_once"]

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
        keeping: Tells whether a name is itself a label.
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


_stops: WeakKeyDictionary[Handfast | AsyncHandfast, dict[Hashable, Callable[[], None]]] = WeakKeyDictionary()
"""What ends the measuring of each client, by the place that it is measured into. None of these functions has a reference to
its client."""

_installing = threading.Lock()


def install_once(
    client: Handfast | AsyncHandfast, place: Hashable, make: Callable[[], Callable[[Any], object]]
) -> Callable[[], None]:
    """Have the result of ``make`` called with the events of a client. Return a function to end this.

    A client measured into the same place already, such as a registry, is measured as before.
    """
    with _installing:
        stops = _stops.setdefault(client, {})
        if place in stops:
            return stops[place]
        end = client.on(make())

        def stop() -> None:
            end()
            if stops.get(place) is stop:
                del stops[place]

        stops[place] = stop
    return stop
