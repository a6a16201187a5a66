"""From a history to the points that have to be put into one order: what must have happened at some moment, and when.

An operation whose effect is known has one point between its call and its return. An acquire has two: it asked at one
moment, and was let in at that moment or another. What may have happened, or not, is no point but a chance.

Names that are never asked for together have nothing to do with each other: each group of names is a `Scene` of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import NamedTuple

from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book, Limits, Tenure, ended
from handfast_lab.checker.models import Ask

__all__ = ["Act", "Point", "Scene", "scenes"]

_first = attrgetter("first")


class Act(IntEnum):
    """What happens at a point."""

    ASK = 0
    """An acquire stands in line, from where it may get in at once."""
    GRANT = 1
    """It is let in."""
    TRY = 2
    """One that does not wait is let in."""
    REFUSE = 3
    """One is told no."""
    RELEASE = 4
    """A lease that is whole is given up."""
    LOSE = 5
    """A lease that is over, or not whole any more, is given up or was to be lowered."""
    LOWER = 6
    REVOKE = 7
    RESIZE = 8


class Point:
    """Something that happened at one moment, or may have."""

    __slots__ = ("act", "after", "ask", "first", "grant", "last", "names", "operation")

    def __init__(self, act: Act, operation: Operation, first: float, last: float, names: tuple[str, ...] = ()) -> None:
        self.act = act
        self.operation = operation
        self.first = first
        """It did not happen before."""
        self.last = last
        """Nor after."""
        self.names = names or operation.names
        """A revoke or a resize of several names is a point of each."""
        self.ask = Ask(operation.lease, self.names, operation.weight, operation.limit)
        self.after: list[int] = []
        """The numbers of others that came before, as their fences tell: who asked before it asked, or got in before it
        got in. And of a `LOSE` the `GRANT` of what was lost."""
        self.grant = -1
        """Of an `ASK`: the number of its `GRANT`."""


class Presence(NamedTuple):
    """A time in which a request may have stood in line, or held a grant that its caller never heard of."""

    ask: Ask
    first: float
    last: float
    asked: int
    """The number of the point at which it asked for the last time, and was seen no more as this; -1 without one."""


class Scene:
    """The history of a group of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.points: list[Point] = []
        """In the order of their first moments."""
        self.chances: list[Point] = []
        """What may have happened at any moment from its first on, or never: acquires (`ASK`) and what operators did."""
        self.ends: dict[Hashable, float] = {}
        """Of requests and leases that may be over without a word, by their ids: from when on."""
        self.begins: dict[Hashable, float] = {}
        """When the caller of each lease had it."""
        self.presences: list[Presence] = []
        self.is_fenced = True
        """Whether every grant has a fence."""

    def enter(self, operations: Sequence[Operation], book: Book) -> None:
        """All that was done to these names."""
        self._limits = Limits([operation for operation in operations if operation.kind == "resize"])
        for operation in operations:
            kind = operation.kind
            if kind in ("acquire", "try_acquire"):
                if operation.outcome == "granted":
                    self._enter_grant(operation)
                    self._enter_tenure(book.tenures[operation.lease])
                else:
                    self._enter_attempt(operation)
            elif kind in ("revoke", "resize"):
                self._enter_order(operation)
        self.points.sort(key=_first)
        self._tie()

    def _enter_grant(self, operation: Operation) -> None:
        first, last = operation.invoked, ended(operation)
        if operation.kind == "try_acquire":
            self.points.append(Point(Act.TRY, operation, first, last))
            return
        placed = last
        if operation.queued is not None and self._limits.must_fit(operation, operation.queued, last):
            placed = min(operation.queued, last)
        self.points.append(Point(Act.ASK, operation, first, placed))
        self.points.append(Point(Act.GRANT, operation, first, last))

    def _enter_tenure(self, tenure: Tenure) -> None:
        lease, names, since = tenure.acquire.lease, tenure.acquire.names, inf
        self.begins[lease] = tenure.starts
        for release in tenure.releases:
            if release.outcome == "released":
                # Sent again after one that came to no end, it says what became of that.
                self.points.append(Point(Act.RELEASE, release, min(since, release.invoked), ended(release), names))
                break
            if release.outcome == "lost":
                self.points.append(Point(Act.LOSE, release, release.invoked, ended(release), names))
            else:
                since = min(since, release.invoked)
        else:
            self.ends[lease] = min(since, tenure.deadline)
        for lower in tenure.lowers:
            act = Act.LOSE if lower.outcome == "lost" else Act.LOWER
            self._enter_either(Point(act, lower, lower.invoked, ended(lower), names))

    def _enter_attempt(self, operation: Operation) -> None:
        """An acquire that gave no lease to its caller, as far as is known."""
        first, last = operation.invoked, ended(operation)
        if operation.outcome == "refused":
            self.points.append(Point(Act.REFUSE, operation, first, last))
        elif operation.outcome != "timeout" and self._limits.may_fit(operation, first, inf):
            self.chances.append(Point(Act.ASK, operation, first, inf))
            self.ends[operation.lease] = first
        if operation.kind == "acquire" and self._limits.may_fit(operation, first, last):
            ask = Ask(operation.lease, operation.names, operation.weight, operation.limit)
            self.presences.append(Presence(ask, first, last, -1))

    def _enter_order(self, operation: Operation) -> None:
        """What an operator did: to each name for itself."""
        act = Act.REVOKE if operation.kind == "revoke" else Act.RESIZE
        for name in operation.names:
            if name in self.names:
                self._enter_either(Point(act, operation, operation.invoked, ended(operation), (name,)))

    def _enter_either(self, point: Point) -> None:
        (self.points if point.operation.is_certain else self.chances).append(point)

    def _tie(self) -> None:
        """Say which points must come before which: those who share a name asked, and got in, as their fences tell."""
        lets_in = {}
        for number, point in enumerate(self.points):
            if point.act in (Act.GRANT, Act.TRY):
                lets_in[point.operation.lease] = number
        fences: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.names}
        for number, point in enumerate(self.points):
            if point.act is Act.LOSE:
                point.after.append(lets_in[point.operation.lease])
            if point.act in (Act.ASK, Act.TRY):
                grant = lets_in[point.operation.lease]
                if point.act is Act.ASK:
                    point.grant = grant
                    self.presences.append(Presence(point.ask, point.first, point.last, number))
                if point.operation.fence is None:
                    self.is_fenced = False
                    continue
                for name in point.names:
                    fences[name].append((point.operation.fence, number, grant))
        for some in fences.values():
            some.sort()
            for (_, asked, granted), (_, asks, grant) in pairwise(some):
                self.points[grant].after.append(granted)
                if asks != grant:
                    self.points[asks].after.append(asked)


def scenes(book: Book) -> Iterator[Scene]:
    """The groups of names that were asked for together, each with its history."""
    groups = _groups(book.history)
    names: dict[str, list[str]] = {}
    for name, group in groups.items():
        names.setdefault(group, []).append(name)
    operations: dict[str, list[Operation]] = {group: [] for group in names}
    for operation in book.history:
        for group in dict.fromkeys(groups[name] for name in operation.names):
            operations[group].append(operation)
    for group, some in operations.items():
        scene = Scene(names[group])
        scene.enter(some, book)
        yield scene


def _groups(history: Iterable[Operation]) -> dict[str, str]:
    """For each name one of its group, the same for all of them. What operators did ties no names together."""
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
