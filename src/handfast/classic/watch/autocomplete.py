"""Completing names within a guild, with two sentinels that everybody can see, and WATCH to notice when they have moved."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from redis.exceptions import WatchError

from handfast.classic.autocomplete import find_prefix_range, join_guild, leave_guild
from handfast.classic.replies import text

__all__ = ["autocomplete_on_prefix", "find_prefix_range", "join_guild", "leave_guild"]


def autocomplete_on_prefix(conn: redis.Redis, guild: str, prefix: str) -> list[str]:
    """At most ten names of the guild that begin with the prefix, in their order; with the empty one, the first ten.

    Flaws: whatever happens to the guild between WATCH and EXEC makes it start over, other completions included, so the
    more clients ask, the less each of them gets. The sentinels of others count among the ten, and are dropped. Who dies
    in the middle leaves its sentinels for ever. At best it takes five round trips. And all of the Lua form's flaws.
    Instead: ``hf.autocomplete(guild).complete(prefix)``.
    """
    key, identifier = f"members:{guild}", secrets.token_hex(16)
    sentinels = [f"{edge}{identifier}" for edge in find_prefix_range(prefix)]
    conn.zadd(key, dict.fromkeys(sentinels, 0))
    with conn.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)  # type: ignore[no-untyped-call]  # the client library leaves it untyped
                ranks: list[Any] = [pipe.zrank(key, sentinel) for sentinel in sentinels]
                if None in ranks:
                    return []  # somebody has removed the guild meanwhile
                first, last = ranks
                count = min(10, last - first - 1)
                pipe.multi()
                pipe.zrem(key, *sentinels)
                if count > 0:  # else ZRANGE would count a last place below 0 from the end
                    pipe.zrange(key, first, first + count - 1)
                _, *found = pipe.execute()
            except WatchError:
                continue
            return [name for names in found for name in map(text, names) if "{" not in name]
