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
