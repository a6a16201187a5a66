"""The results of looks in the text format of Prometheus.

Names become few labels, as in `handfast.metrics`: the figures of a label are the sum, or the largest, of those of its names.
Counters of the server start anew when a name was idle for an hour. Those of a label only grow: what each name has gained
since the look before is added.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from handfast._watch.looks import Look
from handfast.metrics import Labels
from handfast.records import LimiterStatus, LockStatus, NameStatus

__all__ = ["CONTENT_TYPE", "METRICS", "Exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

METRICS = {
    "handfast_up": ("gauge", "Whether the latest look at the server has succeeded"),
    "handfast_look_seconds": ("gauge", "How long the latest look took"),
    "handfast_look_age_seconds": ("gauge", "How long ago it ended"),
    "handfast_names": ("gauge", "Names that the server knows"),
    "handfast_passed_over": ("gauge", "Keys of the namespace that can't be read"),
    "handfast_finding": ("gauge", "Warnings and failures of handfast doctor"),
    "handfast_held": ("gauge", "Leases, those of an at_least included"),
    "handfast_waiting": ("gauge", "Requests in the queues"),
    "handfast_on_hold": ("gauge", "Names that an operator has put on hold"),
    "handfast_paused": ("gauge", "Limiters that are paused"),
    "handfast_limit_used_ratio": (
        "gauge",
        "How full the fullest limiter is, where its limit is known: 1 admits no more",
    ),
    "handfast_oldest_hold_seconds": ("gauge", "For how long the oldest lease has been held"),
    "handfast_oldest_awaited_hold_seconds": (
        "gauge",
        "For how long the oldest lease of a name that is waited for has been held",
    ),
    "handfast_oldest_wait_seconds": ("gauge", "For how long the first request of a queue has waited"),
    "handfast_grants_total": ("counter", "Grants"),
    "handfast_wait_seconds_total": ("counter", "Time that those who were granted had waited"),
}
"""The type and the meaning of each metric."""

Place = tuple[str, str]
"""A kind and a label."""

Sample = tuple[str, dict[str, str], float]


class Exposition:
    """The text of a scrape: the gauges of the latest look, and the counters of labels, which only grow.

    After a failed look it has no figure of a name. A counter that is missing for some time keeps its rate right: it goes
    on from where it was.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._seen: dict[Place, tuple[int, float]] | None = None
        """By kind and name, the counters at the latest look; None before the first one."""
        self._grants: defaultdict[Place, int] = defaultdict(int)
        self._waited: defaultdict[Place, float] = defaultdict(float)
        self._looked_at = time.monotonic()
        self._text = BLIND

    def take(self, look: Look) -> None:
        """Take a look. Before the first one nothing was granted: the counters begin there."""
        if look.error is None:
            self._count(look)
        self._text = BLIND if look.error is not None else _text([*_gauges(look, self._place), *self._counters()])
        self._looked_at = look.at

    def text(self, *, hangs: bool) -> str:
        """Return the metrics. While the look that goes on hangs, they are those of one that has failed."""
        age = [("handfast_look_age_seconds", dict[str, str](), max(0.0, time.monotonic() - self._looked_at))]
        return (BLIND if hangs else self._text) + _text(age)

    def _place(self, found: NameStatus) -> Place:
        """Return under which kind and label a name counts."""
        return found.kind, self._labels.of(found.name)

    def _count(self, look: Look) -> None:
        seen: dict[Place, tuple[int, float]] = {}
        for found in look.names:
            key = found.kind, found.name
            if not isinstance(found.status, LockStatus):
                continue
            now = seen[key] = found.status.grants, found.status.waited
            before = now if self._seen is None else self._seen.get(key, (0, 0.0))
            if now[0] < before[0]:  # the server has forgotten the name in between
                before = 0, 0.0
            place = self._place(found)
            self._grants[place] += now[0] - before[0]
            self._waited[place] += max(0.0, now[1] - before[1])
        self._seen = seen

    def _counters(self) -> Iterator[Sample]:
        for place, grants in self._grants.items():
            yield "handfast_grants_total", _named(place), grants
            yield "handfast_wait_seconds_total", _named(place), self._waited[place]


def _text(samples: Iterable[Sample]) -> str:
    """Return samples with the type and the meaning of each metric."""
    found = defaultdict[str, list[str]](list)
    for name, labels, value in samples:
        found[name].append(f"{name}{_braced(labels)} {value:.15g}\n")
    heads = {name: f"# HELP {name} {text}\n# TYPE {name} {kind}\n" for name, (kind, text) in METRICS.items()}
    return "".join(heads[name] + "".join(lines) for name, lines in found.items())


def _gauges(look: Look, place_of: Callable[[NameStatus], Place]) -> Iterator[Sample]:
    yield "handfast_up", {}, 1.0
    yield "handfast_look_seconds", {}, look.took
    yield "handfast_names", {}, len(look.names)
    yield "handfast_passed_over", {}, look.passed_over
    # Each replica, and each primary of a cluster, may have a finding of the same topic.
    findings = Counter((one.topic, one.severity) for one in look.findings if one.severity in ("warning", "failure"))
    for (topic, severity), count in findings.items():
        yield "handfast_finding", {"topic": topic, "severity": severity}, count
    groups = defaultdict[Place, list[NameStatus]](list)
    for found in look.names:
        groups[place_of(found)].append(found)
    for place, found_here in groups.items():
        named = _named(place)
        yield "handfast_waiting", named, sum(one.status.waiting for one in found_here)
        statuses = [one.status for one in found_here if isinstance(one.status, LockStatus)]
        if statuses:
            yield "handfast_held", named, sum(status.holding for status in statuses)
            yield "handfast_on_hold", named, sum(status.hold is not None for status in statuses)
            holds = (one.held_for for each in statuses for one in each.holders)
            yield "handfast_oldest_hold_seconds", named, _most(holds)
            awaited = (one.held_for for each in statuses if each.waiting for one in each.holders if not one.released)
            yield "handfast_oldest_awaited_hold_seconds", named, _most(awaited)
            waits = (one.waited_for for each in statuses for one in each.waiters)
            yield "handfast_oldest_wait_seconds", named, _most(waits)
        limiters = [one.status for one in found_here if isinstance(one.status, LimiterStatus)]
        if limiters:
            yield "handfast_paused", named, sum(status.paused_for > 0 for status in limiters)
            yield "handfast_oldest_wait_seconds", named, _most(status.longest_wait or 0.0 for status in limiters)
            shares = (rate.used / rate.limit for each in limiters for rate in each.rates if rate.limit)
            yield "handfast_limit_used_ratio", named, _most(shares)


def _named(place: Place) -> dict[str, str]:
    return {"kind": place[0], "name": place[1]}


def _most(seconds: Iterable[float]) -> float:
    return max(seconds, default=0.0)


def _braced(labels: dict[str, str]) -> str:
    """Return labels as the format has them. What is no text in UTF-8 is replaced."""
    escaped = {
        name: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, text in labels.items()
    }
    pairs = ",".join(f'{name}="{text.encode(errors="replace").decode()}"' for name, text in escaped.items())
    return f"{{{pairs}}}" if pairs else ""


BLIND = _text([("handfast_up", {}, 0.0)])
"""The text after a failed look."""
