"""Moving members forward, and reading where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.score_calls import ScoreCalls
from handfast._protocol.pieces import pieces
from handfast.records import Advance, Scored

__all__ = ["advance", "read"]


def advance(board: ScoreCalls, pairs: Sequence[tuple[float, bytes]], token: str) -> Steps[Advance]:
    """Move all of them, piece by piece, and count what came of it."""
    added = moved = stale = 0
    for number, piece in enumerate(pieces(pairs)):
        answer: Answer = yield board.advance(piece, f"{token}:{number}")
        added, moved, stale = added + answer.reply[1], moved + answer.reply[2], stale + answer.reply[3]
    return Advance(added, moved, stale)


def read(call: Call) -> Steps[tuple[Scored, ...]]:
    """The members that a call reads, with their scores."""
    answer: Answer = yield call
    return tuple(Scored(member.decode(), float(score)) for member, score in _pairs(answer.reply))


def _pairs(reply: list[Any]) -> list[Any]:
    """Member and score side by side, however the server groups them."""
    return reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
