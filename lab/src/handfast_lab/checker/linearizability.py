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

from handfast_lab.checker.finding import Finding, told
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book
from handfast_lab.checker.linearization_events import Act, Point, Scene, scenes
from handfast_lab.checker.models import Ask, State

__all__ = ["check_linearizability"]

RETRY_FOR = 100_000
"""Number of search steps allowed beyond those of a search without backtracking; then the result is "undecided"."""


def check_linearizability(history: Sequence[Operation] | Book, *, patience: int = RETRY_FOR) -> list[Finding]:
    """Return one finding for each group of names without a valid order, or whose search was given up.

    The text of the latter says ``undecided``: such a finding proves neither a violation nor its absence.
    """
    book = Book.of(history)
    found = []
    for scene in scenes(book):
        finding = _Search(scene).run(patience)
        if finding is not None:
            found.append(finding)
    return found


class _Node(NamedTuple):
    """A state of the search."""

    base: int
    """All points before this index are placed."""
    bits: int
    """Bit mask of the placed points, counted from `base`."""
    taken: int
    """Bit mask of the chances that were taken."""
    state: State


class _Choice(NamedTuple):
    """The possible continuations of a node."""

    ways: list[_Node]
    is_stuck: bool
    """Whether an open point is impossible in the current state."""
    refused: set[str]
    """Names for which a refusal is open that the current state would not refuse."""
    least: float
    """The time by which the next point must have happened."""


