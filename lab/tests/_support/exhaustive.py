"""Decide by exhaustive search whether some order of steps explains a history: slow, and simple enough to be trusted.

`handfast_lab.checker.linearizability` must agree with it. The search takes no shortcut. Each grant is a step of its
own, in the order of the fences. A change that no operation reports may happen at any moment. A waiter that may have
lost its queue entry is a ghost: it is queued, may be granted, and is gone before the last request of its caller.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from handfast_lab.checker.history_index import HistoryIndex
from handfast_lab.checker.linearization_events import PointKind, name_groups
from handfast_lab.checker.models import State


class TooMany(Exception):
    """Raised when there are too many states to search."""


def is_explained(history, most=300_000):
    """Return whether each group of names has an order; raise `TooMany` if the search is too large."""
    return all(Exhaustive(group).finds(most) for group in name_groups(HistoryIndex(history)))


def is_whole(state, request):
    return any(held.who == request.who and held.names == request.names for held in state.holding)


class Exhaustive:
    def __init__(self, group):
        self.group = group
        self.points = group.points
        self.ghosts = {("ghost", presence.request.who): presence for presence in group.presences}
        self.fences = {
            point.operation.lease: point.operation.fence
            for point in self.points
            if point.kind in (PointKind.GRANT, PointKind.TRY)
        }

    def finds(self, most):
        start = (frozenset(), frozenset(), State(), ())
        seen, todo = {start}, [start]
        while todo:
            node = todo.pop()
            if len(node[0]) == len(self.points):
                return True
            for after in self.steps(node):
                if after not in seen and self.is_in_time(after):
                    seen.add(after)
                    todo.append(after)
            if len(seen) > most:
                raise TooMany
        return False

    def is_in_time(self, node):
        """Return whether all ghosts were gone in time."""
        placed, _, state, _ = node
        now = max((self.points[number].first for number in placed), default=-inf)
        return all(
            self.ghosts[request.who].last >= now
            for request in (*state.queue, *state.holding)
            if request.who in self.ghosts
        )

    def steps(self, node):
        placed, taken, state, fences = node
        left = [number for number in range(len(self.points)) if number not in placed]
        least = min(self.points[number].last for number in left)
        for number in left:
            if self.points[number].first <= least:
                for after, grown in self.ways(state, fences, self.points[number]):
                    yield placed | {number}, taken, after, grown
        for number, point in enumerate(self.group.uncertain):
            if number not in taken and point.first <= least:
                for after, grown in self.ways(state, fences, point):
                    yield placed, taken | {number}, after, grown
        for after in self.silent(state, placed, least):
            yield placed, taken, after, fences

    def ways(self, state, fences, point):
        request, ghost = point.request, ("ghost", point.request.who)
        haunted = state.holds(ghost) or state.waits(ghost)
        match point.kind:
            case PointKind.REQUEST if not haunted and not state.exceeds_limit(request):
                yield replace(state, queue=(*state.queue, request)), fences
            case PointKind.GRANT if state.waits(request.who) and state.is_grantable(request):
                yield from self.grant(state, fences, request)
            case PointKind.TRY if not state.exceeds_limit(request) and state.is_grantable(request):
                yield from self.grant(state, fences, request)
            case PointKind.REFUSE if not haunted and (
                state.exceeds_limit(request) or not state.served().is_grantable(request)
            ):
                yield state, fences
            case PointKind.RELEASE if is_whole(state, request):
                yield state.removed(request.who), fences
            case PointKind.LOSE if not is_whole(state, request):
                yield state.removed(request.who), fences
            case PointKind.LOWER if is_whole(state, request):
                yield state.lowered(request.who, request.weight), fences
            case PointKind.RESIZE:
                yield replace(state, resized=request.limit or None), fences
            case PointKind.REVOKE:
                begins = self.group.begins
                holders = [held.who for held in state.holders(point.names[0]) if held.who in begins]
                if (fence := point.operation.fence) is not None:
                    yield state, fences
                    yield state.revoked(point.names[0], [who for who in holders if self.fences[who] == fence]), fences
                    return
                seen = [count for count, who in enumerate(holders, 1) if begins[who] <= point.first]
                for count in range(max(seen, default=0), len(holders) + 1):
                    yield state.revoked(point.names[0], holders[:count]), fences

    def grant(self, state, fences, request):
        fence, known = self.fences[request.who], dict(fences)
        if fence is not None:
            if any(known.get(name, fence) > fence for name in request.names):
                return
            known |= dict.fromkeys(request.names, fence)
        yield state.granted(request), tuple(sorted(known.items()))

    def silent(self, state, placed, least):
        """Yield the states that changes without an operation lead to."""
        for request in state.queue:
            if request.who not in self.group.begins:
                if state.is_grantable(request):
                    yield state.granted(request)
                yield state.removed(request.who)
        for request in state.holding:
            if request.who in self.ghosts or self.group.ends.get(request.who, inf) <= least:
                yield state.removed(request.who)
        for ghost, presence in self.ghosts.items():
            may_queue = (
                presence.first <= least
                and presence.request_point not in placed
                and not state.exceeds_limit(presence.request)
            )
            if may_queue and not state.waits(ghost) and not state.holds(ghost):
                yield replace(state, queue=(*state.queue, presence.request._replace(who=ghost)))
