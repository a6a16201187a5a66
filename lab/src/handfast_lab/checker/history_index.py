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

__all__ = ["Grant", "HistoryIndex", "Limits", "NameHistory", "ended"]

_invoked = attrgetter("invoked")


def ended(operation: Operation) -> float:
    """Return when the caller knew that the operation had ended; infinity if it never returned."""
    return inf if operation.returned is None else operation.returned


class Grant:
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

    def add(self, operation: Operation) -> None:
        """Add a later operation of the holder. Operations must be added in the order of their calls."""
        if operation.deadline is not None:
            self.deadline = operation.deadline
        if operation.kind == "lower":
            self.lowers = (*self.lowers, operation)
        else:
            self.releases = (*self.releases, operation)
        if operation.invoked < self.ends and (operation.kind == "release" or operation.outcome == "lost"):
            self.ends = operation.invoked


class NameHistory:
    """The operations of a history on one name."""

    __slots__ = ("grants", "name", "resizes", "revokes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.grants: list[Grant] = []
        self.revokes: list[Operation] = []
        self.resizes: list[Operation] = []

    @property
    def limit(self) -> int | None:
        """The limit that applied to every caller during the whole history; None if there were several."""
        limits = {grant.acquire.limit for grant in self.grants}
        return limits.pop() if len(limits) == 1 and not self.resizes else None

    def certain(self) -> list[tuple[float, float, Grant]]:
        """Return the certain holds as (start, end, grant), ordered by start."""
        found = []
        ended_by, revoked_from = self._revocations() if self.revokes else ([], [])
        for grant in self.grants:
            until = min(grant.deadline, grant.ends)
            if ended_by:
                until = min(until, revoked_from[bisect_left(ended_by, grant.acquire.invoked)])
            if grant.starts < until:
                found.append((grant.starts, until, grant))
        found.sort(key=_beginning)
        return found

    def _revocations(self) -> tuple[list[float], list[float]]:
        """Return the ends of the revokes in ascending order, and for each the earliest call.

        The earliest call is taken over that revoke and all that end later.
        """
        ordered = sorted(self.revokes, key=ended)
        first = list(accumulate((revoke.invoked for revoke in reversed(ordered)), min))[::-1]
        return [ended(revoke) for revoke in ordered], [*first, inf]


def _beginning(hold: tuple[float, float, Grant]) -> float:
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


class HistoryIndex:
    """A history, indexed by name and by lease."""

    __slots__ = ("grants", "history", "names")

    def __init__(self, history: Sequence[Operation]) -> None:
        self.history = history
        names = self.names = _Names()
        grants = self.grants = dict[str, Grant]()
        later = []
        for operation in history:
            kind = operation.kind
            if operation.outcome == "granted":
                grant = grants[operation.lease] = Grant(operation)
                for name in operation.names:
                    names[name].grants.append(grant)
            elif kind == "revoke":
                for name in operation.names:
                    names[name].revokes.append(operation)
            elif kind == "resize":
                for name in operation.names:
                    names[name].resizes.append(operation)
            elif kind in ("release", "lower"):
                later.append(operation)
        later.sort(key=_invoked)
        for operation in later:
            if operation.lease in grants:
                grants[operation.lease].add(operation)

    @classmethod
    def of(cls, history: Sequence[Operation] | HistoryIndex) -> HistoryIndex:
        """Return the index of a history; an existing index is returned unchanged."""
        return history if isinstance(history, HistoryIndex) else cls(history)


class _Names(dict[str, NameHistory]):
    def __missing__(self, name: str) -> NameHistory:
        one = self[name] = NameHistory(name)
        return one
