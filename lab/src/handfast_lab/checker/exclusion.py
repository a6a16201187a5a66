"""Mutual exclusion: the leases certainly held at the same time never exceed the limit.

Checking at the start of each hold is enough, because the weight of a hold only decreases afterwards: a lowered lease
counts with its reduced weight from the call of ``lower`` on. All holds that are certain at that moment coincide at
least since the last of them was granted, and that grant had to fit its own limit. Where the callers pass different
limits, the fences identify the last grant; without fences the largest limit counts. Where a limit was set by
``resize``, every limit counts that may have been in effect while that acquire ran: while a resize is running, or if it
never returned, both the old and the new limit are acceptable.

A read-write lock has MAX_PERMITS permits: a reader takes one, a writer takes all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Grant, HistoryIndex, Limits, NameHistory, ended

__all__ = ["check_holds"]


def check_holds(history: Sequence[Operation] | HistoryIndex) -> list[Finding]:
    """Return one finding for each hold that began while other certain holds left too few permits for it."""
    found: list[Finding] = []
    for one in HistoryIndex.of(history).names.values():
        found += _excesses(one)
    return found


def _excesses(one: NameHistory) -> Iterable[Finding]:
    limit = one.limit
    limits = Limits(one.resizes) if limit is None else None
    out, order = 0, 0
    held: dict[str, Grant] = {}
    ends: list[tuple[float, int, int, str | None]] = []
    for start, until, grant in one.certain():
        while ends and ends[0][0] <= start:
            _, _, weight, over = heappop(ends)
            out -= weight
            if over is not None:
                del held[over]
        weight = grant.acquire.weight
        out += weight
        held[grant.acquire.lease] = grant
        most = _limit_of(held.values(), limits) if limits is not None else limit
        if most is not None and out > most:
            others = [other.acquire for other in held.values() if other is not grant]
            text = f"{out} of {most} were held at {start:.6f}: {describe([grant.acquire, *others])}"
            yield Finding("holds", one.name, text, (grant.acquire, *others))
        order += 1  # unique, so that comparing heap items never reaches the lease
        for lower in grant.lowers:
            if lower.invoked < until and lower.weight < weight:
                heappush(ends, (lower.invoked, order, weight - lower.weight, None))
                weight, order = lower.weight, order + 1
        heappush(ends, (until, order, weight, grant.acquire.lease))


def _limit_of(held: Iterable[Grant], limits: Limits) -> int:
    """Return the limit that all of these holds together had to fit."""
    acquires = [grant.acquire for grant in held]
    fences = [acquire.fence for acquire in acquires if acquire.fence is not None]
    if len(fences) == len(acquires):
        latest = max(fences)
        acquires = [acquire for acquire in acquires if acquire.fence == latest]
    return max(limit for each in acquires for limit in limits.possible(each.limit, each.invoked, ended(each)))
