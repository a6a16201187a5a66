"""The classic listings: the functions that are often copied from "Redis in Action" and articles of that time.

They have the well-known names and signatures but were written anew. Programs can import them in place of a copy, and
``handfast bench`` measures against them. This package has the Lua versions of chapter 11; `handfast.classic.watch` has
the versions of chapter 6, with SETNX or WATCH/MULTI/EXEC. Both use the same keys, so a lock of one excludes the other.

``conn`` is a ``redis.Redis``, with or without ``decode_responses``; identifiers and names are returned as str. Errors
of redis-py propagate.

The flaws of each, and better alternatives, are on one page: docs/explanation/classic.md. All share one flaw:
redis-py sends a command again after a lost reply, and these functions cannot tell the second call from the first.
"""

from __future__ import annotations

from handfast._naming import name_publicly
from handfast.classic.autocomplete import autocomplete_on_prefix, join_guild, leave_guild
from handfast.classic.locks import acquire_lock_with_timeout, release_lock
from handfast.classic.market import list_item, purchase_item
from handfast.classic.scores import zadd_unless_smaller
from handfast.classic.script import LoadedScript, script_load
from handfast.classic.semaphores import acquire_semaphore, refresh_semaphore, release_semaphore

__all__ = [
    "LoadedScript",
    "acquire_lock_with_timeout",
    "acquire_semaphore",
    "autocomplete_on_prefix",
    "join_guild",
    "leave_guild",
    "list_item",
    "purchase_item",
    "refresh_semaphore",
    "release_lock",
    "release_semaphore",
    "script_load",
    "zadd_unless_smaller",
]

name_publicly(globals())
