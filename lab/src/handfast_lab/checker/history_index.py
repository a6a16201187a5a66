"""An index of a history by name: the grants of each name, the time of each certain hold, and the operators' calls.

A hold is certain from the moment its acquire returned until the first moment at which it may have ended: the call of
its release, whatever the outcome; the deadline that its holder last knew; the call of a revoke of the name. The real
hold is never shorter than the certain one, so every violation that certain holds show is real.

A revoke ends the grants that existed when it was called, and possibly some granted while it ran. A revoke that never
returned may still be running.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter

from handfast_lab.checker.history import Operation

__all__ = ["Book", "Limits", "Page", "Tenure", "ended"]

_invoked = attrgetter("invoked")


def ended(operation: Operation) -> float:
    """Return when the caller knew that the operation had ended; infinity if it never returned."""
    return inf if operation.returned is None else operation.returned


class Tenure:
    """One grant, and the later operations of its holder on it."""

    __slots__ = ("acquire", "deadline", "ends", "lowers", "releases", "starts")

    def __init__(self, acquire: Operation) -> None:
        self.acquire = acquire
        self.starts = ended(acquire)
        self.ends = inf
        """When the holder called release, or called an operation that reported the lease as lost."""
        self.deadline = inf if acquire.deadline is None else acquire.deadline
        """The deadline that the holder last knew."""
        self.lowers: tuple[Operation, ...] = ()
        self.releases: tuple[Operation, ...] = ()
        """`lowers` and `releases` are in the order of their calls."""

    def enter(self, operation: Operation) -> None:
        """Add a later operation of the holder; call this in the order of the operations."""
        if operation.deadline is not None:
            self.deadline = operation.deadline
        if operation.kind == "lower":
            self.lowers = (*self.lowers, operation)
        else:
            self.releases = (*self.releases, operation)
        if operation.invoked < self.ends and (operation.kind == "release" or operation.outcome == "lost"):
            self.ends = operation.invoked


class Page:
    """The operations of a history on one name."""

    __slots__ = ("name", "resizes", "revokes", "tenures")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tenures: list[Tenure] = []
        self.revokes: list[Operation] = []
        self.resizes: list[Operation] = []

    @property
    def limit(self) -> int | None:
        """The limit that applied to every caller during the whole history; None if there were several."""
        limits = {tenure.acquire.limit for tenure in self.tenures}
        return limits.pop() if len(limits) == 1 and not self.resizes else None

    def certain(self) -> list[tuple[float, float, Tenure]]:
        """Return the certain holds as (start, end, tenure), ordered by start."""
        found = []
        ended_by, revoked_from = self._revocations() if self.revokes else ([], [])
        for tenure in self.tenures:
            until = min(tenure.deadline, tenure.ends)
            if ended_by:
                until = min(until, revoked_from[bisect_left(ended_by, tenure.acquire.invoked)])
            if tenure.starts < until:
                found.append((tenure.starts, until, tenure))
        found.sort(key=_beginning)
        return found

    def _revocations(self) -> tuple[list[float], list[float]]:
        """Return the ends of the revokes in ascending order, and for each the earliest call.

        The earliest call is taken over that revoke and all that end later.
        """
        ordered = sorted(self.revokes, key=ended)
        first = list(accumulate((revoke.invoked for revoke in reversed(ordered)), min))[::-1]
        return [ended(revoke) for revoke in ordered], [*first, inf]


def _beginning(hold: tuple[float, float, Tenure]) -> float:
    return hold[0]


class Limits:
    """The limits of a name that may have been in effect at a time.

    Needed where the name was resized or its callers passed different limits.
    """

    def __init__(self, resizes: Sequence[Operation]) -> None:
        self._resizes = sorted(resizes, key=_invoked)
        self._invoked = [resize.invoked for resize in self._resizes]
        self._latest = list(accumulate(map(_effective_until, self._resizes), max))
        done = sorted((resize for resize in resizes if resize.outcome == "done"), key=ended)
        self._done = [ended(resize) for resize in done]
        self._overwritten = list(accumulate((resize.invoked for resize in done), max))

    def possible(self, own: int, since: float, until: float) -> list[int]:
        """Return the limits that may have been in effect in that period for a caller whose own limit is ``own``."""
        done = bisect_left(self._done, since)
        overwritten = self._overwritten[done - 1] if done else -inf
        limits = [] if done else [own]
        place = bisect_right(self._invoked, until) - 1
        while place >= 0 and self._latest[place] >= overwritten:
            resize = self._resizes[place]
            if _effective_until(resize) >= overwritten:
                limits.append(resize.limit or own)
            place -= 1
        return limits

    def may_fit(self, acquire: Operation, since: float, until: float) -> bool:
        """Return whether the limit may have been at least the weight of this acquire at some time in the period."""
        return max(self.possible(acquire.limit, since, until)) >= acquire.weight

    def must_fit(self, acquire: Operation, since: float, until: float) -> bool:
        """Return whether the limit was certainly at least the weight of this acquire during the whole period."""
        return min(self.possible(acquire.limit, since, until)) >= acquire.weight


def _effective_until(resize: Operation) -> float:
    """Return the latest time at which the resize may have taken effect."""
    return ended(resize) if resize.outcome == "done" else inf


class Book:
    """A history, indexed by name and by lease."""

    __slots__ = ("history", "pages", "tenures")

    def __init__(self, history: Sequence[Operation]) -> None:
        self.history = history
        pages = self.pages = _Pages()
        tenures = self.tenures = dict[str, Tenure]()
        later = []
        for operation in history:
            kind = operation.kind
            if operation.outcome == "granted":
                tenure = tenures[operation.lease] = Tenure(operation)
                for name in operation.names:
                    pages[name].tenures.append(tenure)
            elif kind == "revoke":
                for name in operation.names:
                    pages[name].revokes.append(operation)
            elif kind == "resize":
                for name in operation.names:
                    pages[name].resizes.append(operation)
            elif kind in ("release", "lower"):
                later.append(operation)
        later.sort(key=_invoked)
        for operation in later:
            if operation.lease in tenures:
                tenures[operation.lease].enter(operation)

    @classmethod
    def of(cls, history: Sequence[Operation] | Book) -> Book:
        """Return the index of a history; an existing index is returned unchanged."""
        return history if isinstance(history, Book) else cls(history)


class _Pages(dict[str, Page]):
    def __missing__(self, name: str) -> Page:
        page = self[name] = Page(name)
        return page
