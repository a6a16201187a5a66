"""Never more permits than there are: of those that were certainly held at once, whatever the order of everything else.

It is enough to look when a hold begins, since holds only get lighter after that: a lowered one counts for what it keeps
from the call of ``lower`` on. All that are certain at that moment were held together at least since the last of them was
granted, and that one had to fit its own limit. Where callers disagree on the limit, fences tell which one was the last,
and without fences the largest limit counts. Where a limit was set, any counts that may have been in effect while that
acquire ran: a resize under way, or without an end, makes both acceptable.

A read-write lock is one of EVERYTHING permits, of which a reader takes one and a writer all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from handfast_lab.checker.finding import Finding, told
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book, Limits, Page, Tenure, ended

__all__ = ["check_holds"]


def check_holds(history: Sequence[Operation] | Book) -> list[Finding]:
    """One finding for each hold that began while those of others left no room for it."""
    found: list[Finding] = []
    for page in Book.of(history).pages.values():
        found += _crowds(page)
    return found


def _crowds(page: Page) -> Iterable[Finding]:
    limit = page.limit
    limits = Limits(page.resizes) if limit is None else None
    out, order = 0, 0
    held: dict[str, Tenure] = {}
    ends: list[tuple[float, int, int, str | None]] = []
    for start, until, tenure in page.certain():
        while ends and ends[0][0] <= start:
            _, _, weight, over = heappop(ends)
            out -= weight
            if over is not None:
                del held[over]
        weight = tenure.acquire.weight
        out += weight
        held[tenure.acquire.lease] = tenure
        most = _most(held.values(), limits) if limits is not None else limit
        if most is not None and out > most:
            others = [other.acquire for other in held.values() if other is not tenure]
            text = f"{out} of {most} were held at {start:.6f}: {told([tenure.acquire, *others])}"
            yield Finding("holds", page.name, text, (tenure.acquire, *others))
        order += 1  # no two items are compared any further
        for lower in tenure.lowers:
            if lower.invoked < until and lower.weight < weight:
                heappush(ends, (lower.invoked, order, weight - lower.weight, None))
                weight, order = lower.weight, order + 1
        heappush(ends, (until, order, weight, tenure.acquire.lease))


def _most(held: Iterable[Tenure], limits: Limits) -> int:
    """The limit that all of these had to fit together."""
    acquires = [tenure.acquire for tenure in held]
    fences = [acquire.fence for acquire in acquires if acquire.fence is not None]
    if len(fences) == len(acquires):
        latest = max(fences)
        acquires = [acquire for acquire in acquires if acquire.fence == latest]
    return max(limit for each in acquires for limit in limits.possible(each.limit, each.invoked, ended(each)))
