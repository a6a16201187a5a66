"""Linearizability: search for an order of single steps that explains a history.

The algorithm is that of Wing and Gong, with Lowe's cache of states. Each step happens at one moment between a call and
its return (see `linearization_events`). In the order of these moments a `State` of the models must give the answers
that the clients received. The search places one step after the other. If several steps can come next, it first tries
the step with the earliest end, and backtracks when no step fits. It caches each combination of placed steps and
resulting state, and never explores one twice.

The engine guarantees, and this search requires, the following:

- Each name has one FIFO queue. A refused request met a conflicting holder or an earlier waiter. A release returns True
  if the lease existed with all its names, and False otherwise.
- Without a release, a lease ends no earlier than its holder's deadline, or at a revoke. A request with an unknown
  outcome may have been granted or not, at once or later, and may disappear at any moment. A lower, revoke or resize
  with an unknown outcome may take effect later or never.
- A waiter keeps its position from the time in `Operation.queued` on. Before that, or without it, the waiter may have
  been in the queue and lost its position: its connection breaks, a grant expires before the waiter reads it, or a
  waiter for several locks answers a wake-up too late. It then enqueues again, so only its last request counts for its
  grant, but requests refused in the meantime may have met it. The same applies to an acquire that timed out.
- A waiter that fits is granted when the request ahead of it leaves. On a server that happens at the next call: the
  lease of a dead holder expires silently, and a waiter for several locks acquires them itself. Clients cannot observe
  the difference, because every call serves the queue first.
- A revoke takes away the earliest grants, up to some fence: all grants that existed when it was called, and any number
  of the later ones. A grant placed before the revoke here but made after it on the server is therefore kept.

Fences, if known, give the order of the grants, which leaves little to search. Steps that may have happened unobserved
are tried as late as possible: immediately before a step that is impossible without them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile
from math import inf
from typing import NamedTuple

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import HistoryIndex
from handfast_lab.checker.linearization_events import NameGroup, Point, PointKind, name_groups
from handfast_lab.checker.models import Request, State

__all__ = ["check_linearizability"]

EXTRA_STEPS = 100_000
"""Number of search steps allowed beyond those of a search without backtracking; then the result is "undecided"."""


def check_linearizability(
    history: Sequence[Operation] | HistoryIndex, *, extra_steps: int = EXTRA_STEPS
) -> list[Finding]:
    """Return one finding for each group of names without a valid order, or whose search was given up.

    The text of the latter says ``undecided``: such a finding proves neither a violation nor its absence.
    """
    index = HistoryIndex.of(history)
    found = []
    for group in name_groups(index):
        finding = _Search(group).run(extra_steps)
        if finding is not None:
            found.append(finding)
    return found


class _Node(NamedTuple):
    """A state of the search."""

    base: int
    """All points before this index are placed."""
    bits: int
    """Bit mask of the placed points, counted from `base`."""
    effective: int
    """Bit mask of the uncertain points that have taken effect."""
    state: State


class _Choice(NamedTuple):
    """The possible continuations of a node."""

    continuations: list[_Node]
    is_stuck: bool
    """Whether an open point is impossible in the current state."""
    refused: set[str]
    """Names for which a refusal is open that the current state would not refuse."""
    least: float
    """The time by which the next point must have happened."""


class _Search:
    def __init__(self, group: NameGroup) -> None:
        self._group = group
        self._points = group.points
        self._first = [point.first for point in group.points]
        self._last = [point.last for point in group.points]
        self._count = len(group.points)
        self._grant_points: dict[Hashable, int] = {
            point.operation.lease: i for i, point in enumerate(group.points) if point.kind is PointKind.GRANT
        }
        self._released = {point.request.who for point in group.points if point.kind is PointKind.RELEASE}
        self._refused = [number for number, point in enumerate(group.points) if point.kind is PointKind.REFUSE]
        self._leaving = sorted(presence.last for presence in group.presences if presence.request_point < 0)
        self._seen: set[_Node] = set()
        self._steps = 0
        self._best, self._most, self._is_done = _Node(0, 0, 0, State()), -1, False

    def run(self, extra_steps: int) -> Finding | None:
        """Search, and return a finding if there is no valid order or the search was given up."""
        extra_steps += 2 * self._count
        path = [self._successors(_Node(0, 0, 0, State()))]
        while path:
            node = next(path[-1], None)
            if self._is_done:
                return None
            if self._steps > extra_steps:
                return self._finding(f"undecided after {self._steps} tries")
            if node is None:
                path.pop()
            else:
                path.append(self._successors(node))
        return self._finding("no order explains it")

    # --- candidates for the next step

    def _successors(self, node: _Node) -> Iterator[_Node]:
        """Advance while there is only one continuation, then yield all of them, likely ones first."""
        choice = self._choice(node)
        while isinstance(choice, _Node):
            node = choice
            choice = self._choice(node)
        placed = node.base + node.bits.bit_count()
        if placed > self._most:
            self._best, self._most = node, placed
        self._is_done = placed == self._count
        if node in self._seen or self._is_done:
            return
        self._seen.add(node)
        yield from choice.continuations
        if choice.is_stuck:
            yield from self._endings(node, choice.least)
            yield from self._late_effects(node, choice.least, choice.refused)

    def _choice(self, node: _Node) -> _Choice | _Node:
        """Return the continuations, or a single node if it is as good as any other."""
        self._steps += 1
        open_points, least = self._open(node)
        continuations: list[_Node] = []
        refused: set[str] = set()
        is_stuck = False
        for number in open_points:
            point = self._points[number]
            if point.kind is PointKind.GRANT:  # it happens when another request leaves
                is_stuck = True
                continue
            some = self._continuations(node, number, point, least)
            if some and self._is_harmless(node, point):
                return some[0]
            if not some:
                is_stuck = True
                if point.kind is PointKind.REFUSE:
                    refused.update(point.names)
            continuations += some
        return _Choice(continuations, is_stuck, refused, least)

    def _is_harmless(self, node: _Node, point: Point) -> bool:
        """Return whether every later point may as well follow this one, so that no alternative needs to be tried.

        A refusal changes no state. A request that comes before all requests with larger fences only gains by asking
        early. Every request gains by permits that are released, except one that must still be refused. This holds as
        long as the queue contains no request above the limit, which others overtake, and no presence ends that explains
        a refusal.
        """
        if any(map(node.state.exceeds_limit, node.state.queue)) or self._passes_a_presence(node, point):
            return False
        match point.kind:
            case PointKind.REFUSE:
                return True
            case PointKind.REQUEST | PointKind.TRY:
                return self._group.is_fenced
            case PointKind.RELEASE | PointKind.LOSE | PointKind.LOWER:
                return all(set(other.names).isdisjoint(point.names) for other in self._refusals(node, point.last))
        return False

    def _passes_a_presence(self, node: _Node, point: Point) -> bool:
        """Return whether placing this point would pass the end of a presence that can explain another refusal."""
        place = bisect_left(self._leaving, self._now(node))
        if place == len(self._leaving) or self._leaving[place] >= point.first:
            return False
        return any(other is not point for other in self._refusals(node, point.first))

    def _refusals(self, node: _Node, until: float) -> Iterator[Point]:
        """Yield the refusals that are not placed yet and may have happened by that time."""
        numbers = self._refused
        after = bisect_right(numbers, until, key=self._first.__getitem__)
        for number in numbers[bisect_left(numbers, node.base) : after]:
            if not self._is_placed(node, number):
                yield self._points[number]

    def _open(self, node: _Node) -> tuple[list[int], float]:
        """Return the points that may come next, by their ends, and the time by which the first must have happened."""
        first, last = self._first, self._last
        found = []
        least, number, rest = inf, node.base, node.bits
        while number < self._count and first[number] <= least:
            if not rest & 1:
                least = min(least, last[number])
                found.append((last[number], number))
            rest >>= 1
            number += 1
        found.sort()
        return [number for _, number in found], least

    def _continuations(self, node: _Node, number: int, point: Point, least: float) -> list[_Node]:
        """Return every way to place this point next."""
        state, request = node.state, point.request
        match point.kind:
            case PointKind.REQUEST | PointKind.TRY:
                return self._entering(node, number, point)
            case PointKind.REFUSE:
                is_refused = (
                    state.exceeds_limit(request)
                    or not state.is_grantable(request)
                    or self._is_explained(node, point, least)
                )
                return [self._placed(node, (number,), state)] if is_refused else []
        if not self._is_its_turn(node, point):
            return []
        return [after for changed in self._changes(state, point) for after in self._served(node, number, changed)]

    def _changes(self, state: State, point: Point) -> Iterable[State]:
        """Return the possible states after this point, before the queue is served; empty if it is impossible now."""
        request = point.request
        match point.kind:
            case PointKind.RELEASE if _is_whole(state, request):
                return (state.removed(request.who),)
            case PointKind.LOSE if not _is_whole(state, request):
                return (state.removed(request.who),)
            case PointKind.LOWER if _is_whole(state, request):
                return (state.lowered(request.who, request.weight),)
            case PointKind.REVOKE:
                return self._revocations(state, point)
            case PointKind.RESIZE:
                return (State(state.holding, state.queue, request.limit or None),)
        return ()

    def _entering(self, node: _Node, number: int, point: Point) -> list[_Node]:
        state, request = node.state, point.request
        if state.exceeds_limit(request) or not self._is_its_turn(node, point):
            return []
        is_grantable = state.is_grantable(request)
        if point.kind is PointKind.TRY:
            return [self._placed(node, (number,), state.granted(request))] if is_grantable else []
        if is_grantable:
            is_its_turn = self._is_its_turn(node, self._points[point.grant])
            return [self._placed(node, (number, point.grant), state.granted(request))] if is_its_turn else []
        return [self._placed(node, (number,), State(state.holding, (*state.queue, request), state.resized))]

    def _revocations(self, state: State, point: Point) -> Iterator[State]:
        """Take away the earliest grants: those that their holder certainly had at the call, and possibly later ones.

        Grants that are later released as a whole were not among them. A revoke of one lease takes that, unless it has ended
        or the server has lost its fence.
        """
        begins, name = self._group.begins, point.names[0]
        holders = [request.who for request in state.holders(name) if request.who in begins]
        if (fence := point.operation.fence) is not None:
            whom = [who for who in holders if self._group.fences[who] == fence and who not in self._released]
            yield from [state.revoked(name, whom)] * bool(whom)
            yield state
            return
        seen = max((place for place, who in enumerate(holders, 1) if begins[who] <= point.first), default=0)
        taken = list(takewhile(lambda who: who not in self._released, holders))
        for count in range(len(taken), seen - 1, -1):
            yield state.revoked(name, holders[:count])

    def _is_explained(self, node: _Node, point: Point, least: float) -> bool:
        """Return whether a request that lost its position, or was never granted, may explain this refusal."""
        state, since = node.state, max(point.first, self._now(node))
        for request, first, last, number in self._group.presences:
            overlaps = first <= least and last >= since and request.who != point.request.who
            if overlaps and (number < 0 or not self._is_placed(node, number)):
                state = state.granted(request)
        return not state.is_grantable(point.request)

    def _endings(self, node: _Node, least: float) -> Iterator[_Node]:
        """Remove a holder whose lease may have ended, or a waiter that may have given up."""
        ends, state = self._group.ends, node.state
        doubtful = [request for request in state.queue if request.who not in self._group.begins]
        for request in (*state.holding, *doubtful):
            if ends.get(request.who, inf) <= least:
                yield from self._served(node, None, state.removed(request.who))

    def _late_effects(self, node: _Node, least: float, refused: set[str]) -> Iterator[_Node]:
        """Let one operation with an unknown outcome take effect.

        An additional request only matters as an explanation for a refusal. It may be above the current limit: then it
        was granted under an earlier one.
        """
        state = node.state
        for number, point in enumerate(self._group.uncertain):
            if point.first > least or node.effective >> number & 1:
                continue
            after = node._replace(effective=node.effective | 1 << number)
            if point.kind is not PointKind.REQUEST:
                for changed in self._changes(state, point):
                    yield from self._served(after, None, changed)
            elif refused.isdisjoint(point.names):
                continue
            elif state.exceeds_limit(point.request):
                yield after._replace(state=state.granted(point.request))
            else:
                yield from self._served(after, None, State(state.holding, (*state.queue, point.request), state.resized))

    # --- steps

    def _served(self, node: _Node, number: int | None, state: State) -> list[_Node]:
        """Place this point, if any, and grant the waiters that fit; return nothing if that contradicts the fences."""
        node = self._placed(node, () if number is None else (number,), state)
        if not state.queue:
            return [node]
        served = state.served()
        for request in served.holding[len(state.holding) :]:
            grant = self._grant_points.get(request.who)
            if grant is not None:
                if not self._is_its_turn(node, self._points[grant]):
                    return []
                node = self._placed(node, (grant,), served)
        return [node._replace(state=served)]

    def _now(self, node: _Node) -> float:
        """Return the latest time that the placed points imply."""
        latest = node.base + node.bits.bit_length() - 1
        return self._first[latest] if latest >= 0 else -inf

    def _is_its_turn(self, node: _Node, point: Point) -> bool:
        """Return whether all points that must precede this one are placed."""
        base, bits = node.base, node.bits
        return all(before < base or bits >> (before - base) & 1 for before in point.after)

    @staticmethod
    def _is_placed(node: _Node, number: int) -> bool:
        return number < node.base or bool(node.bits >> (number - node.base) & 1)

    @staticmethod
    def _placed(node: _Node, numbers: Iterable[int], state: State) -> _Node:
        base, bits = node.base, node.bits
        for number in numbers:
            bits |= 1 << (number - base)
        if bits & 1:
            run = (~bits & (bits + 1)).bit_length() - 1
            base, bits = base + run, bits >> run
        return _Node(base, bits, node.effective, state)

    # --- the finding

    def _finding(self, verdict: str) -> Finding:
        """Describe the result: how far the search came, and which points could not come next."""
        node = self._best
        open_points, _ = self._open(node)
        operations = list(dict.fromkeys(self._points[number].operation for number in open_points))
        held = ", ".join(f"{request.who}" for request in node.state.holding) or "no request"
        waiting = ", ".join(f"{request.who}" for request in node.state.queue) or "no request"
        steps = node.base + node.bits.bit_count()
        text = (
            f"{verdict}: after {steps} of {self._count} steps, with {held} holding and {waiting} in the queue, "
            f"this has no place: {describe(operations[:1])}; under way was {describe(operations[1:]) or 'nothing else'}"
        )
        return Finding("linearizability", ", ".join(self._group.names), text, tuple(operations))


def _is_whole(state: State, request: Request) -> bool:
    """Return whether the lease still has all the names that it was granted."""
    return any(held.who == request.who and held.names == request.names for held in state.holding)