class _Search:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._points = scene.points
        self._first = [point.first for point in scene.points]
        self._last = [point.last for point in scene.points]
        self._count = len(scene.points)
        self._grants: dict[Hashable, int] = {
            point.operation.lease: i for i, point in enumerate(scene.points) if point.act is Act.GRANT
        }
        self._given_up = {point.ask.who for point in scene.points if point.act is Act.RELEASE}
        self._refused = [number for number, point in enumerate(scene.points) if point.act is Act.REFUSE]
        self._leaving = sorted(presence.last for presence in scene.presences if presence.asked < 0)
        self._seen: set[_Node] = set()
        self._steps = 0
        self._best, self._most, self._is_done = _Node(0, 0, 0, State()), -1, False

    def run(self, patience: int) -> Finding | None:
        """Search, and return a finding if there is no valid order or the search was given up."""
        patience += 2 * self._count
        path = [self._successors(_Node(0, 0, 0, State()))]
        while path:
            node = next(path[-1], None)
            if self._is_done:
                return None
            if self._steps > patience:
                return self._found(f"undecided after {self._steps} tries")
            if node is None:
                path.pop()
            else:
                path.append(self._successors(node))
        return self._found("no order explains it")

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
        yield from choice.ways
        if choice.is_stuck:
            yield from self._endings(node, choice.least)
            yield from self._chances(node, choice.least, choice.refused)

    def _choice(self, node: _Node) -> _Choice | _Node:
        """Return the continuations, or a single node if it is as good as any other."""
        self._steps += 1
        open_points, least = self._open(node)
        ways: list[_Node] = []
        refused: set[str] = set()
        is_stuck = False
        for number in open_points:
            point = self._points[number]
            if point.act is Act.GRANT:  # it happens when another request leaves
                is_stuck = True
                continue
            some = self._ways(node, number, point, least)
            if some and self._is_harmless(node, point):
                return some[0]
            if not some:
                is_stuck = True
                if point.act is Act.REFUSE:
                    refused.update(point.names)
            ways += some
        return _Choice(ways, is_stuck, refused, least)

    def _is_harmless(self, node: _Node, point: Point) -> bool:
        """Return whether every later point may as well follow this one, so that no alternative needs to be tried.

        A refusal changes no state. A request that comes before all requests with larger fences only gains by asking
        early. Every request gains by permits that are released, except one that must still be refused. This holds as
        long as the queue contains no request above the limit, which others overtake, and no presence ends that explains
        a refusal.
        """
        if any(map(node.state.is_too_much, node.state.line)) or self._somebody_leaves_before(node, point):
            return False
        match point.act:
            case Act.REFUSE:
                return True
            case Act.ASK | Act.TRY:
                return self._scene.is_fenced
            case Act.RELEASE | Act.LOSE | Act.LOWER:
                return all(set(other.names).isdisjoint(point.names) for other in self._refusals(node, point.last))
        return False

    def _somebody_leaves_before(self, node: _Node, point: Point) -> bool:
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

    def _ways(self, node: _Node, number: int, point: Point, least: float) -> list[_Node]:
        """Return every way to place this point next."""
        state, ask = node.state, point.ask
        match point.act:
            case Act.ASK | Act.TRY:
                return self._entering(node, number, point)
            case Act.REFUSE:
                told_no = state.is_too_much(ask) or not state.lets_in(ask) or self._is_excused(node, point, least)
                return [self._placed(node, (number,), state)] if told_no else []
        if not self._is_its_turn(node, point):
            return []
        return [after for changed in self._changes(state, point) for after in self._served(node, number, changed)]

    def _changes(self, state: State, point: Point) -> Iterable[State]:
        """Return the possible states after this point, before the queue is served; empty if it is impossible now."""
        ask = point.ask
        match point.act:
            case Act.RELEASE if _is_whole(state, ask):
                return (state.gone(ask.who),)
            case Act.LOSE if not _is_whole(state, ask):
                return (state.gone(ask.who),)
            case Act.LOWER if _is_whole(state, ask):
                return (state.lowered(ask.who, ask.weight),)
            case Act.REVOKE:
                return self._revocations(state, point)
            case Act.RESIZE:
                return (State(state.holding, state.line, ask.limit or None),)
        return ()

    def _entering(self, node: _Node, number: int, point: Point) -> list[_Node]:
        state, ask = node.state, point.ask
        if state.is_too_much(ask) or not self._is_its_turn(node, point):
            return []
        lets_in = state.lets_in(ask)
        if point.act is Act.TRY:
            return [self._placed(node, (number,), state.admitted(ask))] if lets_in else []
        if lets_in:
            is_its_turn = self._is_its_turn(node, self._points[point.grant])
            return [self._placed(node, (number, point.grant), state.admitted(ask))] if is_its_turn else []
        return [self._placed(node, (number,), State(state.holding, (*state.line, ask), state.resized))]

    def _revocations(self, state: State, point: Point) -> Iterator[State]:
        """Take away the earliest grants: those that their holder certainly had at the call, and possibly later ones.

        Grants that are later released as a whole were not among them.
        """
        begins, name = self._scene.begins, point.names[0]
        holders = [ask.who for ask in state.holders(name) if ask.who in begins]
        seen = max((place for place, who in enumerate(holders, 1) if begins[who] <= point.first), default=0)
        taken = list(takewhile(lambda who: who not in self._given_up, holders))
        for count in range(len(taken), seen - 1, -1):
            yield state.revoked(name, holders[:count])

    def _is_excused(self, node: _Node, point: Point, least: float) -> bool:
        """Return whether a request that lost its position, or was never granted, may explain this refusal."""
        state, since = node.state, max(point.first, self._now(node))
        for ask, first, last, asked in self._scene.presences:
            overlaps = first <= least and last >= since and ask.who != point.ask.who
            if overlaps and (asked < 0 or not self._is_placed(node, asked)):
                state = state.admitted(ask)
        return not state.lets_in(point.ask)

    def _endings(self, node: _Node, least: float) -> Iterator[_Node]:
        """Remove a holder whose lease may have ended, or a waiter that may have given up."""
        ends, state = self._scene.ends, node.state
        doubtful = [ask for ask in state.line if ask.who not in self._scene.begins]
        for ask in (*state.holding, *doubtful):
            if ends.get(ask.who, inf) <= least:
                yield from self._served(node, None, state.gone(ask.who))

    def _chances(self, node: _Node, least: float, refused: set[str]) -> Iterator[_Node]:
        """Let one operation with an unknown outcome take effect.

        An additional request only matters as an explanation for a refusal. It may be above the current limit: then it
        was granted under an earlier one.
        """
        state = node.state
        for number, point in enumerate(self._scene.chances):
            if point.first > least or node.taken >> number & 1:
                continue
            after = node._replace(taken=node.taken | 1 << number)
            if point.act is not Act.ASK:
                for changed in self._changes(state, point):
                    yield from self._served(after, None, changed)
            elif refused.isdisjoint(point.names):
                continue
            elif state.is_too_much(point.ask):
                yield after._replace(state=state.admitted(point.ask))
            else:
                yield from self._served(after, None, State(state.holding, (*state.line, point.ask), state.resized))

    # --- steps

    def _served(self, node: _Node, number: int | None, state: State) -> list[_Node]:
        """Place this point, if any, and grant the waiters that fit; return nothing if that contradicts the fences."""
        node = self._placed(node, () if number is None else (number,), state)
        if not state.line:
            return [node]
        served = state.served()
        for ask in served.holding[len(state.holding) :]:
            grant = self._grants.get(ask.who)
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
        return _Node(base, bits, node.taken, state)

    # --- the finding

    def _found(self, verdict: str) -> Finding:
        """Describe the result: how far the search came, and which points could not come next."""
        node = self._best
        open_points, _ = self._open(node)
        operations = list(dict.fromkeys(self._points[number].operation for number in open_points))
        held = ", ".join(f"{ask.who}" for ask in node.state.holding) or "nobody"
        waiting = ", ".join(f"{ask.who}" for ask in node.state.line) or "nobody"
        steps = node.base + node.bits.bit_count()
        text = (
            f"{verdict}: after {steps} of {self._count} steps, with {held} holding and {waiting} in line, "
            f"this has no place: {told(operations[:1])}; under way was {told(operations[1:]) or 'nothing else'}"
        )
        return Finding("linearizability", ", ".join(self._scene.names), text, tuple(operations))


def _is_whole(state: State, ask: Ask) -> bool:
    """Return whether the lease still has all the names that it was granted."""
    return any(held.who == ask.who and held.names == ask.names for held in state.holding)
