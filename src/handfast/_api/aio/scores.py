"""Members whose scores only grow: when each was last seen, how far each has come."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from math import inf

from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.score_calls import ScoreCalls
from handfast._engine.validate import check_limit, check_score, utf8
from handfast._protocol.advancing import advance, read
from handfast._protocol.pieces import ask, each_piece
from handfast.records import Advance, Scored

__all__ = ["AsyncScores"]


class AsyncScores:
    """A sorted set whose members only move forward. It is data, so it stays until it is removed; tasks may share it.

    Late and repeated news do no harm here: whatever comes in which order, each member ends at its largest score.

    A reply may have 32 MB by default, or the server ends the connection: ask for fewer where members are very long.
    """

    def __init__(self, driver: AsyncDriver, board: ScoreCalls) -> None:
        self._driver = driver
        self._board = board

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """What the scores are called."""
        return self._board.name

    async def advance(self, scores: Mapping[str, float]) -> Advance:
        """Move members forward to these scores, and add those that are not there; what came of it.

        The counts are exact even where a reply got lost and the server was asked again: each answer is kept for 20 s, in
        some 150 bytes. Many members are sent in pieces of some hundreds: each piece is one step for other clients, all of
        them together are not; when one of them fails, those before it have been moved, and advancing once more is safe.

        Raises TypeError and ValueError, before anything is sent, for what is no valid member (empty, above 16 KiB) or no
        score: not finite, or an int that a double cannot hold (above 2**53, not all of them can be).
        """
        if not isinstance(scores, Mapping):
            raise TypeError(f"scores must be a mapping of members to scores, not {scores!r}")
        pairs = [(check_score(score, member), utf8(member, "a member")) for member, score in scores.items()]
        return await self._driver.ask(advance(self._board, pairs, secrets.token_hex(16)), self.name)

    async def oldest(self, *, limit: int = 10) -> tuple[Scored, ...]:
        """At most ``limit`` (to 10,000) members with the smallest scores, the smallest first. One round trip."""
        return await self._driver.ask(read(self._board.oldest(check_limit(limit))), self.name)

    async def newest(self, *, limit: int = 10) -> tuple[Scored, ...]:
        """At most ``limit`` (to 10,000) members with the largest scores, the largest first. One round trip."""
        return await self._driver.ask(read(self._board.newest(check_limit(limit))), self.name)

    async def since(self, score: float, *, limit: int = 1000) -> tuple[Scored, ...]:
        """At most ``limit`` (to 10,000) members with that score or a larger one, the smallest first. One round trip.

        To go on, ask again with the last score: members that have that very score come again. More than ``limit`` members
        of one score cannot be told apart in this way.
        """
        least = score if score == -inf else check_score(score, "since")
        return await self._driver.ask(read(self._board.since(least, check_limit(limit))), self.name)

    async def remove(self, members: str | Iterable[str]) -> None:
        """Take a member out, or several. What is not there is passed over; what is advanced later begins anew."""
        named = [utf8(member, "a member") for member in ([members] if isinstance(members, str) else members)]
        await self._driver.ask(each_piece(self._board.remove, named), self.name)

    async def size(self) -> int:
        """How many members there are."""
        return int(await self._driver.ask(ask(self._board.size()), self.name))

    async def clear(self) -> None:
        """Forget all members."""
        await self._driver.ask(ask(self._board.clear()), self.name)
