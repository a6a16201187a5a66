"""The calls of a sorted set whose members' scores only increase."""

from __future__ import annotations

from collections.abc import Sequence

from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.script import command, load, pack

__all__ = ["ScoreCalls"]

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
