"""Fences: every grant of a name has a larger fence than the grants before it, even across server failures.

No two grants of a name share a fence, and of two grants with a known order the later one has the larger fence. Two
rules establish the order. If one acquire returned before another one was called, it was granted first. If two grants
exclude each other, as any two grants of a lock do, the one that was certainly held first was granted first, however
long both waited; this rule covers the order of handoffs.

The second rule relies on mutual exclusion, which `check_holds` verifies. Check a history whose server lost its grants
with ``exclusive=False``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import HistoryIndex, NameHistory, ended

__all__ = ["check_fences"]

_invoked = attrgetter("invoked")


def check_fences(history: Sequence[Operation] | HistoryIndex, *, exclusive: bool = False) -> list[Finding]:
    """Return one finding for each grant whose fence is not larger than the fence of an earlier grant."""
    found: list[Finding] = []
    for one in HistoryIndex.of(history).names.values():
        grants = [held.acquire for held in one.grants if held.acquire.fence is not None]
        found += _repeated(one.name, grants)
        found += _decreasing(one.name, grants)
        if exclusive and one.limit is not None:
            found += _decreasing_at_handoffs(one, one.limit)
    return found


def _repeated(name: str, grants: Iterable[Operation]) -> Iterator[Finding]:
    first: dict[int | None, Operation] = {}
    for grant in grants:
        other = first.setdefault(grant.fence, grant)
        if other is not grant:
            yield Finding("fences", name, f"two grants have the same fence: {describe((grant, other))}", (grant, other))


def _decreasing(name: str, grants: Sequence[Operation]) -> Iterator[Finding]:
    """Yield grants whose acquire was called after an acquire with a larger fence had returned."""
    over = sorted(grants, key=ended)
    place, largest = 0, None
    for grant in sorted(grants, key=_invoked):
        while place < len(over) and ended(over[place]) < grant.invoked:
            largest = _larger(largest, over[place])
            place += 1
        if largest is not None and _fence(largest) > _fence(grant):
            text = f"a fence is smaller than one before it: {describe((grant, largest))}"
            yield Finding("fences", name, text, (grant, largest))


def _decreasing_at_handoffs(one: NameHistory, limit: int) -> Iterator[Finding]:
    """Yield grants that were certainly held after a grant with a larger fence, where the two exclude each other."""
    largest: Operation | None = None
    largest_whole: Operation | None = None
    for _, _, held in one.certain():
        grant = held.acquire
        if grant.fence is None:
            continue
        whole = grant.weight >= limit
        before = largest if whole else largest_whole
        if before is not None and _fence(before) > grant.fence and ended(before) >= grant.invoked:
            text = f"a fence is smaller than that of an earlier holder: {describe((grant, before))}"
            yield Finding("fences", one.name, text, (grant, before))
        largest = _larger(largest, grant)
        if whole:
            largest_whole = _larger(largest_whole, grant)


def _fence(grant: Operation) -> int:
    return grant.fence or 0


def _larger(one: Operation | None, other: Operation) -> Operation:
    return other if one is None or _fence(one) < _fence(other) else one
