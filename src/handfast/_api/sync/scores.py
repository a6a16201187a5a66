# Generated from _api/aio/scores.py by tools/unasync.py: edit that file and run the tool.
"""Members whose scores only grow: when each was last seen, how far each has come."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING

from handfast._api.sync.object import Object
from handfast._engine.validate import check_limit, check_score, utf8
from handfast._naming import name_publicly
from handfast._protocol.asking import in_batches, reply_to
from handfast._protocol.scoring import advance, read_scores

if TYPE_CHECKING:
    from handfast.records import Advance, Scored

__all__ = ["Scores"]


class Scores(Object):
    """A named sorted set whose scores only grow. Made by the client's ``scores()``.

    Late and repeated updates do no harm: in whichever order they arrive, each member ends at its largest score. It is
    data and stays on the server until it is removed. Threads or tasks may share the object.

    Every method may raise ServerRefused and redis-py's connection errors. The server limits a reply to 32 MB by
    default: use a smaller ``limit`` where members are very long.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        seen = hf.scores("last-seen")
        seen.advance({"worker:1": time.time()})
        seen.oldest(limit=5)
    """

    def advance(self, scores: Mapping[str, float]) -> Advance:
        """Raise members to these scores, and add members that are not there.

        The counts are exact even if a reply is lost and the call is sent again: the server keeps each reply for 20 s,
        in about 150 bytes. Large calls are sent in batches of some hundred members. Each batch is atomic, the whole
        call is not: if a batch fails, those before it have been applied, and the call may be repeated.

        Args:
            scores: The new score of each member. A member has 1 byte to 16 KiB of UTF-8. A score is finite, and an int
                only if a double can hold it (all ints up to 2**53 can be held).

        Returns:
            How many members were added, moved, and left as they were.

        Raises:
            TypeError: ``scores`` is no mapping, a member no str, or a score no number. Nothing was sent.
            ValueError: A member or a score is out of range. Nothing was sent.
        """
        if not isinstance(scores, Mapping):
            raise TypeError(f"scores must be a mapping of members to scores, not {scores!r}")
        pairs = [(check_score(score, member), utf8(member, "a member")) for member, score in scores.items()]
        return self._driver.run(advance(self._request, pairs, secrets.token_hex(16)), self.name)

    def oldest(self, *, limit: int = 10) -> tuple[Scored, ...]:
        """Return the members with the smallest scores, in ascending order. Takes a round trip.

        Args:
            limit: How many members at most, from 1 to 10,000.
        """
        return self._driver.run(
            read_scores(self._request.command("ZRANGE", "members", 0, check_limit(limit) - 1, "WITHSCORES")), self.name
        )

    def newest(self, *, limit: int = 10) -> tuple[Scored, ...]:
        """Return the members with the largest scores, in descending order. Takes a round trip.

        Args:
            limit: How many members at most, from 1 to 10,000.
        """
        return self._driver.run(
            read_scores(self._request.command("ZREVRANGE", "members", 0, check_limit(limit) - 1, "WITHSCORES")),
            self.name,
        )

    def since(self, score: float, *, limit: int = 1000) -> tuple[Scored, ...]:
        """Return the members with at least this score, in ascending order. Takes a round trip.

        To read on, call it again with the last score returned; members with exactly that score are returned again. If
        more than ``limit`` members share a score, the rest of them can't be read this way.

        Args:
            score: The smallest score to return; ``-math.inf`` for all members.
            limit: How many members at most, from 1 to 10,000.
        """
        least = score if score == -inf else check_score(score, "since")
        return self._driver.run(
            read_scores(
                self._request.command(
                    "ZRANGEBYSCORE", "members", least, "+inf", "WITHSCORES", "LIMIT", 0, check_limit(limit)
                )
            ),
            self.name,
        )

    def remove(self, members: str | Iterable[str]) -> None:
        """Remove members. Those that are not there are ignored; a later `advance` adds them anew.

        Args:
            members: One member, or several.
        """
        encoded = [utf8(member, "a member") for member in ([members] if isinstance(members, str) else members)]
        self._driver.run(in_batches(lambda batch: self._request.command("ZREM", "members", *batch), encoded), self.name)

    def size(self) -> int:
        """Return the number of members. Takes a round trip."""
        return int(self._driver.run(reply_to(self._request.command("ZCARD", "members")), self.name))

    def clear(self) -> None:
        """Remove all members. Takes a round trip."""
        self._driver.run(reply_to(self._request.command("UNLINK", "members")), self.name)


name_publicly(globals(), "handfast")
