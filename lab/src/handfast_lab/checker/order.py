"""First come, first served, among those who were served.

Whoever certainly stood in line before another request of the name was called is granted before it, be the other one smaller,
or one that does not wait. `Operation.queued` says since when it stood there; without it nothing is claimed. Survivors only:
whoever timed out, died or was cancelled has no grant that could come too late.

Which grant was the first is told by the fences, since they grow with every grant. Locks without fences are told by their
holds: of two that cannot hold at once, the one that had returned first was granted first. Other kinds without fences are
not checked.

Exempt is who wanted more permits than a resize had left while it waited: it is sent out of the line to be told so, and if
the limit grows again before it hears, it comes back as the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from handfast_lab.checker.finding import Finding, told
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book, Limits, Page, ended

__all__ = ["check_order"]

_invoked, _queued, _fence = attrgetter("invoked"), attrgetter("queued"), attrgetter("fence")


def check_order(history: Sequence[Operation] | Book) -> list[Finding]:
    """One finding for each grant that overtook somebody in line."""
    found: list[Finding] = []
    for page in Book.of(history).pages.values():
        found += _overtakings(page)
    return found


def _overtakings(page: Page) -> Iterator[Finding]:
    grants = [tenure.acquire for tenure in page.tenures]
    queued = [grant for grant in grants if grant.queued is not None]
    if not queued:
        return
    rank: Callable[[Operation], float]
    if all(grant.fence is not None for grant in grants):
        rank = _fence
    elif page.limit == 1:
        rank = ended
    else:
        return
    limits = Limits(page.resizes)
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
            text = f"it was let in before somebody who stood in line since {last.queued:.6f}: {told((grant, last))}"
            yield Finding("order", page.name, text, (grant, last))
