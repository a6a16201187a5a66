"""The results of looks in the text format of Prometheus.

Names become few labels, as in `handfast.metrics`: the figures of a label are the sum, or the largest, of those of its names.
Counters of the server start anew when a name was idle for an hour. Those of a label only grow: what each name has gained
since the look before is added.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from handfast._watch.live import View
from handfast._watch.looker import Looker
from handfast._watch.rows import Row
from handfast.metrics import Labels

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
    "handfast_budget_used_ratio": ("gauge", "Which part of the fullest budget is spent or held: 1 admits no more"),
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
        self._text = BLIND

    def take(self, view: View) -> None:
        """Take a look. Before the first look nothing was granted: the counters begin there."""
        self._count(view)
        self._text = _text([*_gauges(view, self._place), *self._counters()])

    def text(self, looker: Looker[View]) -> str:
        """Return the metrics. In an outage there is no figure of a name."""
        age = [("handfast_look_age_seconds", dict[str, str](), max(0.0, time.monotonic() - looker.ended_at))]
        return (self._text if looker.outage is None else BLIND) + _text(age)

    def _place(self, row: Row) -> Place:
        """Return under which kind and label a name counts."""
        return row.kind, self._labels.of(row.name)

    def _count(self, view: View) -> None:
        seen: dict[Place, tuple[int, float]] = {}
        for row in view.rows:
            if not row.face.has_leases:
                continue
            now = seen[row.key] = row.facts.grants, row.facts.waited
            before = now if self._seen is None else self._seen.get(row.key, (0, 0.0))
            if now[0] < before[0]:  # the server has forgotten the name in between
                before = 0, 0.0
            place = self._place(row)
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


def _gauges(view: View, place_of: Callable[[Row], Place]) -> Iterator[Sample]:
    yield "handfast_up", {}, 1.0
    yield "handfast_look_seconds", {}, view.took
    yield "handfast_names", {}, len(view.rows)
    yield "handfast_passed_over", {}, view.passed_over
    # Each replica, and each primary of a cluster, may have a finding of the same topic.
    findings = Counter((one.topic, one.severity) for one in view.findings if one.severity in ("warning", "failure"))
    for (topic, severity), count in findings.items():
        yield "handfast_finding", {"topic": topic, "severity": severity}, count
    groups = defaultdict[Place, list[Row]](list)
    for row in view.rows:
        groups[place_of(row)].append(row)
    for place, rows in groups.items():
        yield from _gauges_of(_named(place), rows, view.at)


def _gauges_of(named: dict[str, str], rows: list[Row], at: float) -> Iterator[Sample]:
    """Yield the gauges of names that are counted together: those that their face has a use for."""
    face, facts = rows[0].face, [row.facts for row in rows]
    yield "handfast_waiting", named, sum(one.waiting for one in facts)
    if face.has_leases:
        yield "handfast_held", named, sum(one.holding for one in facts)
        yield "handfast_on_hold", named, sum(one.stop is not None for one in facts)
        yield "handfast_oldest_hold_seconds", named, _longest((one.held_since for one in facts), at)
        awaited = (row.facts.kept_since for row in rows if row.is_awaited)
        yield "handfast_oldest_awaited_hold_seconds", named, _longest(awaited, at)
    if face.has_rates:
        yield "handfast_paused", named, sum(one.stop is not None for one in facts)
        shares = (rate.used / rate.limit for one in facts for rate in one.rates if rate.limit)
        yield "handfast_limit_used_ratio", named, max(shares, default=0.0)
    # Without a budget in use there is no sample, so an alert on the ratio tells 0 from unknown.
    if spent := [one.share for one in facts if one.share is not None]:
        yield "handfast_budget_used_ratio", named, max(spent)
    if face.has_leases or face.has_rates:
        yield "handfast_oldest_wait_seconds", named, _longest((one.waits_since for one in facts), at)


def _named(place: Place) -> dict[str, str]:
    return {"kind": place[0], "name": place[1]}


def _longest(moments: Iterable[float | None], at: float) -> float:
    """Return how long it is since the earliest moment; 0 if there is none."""
    return at - min((one for one in moments if one is not None), default=at)


def _braced(labels: dict[str, str]) -> str:
    """Return labels in the format's notation. Text that is not valid UTF-8 is replaced."""
    escaped = {
        name: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, text in labels.items()
    }
    pairs = ",".join(f'{name}="{text.encode(errors="replace").decode()}"' for name, text in escaped.items())
    return f"{{{pairs}}}" if pairs else ""


BLIND = _text([("handfast_up", {}, 0.0)])
"""The text after a failed look."""
