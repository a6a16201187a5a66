"""Autocompletion of the names in a guild, in one script.

All names have score 0 in the ZSET ``members:<guild>``, which sorts them by their bytes. Two sentinels, added before and after
the names with the prefix, mark their range. (Since 2.8.9 Redis has ZRANGEBYLEX, which needs no sentinels and writes nothing.)
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

    Flaws: a name with ``{`` is accepted and never found.

    Use instead: ``hf.autocomplete(guild).add(user)``.

    Args:
        conn: The client.
        guild: The guild.
        user: The name.

    """
    conn.zadd(f"members:{guild}", {text(user): 0})


def leave_guild(conn: redis.Redis, guild: str, user: str | bytes) -> None:
    """Remove a name from a guild.

    Use instead: ``hf.autocomplete(guild).remove(user)``.

    Args:
        conn: The client.
        guild: The guild.
        user: The name.

    """
    conn.zrem(f"members:{guild}", user)


def find_prefix_range(prefix: str) -> tuple[str, str]:
    """Return strings that sort before and after the names with the prefix, for names of lower-case ASCII letters.

    Before them: the prefix with its last letter replaced by the preceding one, and ``{``. After them: the prefix and ``{``.
    """
    last = bisect_left(ALPHABET, prefix[-1:])
    return f"{prefix[:-1]}{ALPHABET[max(last - 1, 0)]}{{", f"{prefix}{{"


def autocomplete_on_prefix(conn: redis.Redis, guild: str, prefix: str) -> list[str]:
    """Return up to ten names of a guild that begin with a prefix.

    Flaws: this read writes, so neither a replica nor a user with read-only rights can run it. Names with ``{`` are dropped
    but count among the ten. Only lower-case ASCII letters work:

    - a prefix that ends with a character before ``a`` (a capital letter, a digit, a blank) finds nothing;
    - a prefix that ends with a character after ``z`` (any beyond ASCII) also finds names that do not begin with it;
    - a name with such a character right after the prefix is not found, but is found for the next letter: of the names "ié"
      and "jé", the prefix "j" finds the first.

    Use instead: ``hf.autocomplete(guild).complete(prefix)``, which reads once, writes nothing and accepts any Unicode.

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
