"""Autocompletion of the names in a guild, with two sentinels that all clients see, and WATCH to notice changes."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from redis.exceptions import WatchError

from handfast.classic.autocomplete import find_prefix_range, join_guild, leave_guild
from handfast.classic.replies import text
from handfast.classic.watch.pipelines import require_watch, watching

__all__ = ["autocomplete_on_prefix", "find_prefix_range", "join_guild", "leave_guild"]


def autocomplete_on_prefix(conn: redis.Redis, guild: str, prefix: str) -> list[str]:
    """Return up to ten names of a guild that begin with a prefix.

    Args:
        conn: The client.
        guild: The guild.
        prefix: The prefix; the empty one matches all names.

    Returns:
        The first ten of these names at most, sorted by their bytes.

    """
    require_watch(conn)
    key, identifier = f"members:{guild}", secrets.token_hex(16)
    sentinels = [f"{edge}{identifier}" for edge in find_prefix_range(prefix)]
    conn.zadd(key, dict.fromkeys(sentinels, 0))
    with watching(conn) as pipe:
        while True:
            try:
                pipe.watch(key)
                ranks: list[Any] = [pipe.zrank(key, sentinel) for sentinel in sentinels]
                if None in ranks:
                    return []  # another client has deleted the guild
                first, last = ranks
                count = min(10, last - first - 1)
                pipe.multi()
                pipe.zrem(key, *sentinels)
                if count > 0:  # ZRANGE would count a negative index from the end
                    pipe.zrange(key, first, first + count - 1)
                _, *found = pipe.execute()
            except WatchError:
                continue
            return [name for names in found for name in map(text, names) if "{" not in name]
