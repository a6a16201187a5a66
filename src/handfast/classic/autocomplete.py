"""Autocompletion of the names in a guild, in one script.

All names have score 0 in the ZSET ``members:<guild>``, which sorts them by their bytes. Two sentinels, added before and
after the names with the prefix, mark their range. (Since 2.8.9 Redis has ZRANGEBYLEX, which needs no sentinels and
writes nothing.)
"""

from __future__ import annotations

import secrets
from bisect import bisect_left

import redis

from handfast.classic.replies import text
from handfast.classic.script import load_file

__all__ = ["autocomplete_on_prefix", "find_prefix_range", "join_guild", "leave_guild"]

ALPHABET = "`abcdefghijklmnopqrstuvwxyz{"
"""The letters of names, between the two characters that surround them in ASCII."""

_complete = load_file("guild_complete")


def join_guild(conn: redis.Redis, guild: str, user: str | bytes) -> None:
    """Add a name to a guild.

    Args:
        conn: The client.
        guild: The guild.
        user: The name.

    """
    conn.zadd(f"members:{guild}", {text(user): 0})


def leave_guild(conn: redis.Redis, guild: str, user: str | bytes) -> None:
    """Remove a name from a guild.

    Args:
        conn: The client.
        guild: The guild.
        user: The name.

    """
    conn.zrem(f"members:{guild}", user)


def find_prefix_range(prefix: str) -> tuple[str, str]:
    """Return strings that sort before and after the names with the prefix, for names of lower-case ASCII letters.

    Before them: the prefix with the last letter replaced by the preceding letter, and ``{``. After them: the prefix and
    ``{``.
    """
    last = bisect_left(ALPHABET, prefix[-1:])
    return f"{prefix[:-1]}{ALPHABET[max(last - 1, 0)]}{{", f"{prefix}{{"


def autocomplete_on_prefix(conn: redis.Redis, guild: str, prefix: str) -> list[str]:
    """Return up to ten names of a guild that begin with a prefix.

    Args:
        conn: The client.
        guild: The guild.
        prefix: The prefix; the empty one matches all names.

    Returns:
        The first ten of these names at most, sorted by their bytes.

    """
    identifier = secrets.token_hex(16)
    sentinels = [f"{edge}{identifier}" for edge in find_prefix_range(prefix)]
    names = map(text, _complete(conn, [f"members:{guild}"], sentinels))
    return [name for name in names if "{" not in name]
