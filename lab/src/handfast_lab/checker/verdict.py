"""All checks that apply to a history alone.

A server that keeps its grants must pass all of them, whatever happens to the network and to the clients. A server that
lost grants (FLUSHALL, a restart without data, an eviction, a stale replica, a step of its clock) must only keep its
fences increasing: check such a history with `check_fences` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.finding import Finding
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import HistoryIndex
from handfast_lab.checker.linearizability import check_linearizability
from handfast_lab.checker.order import check_order

__all__ = ["check_all"]


def check_all(history: Sequence[Operation]) -> list[Finding]:
    """Return all findings in a history; an empty list means that no violation was found.

    Linearizability is checked only if the simpler checks find nothing.
    """
    index = HistoryIndex(history)
    found = [*check_holds(index), *check_fences(index, exclusive=True), *check_order(index)]
    return found or check_linearizability(index)
