"""Turn a history into points to be ordered: events with an earliest and a latest time.

An operation with a known effect has one point between its call and its return. An acquire has two: the request, and the
grant at the same moment or later. An operation that may or may not have taken effect is an uncertain point, which the
order may leave out.

Names that are never requested together are independent: each group of names is a `NameGroup` of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import NamedTuple

from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Grant, HistoryIndex, Limits, ended
from handfast_lab.checker.models import Request

__all__ = ["NameGroup", "Point", "PointKind", "name_groups"]

_first = attrgetter("first")


class PointKind(IntEnum):
    """The kind of a point."""

    REQUEST = 0
    """An acquire enters the queue, and may be granted at once."""
    GRANT = 1
    """The acquire is granted."""
    TRY = 2
    """A request that does not wait is granted."""
    REFUSE = 3
    """A request that does not wait is refused."""
    RELEASE = 4
    """A lease that still has all its names is released."""
    LOSE = 5
    """A release or lower finds the lease ended, or some of its names revoked."""
    LOWER = 6
    REVOKE = 7
    RESIZE = 8


class Point:
    """An event that happened at one moment, or may have."""

    __slots__ = ("after", "first", "grant", "kind", "last", "names", "operation", "request")

    def __init__(
        self, kind: PointKind, operation: Operation, first: float, last: float, names: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self.operation = operation
        self.first = first
        """Earliest time."""
        self.last = last
        """Latest time."""
        self.names = names or operation.names
        """A revoke or resize of several names becomes one point for each name."""
        self.request = Request(operation.lease, self.names, operation.weight, operation.limit)
        self.after: list[int] = []
        """Indexes of the points that must precede this one: the request and grant with the next smaller fence precede
        the request and grant of this one. The `GRANT` precedes the `LOSE` of its lease.
        """
        self.grant = -1
        """Index of the `GRANT` that belongs to a `REQUEST`."""


class Presence(NamedTuple):
    """A period in which a request may have been in the queue, or held a grant that its caller never learned of."""

    request: Request
    first: float
    last: float
    request_point: int
    """Index of the point at which the client requested for the last time, which ends this presence; -1 if there is
    none.
    """


class NameGroup:
    """The history of a group of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.points: list[Point] = []
        """Ordered by their earliest times."""
        self.uncertain: list[Point] = []
        """Operations with unknown outcomes, which may take effect at any time from their first or never: acquires (as
        `REQUEST`), lower, revoke and resize.
        """
        self.ends: dict[Hashable, float] = {}
        """For requests and leases that may end unobserved, by lease id: the earliest time of that."""
        self.begins: dict[Hashable, float] = {}
        """When the acquire of each lease returned."""
        self.fences: dict[Hashable, int | None] = {}
        """The fence of each lease."""
        self.presences: list[Presence] = []
        self.is_fenced = True
        """Whether every grant has a fence."""

    def add(self, operations: Sequence[Operation], index: HistoryIndex) -> None:
        """Add all operations on these names."""
        self._limits = Limits([operation for operation in operations if operation.kind == "resize"])
        for operation in operations:
            kind = operation.kind
            if kind in ("acquire", "try_acquire"):
                if operation.outcome == "granted":
                    self._add_grant(operation)
                    self._add_hold(index.grants[operation.lease])
                else:
                    self._add_attempt(operation)
            elif kind in ("revoke", "resize"):
                self._add_operator_call(operation)
        self.points.sort(key=_first)
        self._set_order()

    def _add_grant(self, operation: Operation) -> None:
        first, last = operation.invoked, ended(operation)
        if operation.kind == "try_acquire":
            self.points.append(Point(PointKind.TRY, operation, first, last))
            return
        placed = last
        if operation.queued is not None and self._limits.must_fit(operation, operation.queued, last):
            placed = min(operation.queued, last)
        self.points.append(Point(PointKind.REQUEST, operation, first, placed))
        self.points.append(Point(PointKind.GRANT, operation, first, last))

    def _add_hold(self, grant: Grant) -> None:
        lease, names, since = grant.acquire.lease, grant.acquire.names, inf
        self.begins[lease], self.fences[lease] = grant.starts, grant.acquire.fence
        for release in grant.releases:
            if release.outcome == "released":
                # It may be the retry of a release without a known outcome, and reports the effect of that one.
                self.points.append(
                    Point(PointKind.RELEASE, release, min(since, release.invoked), ended(release), names)
                )
                break
            if release.outcome == "lost":
                self.points.append(Point(PointKind.LOSE, release, release.invoked, ended(release), names))
            else:
                since = min(since, release.invoked)
        else:
            self.ends[lease] = min(since, grant.deadline)
        for lower in grant.lowers:
            kind = PointKind.LOSE if lower.outcome == "lost" else PointKind.LOWER
            self._add_either(Point(kind, lower, lower.invoked, ended(lower), names))

    def _add_attempt(self, operation: Operation) -> None:
        """Add an acquire that returned no lease."""
        first, last = operation.invoked, ended(operation)
        if operation.outcome == "refused":
            self.points.append(Point(PointKind.REFUSE, operation, first, last))
        elif operation.outcome != "timeout" and self._limits.may_fit(operation, first, inf):
            self.uncertain.append(Point(PointKind.REQUEST, operation, first, inf))
            self.ends[operation.lease] = first
        if operation.kind == "acquire" and self._limits.may_fit(operation, first, last):
            request = Request(operation.lease, operation.names, operation.weight, operation.limit)
            self.presences.append(Presence(request, first, last, -1))

    def _add_operator_call(self, operation: Operation) -> None:
        """Add a revoke or resize, as one point for each name."""
        kind = PointKind.REVOKE if operation.kind == "revoke" else PointKind.RESIZE
        for name in operation.names:
            if name in self.names:
                self._add_either(Point(kind, operation, operation.invoked, ended(operation), (name,)))

    def _add_either(self, point: Point) -> None:
        (self.points if point.operation.is_certain else self.uncertain).append(point)

    def _set_order(self) -> None:
        """Record the required order of points: requests and grants of a name follow the order of their fences."""
        granted_at = {}
        for number, point in enumerate(self.points):
            if point.kind in (PointKind.GRANT, PointKind.TRY):
                granted_at[point.operation.lease] = number
        fences: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.names}
        for number, point in enumerate(self.points):
            if point.kind is PointKind.LOSE:
                point.after.append(granted_at[point.operation.lease])
            if point.kind in (PointKind.REQUEST, PointKind.TRY):
                grant = granted_at[point.operation.lease]
                if point.kind is PointKind.REQUEST:
                    point.grant = grant
                    self.presences.append(Presence(point.request, point.first, point.last, number))
                if point.operation.fence is None:
                    self.is_fenced = False
                    continue
                for name in point.names:
                    fences[name].append((point.operation.fence, number, grant))
        for some in fences.values():
            some.sort()
            for (_, request_before, grant_before), (_, request, grant) in pairwise(some):
                self.points[grant].after.append(grant_before)
                if request != grant:
                    self.points[request].after.append(request_before)


def name_groups(index: HistoryIndex) -> Iterator[NameGroup]:
    """Yield the history of each group of names that were requested together."""
    groups = _groups(index.history)
    names: dict[str, list[str]] = {}
    for name, group in groups.items():
        names.setdefault(group, []).append(name)
    operations: dict[str, list[Operation]] = {group: [] for group in names}
    for operation in index.history:
        for group in dict.fromkeys(groups[name] for name in operation.names):
            operations[group].append(operation)
    for group, some in operations.items():
        found = NameGroup(names[group])
        found.add(some, index)
        yield found


def _groups(history: Iterable[Operation]) -> dict[str, str]:
    """Map each name to the representative of its group. A revoke or resize of several names does not join them."""
    parents: dict[str, str] = {}

    def find(name: str) -> str:
        while parents.setdefault(name, name) != name:
            parents[name] = name = parents[parents[name]]
        return name

    for operation in history:
        first = find(operation.names[0])
        for other in operation.names[1:]:
            root = find(other)
            if operation.kind not in ("revoke", "resize"):
                parents[root] = first
    return {name: find(name) for name in parents}
