"""A ZADD that only moves scores forward, after a note from 2012.

When it was written no command could. Since 6.2 ``ZADD … GT`` can, and tells how many were added as well; so what is left
of it is the name that people know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import redis

from handfast.classic.script import load_file

__all__ = ["zadd_unless_smaller"]

PIECE = 10_000
"""Members in one call of the script."""

_raise = load_file("scores_raise")


def zadd_unless_smaller(conn: redis.Redis, key: str, scores: Mapping[str, float] | Mapping[bytes, float]) -> int:
    """Set these scores where the member is missing or its score is smaller; how many members were added.

    Raises ValueError, before anything is sent, for what is no number.

    Flaws: two commands for each member, and the server does nothing else meanwhile. Above 10,000 members it takes several
    calls, which are not one step: others see the first ones moved before the last ones are. One learns neither how many
    were moved nor how many came too late. When a reply gets lost and redis-py asks again, those that the first time
    added are not counted.
    Instead: ``hf.scores(name).advance(scores)``, in short pieces, with exact counts of all three.
    """
    parts: list[str | bytes | float] = []
    for member, score in scores.items():
        number = float(score)
        if math.isnan(number):
            raise ValueError(f"the score of {member!r} is no number")
        parts += (number, member)
    return sum(_raise(conn, [key], parts[start : start + 2 * PIECE]) for start in range(0, len(parts), 2 * PIECE))
