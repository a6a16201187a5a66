"""Whether some order of single steps explains a whole history: the search of Wing and Gong, with Lowe's memory.

Each step happens at one moment between a call and its return (`points`), and in the order of these moments a `State` of
the models must answer what the clients were told. The search places one step after the other; where several could come
next it tries those first that have to be over first, and goes back when nothing fits. Which steps are placed, and what
state that led to, is remembered, so nothing is tried twice.

What the engine promises, and with it what this asks for:

- There is one line for a name, first come first served, and whoever is told no met somebody: others held too much, or
  waited. A release says True when the lease was there, whole, and False when it was not.
- A lease ends without a word no earlier than its holder believed, or at a revoke. A request without a known end may have
  been served or not, now or later, and may be gone at any moment; so may what was lowered, revoked or resized without a
  known end happen later or never.
- A waiter keeps its place from the moment on that `Operation.queued` says. Before that, or without it, it may stand in
  line and lose its place again: its connection may break, a grant may end unheard before it wakes, and it may come too
  late when it is rung for several locks. Then it asks again, so where it was let in only the last time counts; but
  whoever was told no meanwhile may have met it. The same is true of one that timed out.
- Whoever fits is let in when the one before it leaves. Really that happens when somebody looks: the lease of a dead holder
  ends in silence, and for several locks the waiter comes itself. Nobody can tell the difference, since everybody who
  looks serves the line first.
- A revoke takes the earliest grants away, up to some fence: all that its callers had when it was called, and as many of
  the later ones as it met. So whoever is let in here before it and really was after it is not taken.

Fences, where they are known, tell in which order those who were let in had come, which leaves little to search. Steps that
may have happened without a word are tried as late as possible: right before something that is not possible without them.
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
"""How often the search goes on from somewhere, beside what it takes without a wrong turn, before it stays undecided."""


def check_linearizability(history: Sequence[Operation] | Book, *, patience: int = RETRY_FOR) -> list[Finding]:
    """One finding for each group of names whose history no order explains, or for which none was found in time.

    The latter says ``undecided``: it is no proof that anything is wrong, and no proof that nothing is.
    """
    book = Book.of(history)
    found = []
    for scene in scenes(book):
        finding = _Search(scene).run(patience)
        if finding is not None:
            found.append(finding)
    return found


class _Node(NamedTuple):
    """How far the search has come."""

    base: int
    """All points before this one are placed,"""
    bits: int
    """and of those from there on the ones whose bits are set."""
    taken: int
    """The chances that were taken, as bits."""
    state: State


class _Choice(NamedTuple):
    """Ways to go on from a node."""

    ways: list[_Node]
    is_stuck: bool
    """Whether something that could come next is not possible as it is,"""
    refused: set[str]
    """and for which names somebody was told no who would not be."""
    least: float
    """When the first of all must have come."""


class _Search:
    """One search."""

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
        """What came of it."""
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

    # --- what may come next

    def _successors(self, node: _Node) -> Iterator[_Node]:
        """Go as far as there is nothing to choose; then every way to go on from there, the likely ones first."""
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
        """The ways to go on, or the one way that is as good as all others."""
        self._steps += 1
        open_points, least = self._open(node)
        ways: list[_Node] = []
        refused: set[str] = set()
        is_stuck = False
        for number in open_points:
            point = self._points[number]
            if point.act is Act.GRANT:  # it comes by itself, when others leave
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
        """Whether whatever comes later may as well come after this: then there is no need to look at anything else.

        To say no changes nothing. Who asks before all that have larger fences can only gain by asking early, and so can
        everybody by permits that are given up, but for those who are to be told no. All that is so while nobody who wants
        too much is passed by others, and nobody is about to leave who stands in the way of those who are told no.
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
        """Whether time would pass by this point beyond the end of a presence that can explain why others were told no."""
        place = bisect_left(self._leaving, self._now(node))
        if place == len(self._leaving) or self._leaving[place] >= point.first:
            return False
        return any(other is not point for other in self._refusals(node, point.first))

    def _refusals(self, node: _Node, until: float) -> Iterator[Point]:
        """Those who are to be told no yet, and may have been by that moment."""
        numbers = self._refused
        after = bisect_right(numbers, until, key=self._first.__getitem__)
        for number in numbers[bisect_left(numbers, node.base) : after]:
            if not self._is_placed(node, number):
                yield self._points[number]

    def _open(self, node: _Node) -> tuple[list[int], float]:
        """The points that may come next, those first that have to come first; and when the first of them has to."""
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
        """Every way in which this point may come now."""
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
        """What may become of the state, before the line goes on; nothing if it can't come now."""
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
        """Take the earliest grants away: those that its caller certainly saw, and perhaps later ones.

        Those that are given up whole one day were not among them.
        """
        begins, name = self._scene.begins, point.names[0]
        holders = [ask.who for ask in state.holders(name) if ask.who in begins]
        seen = max((place for place, who in enumerate(holders, 1) if begins[who] <= point.first), default=0)
        taken = list(takewhile(lambda who: who not in self._given_up, holders))
        for count in range(len(taken), seen - 1, -1):
            yield state.revoked(name, holders[:count])

    def _is_excused(self, node: _Node, point: Point, least: float) -> bool:
        """Whether others may have stood in the way who lost their place, or who were not let in at all."""
        state, since = node.state, max(point.first, self._now(node))
        for ask, first, last, asked in self._scene.presences:
            overlaps = first <= least and last >= since and ask.who != point.ask.who
            if overlaps and (asked < 0 or not self._is_placed(node, asked)):
                state = state.admitted(ask)
        return not state.lets_in(point.ask)

    def _endings(self, node: _Node, least: float) -> Iterator[_Node]:
        """Let somebody go whose lease may be over, or who may have given up."""
        ends, state = self._scene.ends, node.state
        doubtful = [ask for ask in state.line if ask.who not in self._scene.begins]
        for ask in (*state.holding, *doubtful):
            if ends.get(ask.who, inf) <= least:
                yield from self._served(node, None, state.gone(ask.who))

    def _chances(self, node: _Node, least: float, refused: set[str]) -> Iterator[_Node]:
        """Let something happen of which nobody knows whether it did.

        One more who asks can only explain why others were told no. By then it may have more permits than there are now.
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
        """Place this point, if it is one, and let in who gets in by it; nothing if that contradicts the fences."""
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
        """The moment that has come by what is placed."""
        latest = node.base + node.bits.bit_length() - 1
        return self._first[latest] if latest >= 0 else -inf

    def _is_its_turn(self, node: _Node, point: Point) -> bool:
        """Whether all that had to come before are placed."""
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

    # --- what is said in the end

    def _found(self, verdict: str) -> Finding:
        """What came of it, by how far it got and what could not come next."""
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
    """Whether it has all the names that it was granted."""
    return any(held.who == ask.who and held.names == ask.names for held in state.holding)
