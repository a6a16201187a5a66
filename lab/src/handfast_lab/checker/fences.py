"""Fences grow with every grant of a name, whatever happens to the server in between.

No two grants of a name have the same one, and of two grants whose order is known the later has the larger one. Two things
tell the order. An acquire that had returned before another one was called was granted before it. And of two that cannot
hold at once, as any two of a lock cannot, the one that was certainly held first was granted first, however long both
had waited: this sees the order of a handoff.

The second rule takes exclusion for granted, which is `holds`' business: give a history whose server forgot what it had
granted to `check_fences` with ``exclusive=False``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from handfast_lab.checker.finding import Finding, told
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book, Page, ended

__all__ = ["check_fences"]

_invoked = attrgetter("invoked")


def check_fences(history: Sequence[Operation] | Book, *, exclusive: bool = False) -> list[Finding]:
    """One finding for each grant whose fence is not larger than that of an earlier one."""
    found: list[Finding] = []
    for page in Book.of(history).pages.values():
        grants = [tenure.acquire for tenure in page.tenures if tenure.acquire.fence is not None]
        found += _repeated(page.name, grants)
        found += _fallen(page.name, grants)
        if exclusive and page.limit is not None:
            found += _fallen_at_handoffs(page, page.limit)
    return found


def _repeated(name: str, grants: Iterable[Operation]) -> Iterator[Finding]:
    first: dict[int | None, Operation] = {}
    for grant in grants:
        other = first.setdefault(grant.fence, grant)
        if other is not grant:
            yield Finding("fences", name, f"two grants have the same fence: {told((grant, other))}", (grant, other))


def _fallen(name: str, grants: Sequence[Operation]) -> Iterator[Finding]:
    """Those whose acquire was called after that of a larger fence had returned."""
    over = sorted(grants, key=ended)
    place, largest = 0, None
    for grant in sorted(grants, key=_invoked):
        while place < len(over) and ended(over[place]) < grant.invoked:
            largest = _larger(largest, over[place])
            place += 1
        if largest is not None and _fence(largest) > _fence(grant):
            text = f"a fence is smaller than one before it: {told((grant, largest))}"
            yield Finding("fences", name, text, (grant, largest))


def _fallen_at_handoffs(page: Page, limit: int) -> Iterator[Finding]:
    """Those that were certainly held after a larger fence, where only one of the two can be held at once."""
    largest: Operation | None = None
    largest_whole: Operation | None = None
    for _, _, tenure in page.certain():
        grant = tenure.acquire
        if grant.fence is None:
            continue
        whole = grant.weight >= limit
        before = largest if whole else largest_whole
        if before is not None and _fence(before) > grant.fence and ended(before) >= grant.invoked:
            text = f"a fence is smaller than that of an earlier holder: {told((grant, before))}"
            yield Finding("fences", page.name, text, (grant, before))
        largest = _larger(largest, grant)
        if whole:
            largest_whole = _larger(largest_whole, grant)


def _fence(grant: Operation) -> int:
    return grant.fence or 0


def _larger(one: Operation | None, other: Operation) -> Operation:
    return other if one is None or _fence(one) < _fence(other) else one
