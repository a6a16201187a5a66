"""A sorted set whose members' scores only increase: its calls, and how their replies are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.keys import KeySet
from handfast._engine.script import command, load, pack
from handfast._structures.sending import batches

if TYPE_CHECKING:
    from handfast.records import Advance, Scored

__all__ = ["ScoreCalls", "advance", "read_scores"]

ADVANCE = load("scores_advance")


class ScoreCalls:
    """The calls of one sorted set, ready to be sent."""

    __slots__ = ("_place", "_scores", "name")

    def __init__(self, place: KeySet) -> None:
        self.name: str = place.name
        self._place = place
        self._scores = place.key("members")

    def advance(self, pairs: Sequence[tuple[float, bytes]], token: str) -> Call:
        """Increase the scores of members.

        The reply is stored under the token, so that a repeated call gets the same one.
        """
        keys = self._scores, self._place.key(f"answer:{token}")
        return Call(ADVANCE.prefix_for(2, 2 * len(pairs)), pack([*keys, *(part for pair in pairs for part in pair)]))

    def oldest(self, limit: int) -> Call:
        """Read the members with the smallest scores, the smallest first."""
        return Call(command("ZRANGE", 4), pack([self._scores, 0, limit - 1, "WITHSCORES"]))

    def newest(self, limit: int) -> Call:
        """Read the members with the largest scores, the largest first."""
        return Call(command("ZREVRANGE", 4), pack([self._scores, 0, limit - 1, "WITHSCORES"]))

    def since(self, score: float, limit: int) -> Call:
        """Read the members with that score or a larger one, the smallest first."""
        return Call(command("ZRANGEBYSCORE", 7), pack([self._scores, score, "+inf", "WITHSCORES", "LIMIT", 0, limit]))

    def remove(self, members: Sequence[bytes]) -> Call:
        """Remove members."""
        return Call(command("ZREM", 1 + len(members)), pack([self._scores, *members]))

    def size(self) -> Call:
        """Count the members."""
        return Call(command("ZCARD", 1), pack([self._scores]))

    def clear(self) -> Call:
        """Delete the set and all its members."""
        return Call(command("UNLINK", 1), pack([self._scores]))


def advance(board: ScoreCalls, pairs: Sequence[tuple[float, bytes]], token: str) -> Steps[Advance]:
    """Move all members forward, batch by batch, and count the effects."""
    from handfast.records import Advance

    added = moved = stale = 0
    for number, batch in enumerate(batches(pairs)):
        answer: Answer = yield board.advance(batch, f"{token}:{number}")
        added, moved, stale = added + answer.reply[1], moved + answer.reply[2], stale + answer.reply[3]
    return Advance(added, moved, stale)


def read_scores(call: Call) -> Steps[tuple[Scored, ...]]:
    """Make a call that reads members, and return them with their scores."""
    from handfast.records import Scored

    answer: Answer = yield call
    return tuple(Scored(member.decode(), float(score)) for member, score in _pairs(answer.reply))


def _pairs(reply: list[Any]) -> list[Any]:
    """Return members and scores side by side, however the server groups them."""
    return reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
