"""Long lists in pieces: no call of ours keeps the server from others for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from handfast._engine.effects import Answer, Call, Steps

__all__ = ["ask", "each_piece", "pieces"]

PIECE = 500
"""Entries in one call: about a millisecond of the server's time, where the set has a million."""

T = TypeVar("T")


def pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, some hundreds at a time."""
    return (items[start : start + PIECE] for start in range(0, len(items), PIECE))


def each_piece(call: Callable[[Sequence[T]], Call], items: Sequence[T]) -> Steps[None]:
    """Make the call for all of the items, piece by piece."""
    for piece in pieces(items):
        yield call(piece)


def ask(call: Call) -> Steps[Any]:
    """The reply to one call."""
    answer: Answer = yield call
    return answer.reply
