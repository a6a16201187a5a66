"""All that can be said of a history as such.

A server that keeps what it grants owes all of it, whatever happens on the wire and to its clients. One that lost what it
had granted (FLUSHALL, a restart without data, an eviction, a stale replica, a step of its clock) owes growing fences only:
give such a history to `check_fences` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.checking.book import Book
from holdfast.checking.fences import check_fences
from holdfast.checking.finding import Finding
from holdfast.checking.history import Operation
from holdfast.checking.holds import check_holds
from holdfast.checking.linearizability import check_linearizability
from holdfast.checking.order import check_order

__all__ = ["check_all"]


def check_all(history: Sequence[Operation]) -> list[Finding]:
    """What is wrong with a history; empty is good.

    Whether an order of steps explains it is only asked where nothing simpler is wrong.
    """
    book = Book(history)
    found = [*check_holds(book), *check_fences(book, exclusive=True), *check_order(book)]
    return found or check_linearizability(book)
