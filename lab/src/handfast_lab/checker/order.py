"""Fairness: requests that were granted were granted in the order of the queue.

A request that was certainly in the queue before another request for the same name was called is granted first, even if
the other request is smaller or does not wait. `Operation.queued` gives the time from which a request was in the queue;
without it nothing is checked. Only granted requests are compared: a request that timed out, died or was cancelled has
no grant.

Fences give the order of the grants, because they increase with every grant. For locks without fences the holds give the
order: of two holds that exclude each other, the one whose acquire returned first was granted first. Other kinds without
fences are not checked.

A waiter that requested more permits than a resize left is exempt: the server removes it from the queue to report the
new limit, and if the limit grows again before the waiter reads that, it enqueues again at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import HistoryIndex, Limits, NameHistory, ended

__all__ = ["check_order"]

_invoked, _queued, _fence = attrgetter("invoked"), attrgetter("queued"), attrgetter("fence")


def check_order(history: Sequence[Operation] | HistoryIndex) -> list[Finding]:
    """Return one finding for each grant that overtook an earlier waiter."""
    found: list[Finding] = []
    for one in HistoryIndex.of(history).names.values():
        found += _overtakings(one)
    return found


def _overtakings(one: NameHistory) -> Iterator[Finding]:
    grants = [held.acquire for held in one.grants]
    queued = [grant for grant in grants if grant.queued is not None]
    if not queued:
        return
    rank: Callable[[Operation], float]
    if all(grant.fence is not None for grant in grants):
        rank = _fence
    elif one.limit == 1:
        rank = ended
    else:
        return
    limits = Limits(one.resizes)
    queued.sort(key=_queued)
    waiting, last = 0, None
    for grant in sorted(grants, key=_invoked):
        while waiting < len(queued) and _queued(queued[waiting]) < grant.invoked:
            waiter = queued[waiting]
            keeps = limits.must_fit(waiter, _queued(waiter), ended(waiter))
            if keeps and (last is None or rank(waiter) > rank(last)):
                last = waiter
            waiting += 1
        if last is not None and rank(last) > rank(grant):
            text = f"it was granted before a request that was in the queue since {last.queued:.6f}: {describe((grant, last))}"
            yield Finding("order", one.name, text, (grant, last))
