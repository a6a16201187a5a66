"""A ZADD that only raises scores, after an article of 2012, when no command could.

Since Redis 6.2, ``ZADD … GT`` does this, and returns how many members were added too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import redis

from handfast.classic.script import load_file

__all__ = ["zadd_unless_smaller"]

CHUNK = 10_000
"""Most members in one call of the script."""

_raise = load_file("scores_raise")


def zadd_unless_smaller(conn: redis.Redis, key: str, scores: Mapping[str, float] | Mapping[bytes, float]) -> int:
    """Set scores, each only if the member is missing or has a smaller score.

    Flaws: the script sends two commands per member and blocks the server for that time. More than 10,000 members take several
    calls, which are not atomic together. The result does not say how many scores were raised or were too small. If a reply is
    lost and redis-py sends the command again, members that the first call added are not counted.

    Use instead: ``hf.scores(name).advance(scores)``, which works in short calls and counts all three exactly.

    Args:
        conn: The client.
        key: The key of the ZSET.
        scores: The scores by member.

    Returns:
        How many members were added.

    Raises:
        ValueError: A score is not a number. Nothing was sent.

    """
    parts: list[str | bytes | float] = []
    for member, score in scores.items():
        number = float(score)
        if math.isnan(number):
            raise ValueError(f"the score of {member!r} is not a number")
        parts += (number, member)
    return sum(_raise(conn, [key], parts[start : start + 2 * CHUNK]) for start in range(0, len(parts), 2 * CHUNK))
