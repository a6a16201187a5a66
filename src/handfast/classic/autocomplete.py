"""Completing names within a guild, in one script.

All names have score 0 in the ZSET ``members:<guild>``, so it has them in the order of their bytes. Two sentinels put in
around those that begin with the prefix tell where these are. (Since 2.8.9 Redis has ZRANGEBYLEX, which needs no sentinel
and writes nothing.)
"""

from __future__ import annotations

import secrets
from bisect import bisect_left

import redis

from handfast.classic.replies import text
from handfast.classic.script import load_file

__all__ = ["autocomplete_on_prefix", "find_prefix_range", "join_guild", "leave_guild"]

ALPHABET = "`abcdefghijklmnopqrstuvwxyz{"
"""What names are made of, between the two characters that stand beside it in ASCII."""

_complete = load_file("guild_complete")


def join_guild(conn: redis.Redis, guild: str, user: str | bytes) -> None:
    """Put a name in.

    Flaw: one with ``{`` is taken, and never found. Instead: ``hf.autocomplete(guild).add(user)``.
    """
    conn.zadd(f"members:{guild}", {text(user): 0})


def leave_guild(conn: redis.Redis, guild: str, user: str | bytes) -> None:
    """Take a name out. Instead: ``hf.autocomplete(guild).remove(user)``."""
    conn.zrem(f"members:{guild}", user)


def find_prefix_range(prefix: str) -> tuple[str, str]:
    """What stands before and behind the names that begin with the prefix, if those are of lower-case ASCII letters.

    Before them: the prefix with the letter before its last one, and ``{``. Behind them: the prefix and ``{``.
    """
    last = bisect_left(ALPHABET, prefix[-1:])
    return f"{prefix[:-1]}{ALPHABET[max(last - 1, 0)]}{{", f"{prefix}{{"


def autocomplete_on_prefix(conn: redis.Redis, guild: str, prefix: str) -> list[str]:
    """At most ten names of the guild that begin with the prefix, in their order; with the empty one, the first ten.

    Flaws: it writes to answer a read, so no replica can do it, and no user who may only read. Names with ``{`` are
    dropped, and count among the ten. It knows lower-case ASCII letters only:

    - a prefix that ends with a character before ``a`` (a capital letter, a digit, a blank) finds nothing;
    - one that ends with a character behind ``z`` (any beyond ASCII) also finds names that do not begin with it;
    - a name that goes on after the prefix with such a character is not found, but is for the next letter: of the names
      "ié" and "jé", the prefix "j" finds the first.

    Instead: ``hf.autocomplete(guild).complete(prefix)``, which reads once, writes nothing and takes any Unicode.
    """
    identifier = secrets.token_hex(16)
    sentinels = [f"{edge}{identifier}" for edge in find_prefix_range(prefix)]
    names = map(text, _complete(conn, [f"members:{guild}"], sentinels))
    return [name for name in names if "{" not in name]
