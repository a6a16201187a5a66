"""Decide by exhaustive search whether some order of steps explains a history: slow, and simple enough to be trusted.

`handfast_lab.checker.linearizability` must agree with it. The search takes no shortcut. Each grant is a step of its own, in
the order of the fences. A change that no operation reports may happen at any moment. A waiter that may have lost its queue
entry is a ghost: it is queued, may be granted, and is gone before the last request of its caller.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from handfast_lab.checker.history_index import Book
from handfast_lab.checker.linearization_events import Act, scenes
from handfast_lab.checker.models import State


class TooMany(Exception):
    """Raised when there are too many states to search."""


def is_explained(history, most=300_000):
    """Return whether each group of names has an order; raise `TooMany` if the search is too large."""
    return all(Exhaustive(scene).finds(most) for scene in scenes(Book(history)))


def is_whole(state, ask):
    return any(held.who == ask.who and held.names == ask.names for held in state.holding)


class Exhaustive:
    def __init__(self, scene):
        self.scene = scene
        self.points = scene.points
        self.ghosts = {("ghost", presence.ask.who): presence for presence in scene.presences}
        self.fences = {
            point.operation.lease: point.operation.fence for point in self.points if point.act in (Act.GRANT, Act.TRY)
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
        return all(self.ghosts[ask.who].last >= now for ask in (*state.line, *state.holding) if ask.who in self.ghosts)

    def steps(self, node):
        placed, taken, state, fences = node
        left = [number for number in range(len(self.points)) if number not in placed]
        least = min(self.points[number].last for number in left)
        for number in left:
            if self.points[number].first <= least:
                for after, grown in self.ways(state, fences, self.points[number]):
                    yield placed | {number}, taken, after, grown
        for number, chance in enumerate(self.scene.chances):
            if number not in taken and chance.first <= least:
                for after, grown in self.ways(state, fences, chance):
                    yield placed, taken | {number}, after, grown
        for after in self.silent(state, placed, least):
            yield placed, taken, after, fences

    def ways(self, state, fences, point):
        ask, ghost = point.ask, ("ghost", point.ask.who)
        haunted = state.holds(ghost) or state.waits(ghost)
        match point.act:
            case Act.ASK if not haunted and not state.is_too_much(ask):
                yield replace(state, line=(*state.line, ask)), fences
            case Act.GRANT if state.waits(ask.who) and state.lets_in(ask):
                yield from self.let_in(state, fences, ask)
            case Act.TRY if not state.is_too_much(ask) and state.lets_in(ask):
                yield from self.let_in(state, fences, ask)
            case Act.REFUSE if not haunted and (state.is_too_much(ask) or not state.served().lets_in(ask)):
                yield state, fences
            case Act.RELEASE if is_whole(state, ask):
                yield state.gone(ask.who), fences
            case Act.LOSE if not is_whole(state, ask):
                yield state.gone(ask.who), fences
            case Act.LOWER if is_whole(state, ask):
                yield state.lowered(ask.who, ask.weight), fences
            case Act.RESIZE:
                yield replace(state, resized=ask.limit or None), fences
            case Act.REVOKE:
                begins = self.scene.begins
                holders = [held.who for held in state.holders(point.names[0]) if held.who in begins]
                seen = [count for count, who in enumerate(holders, 1) if begins[who] <= point.first]
                for count in range(max(seen, default=0), len(holders) + 1):
                    yield state.revoked(point.names[0], holders[:count]), fences

    def let_in(self, state, fences, ask):
        fence, known = self.fences[ask.who], dict(fences)
        if fence is not None:
            if any(known.get(name, fence) > fence for name in ask.names):
                return
            known |= dict.fromkeys(ask.names, fence)
        yield state.admitted(ask), tuple(sorted(known.items()))

    def silent(self, state, placed, least):
        """Yield the states that changes without an operation lead to."""
        for ask in state.line:
            if ask.who not in self.scene.begins:
                if state.lets_in(ask):
                    yield state.admitted(ask)
                yield state.gone(ask.who)
        for ask in state.holding:
            if ask.who in self.ghosts or self.scene.ends.get(ask.who, inf) <= least:
                yield state.gone(ask.who)
        for ghost, presence in self.ghosts.items():
            asks = presence.first <= least and presence.asked not in placed and not state.is_too_much(presence.ask)
            if asks and not state.waits(ghost) and not state.holds(ghost):
                yield replace(state, line=(*state.line, presence.ask._replace(who=ghost)))
