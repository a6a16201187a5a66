"""A history by names: the grants of each, from when until when somebody certainly had them, and what else was done to it.

A hold is certain from the moment at which its acquire had returned until the first of those from which on it may have
been over: its release was about to be called, whatever came of that; the deadline that its holder believed in last; a
revoke of the name was about to be called. The truth is longer, never shorter: whatever certain holds show is true.

A revoke takes the grants that there were when it was called, and maybe those that came while it ran. One that came to no
end may still be under way.
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
    """When its caller knew that it was over; infinity if it never did."""
    return inf if operation.returned is None else operation.returned


class Tenure:
    """One grant, and what its holder did with it."""

    __slots__ = ("acquire", "deadline", "ends", "lowers", "releases", "starts")

    def __init__(self, acquire: Operation) -> None:
        self.acquire = acquire
        self.starts = ended(acquire)
        self.ends = inf
        """When its holder began to give it up, or heard that it was over."""
        self.deadline = inf if acquire.deadline is None else acquire.deadline
        """As last known."""
        self.lowers: tuple[Operation, ...] = ()
        self.releases: tuple[Operation, ...] = ()
        """Both in the order of their calls."""

    def enter(self, operation: Operation) -> None:
        """Something else that its holder did, after all that was entered before."""
        if operation.deadline is not None:
            self.deadline = operation.deadline
        if operation.kind == "lower":
            self.lowers = (*self.lowers, operation)
        else:
            self.releases = (*self.releases, operation)
        if operation.invoked < self.ends and (operation.kind == "release" or operation.outcome == "lost"):
            self.ends = operation.invoked


class Page:
    """All that a history says of one name."""

    __slots__ = ("name", "resizes", "revokes", "tenures")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tenures: list[Tenure] = []
        self.revokes: list[Operation] = []
        self.resizes: list[Operation] = []

    @property
    def limit(self) -> int | None:
        """The limit that counted for everybody all the time; None if there were several."""
        limits = {tenure.acquire.limit for tenure in self.tenures}
        return limits.pop() if len(limits) == 1 and not self.resizes else None

    def certain(self) -> list[tuple[float, float, Tenure]]:
        """The certain holds, from when until when, in the order of their beginnings."""
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
        """When the revokes had ended, and of those that end then or later, when the first was called."""
        ordered = sorted(self.revokes, key=ended)
        first = list(accumulate((revoke.invoked for revoke in reversed(ordered)), min))[::-1]
        return [ended(revoke) for revoke in ordered], [*first, inf]


def _beginning(hold: tuple[float, float, Tenure]) -> float:
    return hold[0]


class Limits:
    """How many permits of a name there may have been at a time, where its limit was set or its callers disagreed."""

    def __init__(self, resizes: Sequence[Operation]) -> None:
        self._resizes = sorted(resizes, key=_invoked)
        self._invoked = [resize.invoked for resize in self._resizes]
        self._latest = list(accumulate(map(_effective_until, self._resizes), max))
        done = sorted((resize for resize in resizes if resize.outcome == "done"), key=ended)
        self._done = [ended(resize) for resize in done]
        self._overwritten = list(accumulate((resize.invoked for resize in done), max))

    def possible(self, own: int, since: float, until: float) -> list[int]:
        """The limits that may have counted in that time for whoever brought this one along."""
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
        """Whether there may have been as many permits then as this one wants."""
        return max(self.possible(acquire.limit, since, until)) >= acquire.weight

    def must_fit(self, acquire: Operation, since: float, until: float) -> bool:
        """Whether there certainly were, all the time."""
        return min(self.possible(acquire.limit, since, until)) >= acquire.weight


def _effective_until(resize: Operation) -> float:
    """Until when it may have come into effect."""
    return ended(resize) if resize.outcome == "done" else inf


class Book:
    """A history by names."""

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
        """The book of a history; one that was made before is good enough."""
        return history if isinstance(history, Book) else cls(history)


class _Pages(dict[str, Page]):
    def __missing__(self, name: str) -> Page:
        page = self[name] = Page(name)
        return page
