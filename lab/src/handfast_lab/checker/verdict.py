"""All that can be said of a history as such.

A server that keeps what it grants owes all of it, whatever happens on the wire and to its clients. One that lost what it
had granted (FLUSHALL, a restart without data, an eviction, a stale replica, a step of its clock) owes growing fences only:
give such a history to `check_fences` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.finding import Finding
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import Book
from handfast_lab.checker.linearizability import check_linearizability
from handfast_lab.checker.order import check_order

__all__ = ["check_all"]


def check_all(history: Sequence[Operation]) -> list[Finding]:
    """What is wrong with a history; empty is good.

    Whether an order of steps explains it is only asked where nothing simpler is wrong.
    """
    book = Book(history)
    found = [*check_holds(book), *check_fences(book, exclusive=True), *check_order(book)]
    return found or check_linearizability(book)
