"""Raise scores that only grow, and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.objects import ObjectRequest
from handfast._protocol.asking import batches

if TYPE_CHECKING:
    from handfast.records import Advance, Scored

__all__ = ["advance", "read_scores"]


def advance(request: ObjectRequest, pairs: Sequence[tuple[float, bytes]], token: str) -> Steps[Advance]:
    """Move all members forward, batch by batch, and count the effects."""
    from handfast.records import Advance

    added = moved = stale = 0
    for number, batch in enumerate(batches(pairs)):
        once = request.having(answer=f"answer:{token}:{number}")  # the reply is stored there, for a repeated call
        answer: Answer = yield once.call("advance", more=[part for pair in batch for part in pair])
        added, moved, stale = added + answer.reply[1], moved + answer.reply[2], stale + answer.reply[3]
    return Advance(added, moved, stale)


def read_scores(call: Call) -> Steps[tuple[Scored, ...]]:
    """Read members, and return them with their scores."""
    from handfast.records import Scored

    answer: Answer = yield call
    return tuple(Scored(member.decode(), float(score)) for member, score in _pairs(answer.reply))


def _pairs(reply: list[Any]) -> list[Any]:
    """Return members and scores side by side, however the server groups them."""
    return reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
