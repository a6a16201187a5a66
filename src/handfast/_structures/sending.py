"""How the calls of a structure are sent: one by one, or many items in batches, so that none occupies the server for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from handfast._engine.effects import Answer, Call, Steps

__all__ = ["BATCH", "ask", "batches", "in_batches"]

BATCH = 500
"""Entries in one call: about 1 ms of the server's time for a set with a million entries."""

T = TypeVar("T")


def ask(call: Call) -> Steps[Any]:
    """Make one call, and return its reply."""
    answer: Answer = yield call
    return answer.reply


def in_batches(call: Callable[[Sequence[T]], Call], items: Sequence[T]) -> Steps[None]:
    """Make the call for all items, batch by batch."""
    for batch in batches(items):
        yield call(batch)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut items into pieces of at most BATCH."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
