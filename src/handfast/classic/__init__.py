"""The classic listings: the functions that people copy from "Redis in Action" and from notes of that time.

They are here under the names and signatures that people know, written afresh, for two reasons: whoever uses them can
import instead of copy, and `handfast bench` has something to be measured against. This package has the Lua forms of
chapter 11; `handfast.classic.watch` has the first forms of chapter 6, with SETNX or WATCH/MULTI/EXEC. A module there has
the name of its pair here, and both use the same keys, so old and new code exclude each other. ``conn`` is a
``redis.Redis``; with ``decode_responses`` on or off, identifiers and names come as str.

Each docstring says what is wrong with its function and what to use instead; ``hf`` is a `handfast.Handfast`. One flaw
they share: redis-py sends a command again when its reply got lost, and these functions cannot tell the second time
from the first.
"""

from __future__ import annotations

from handfast.classic.autocomplete import autocomplete_on_prefix, join_guild, leave_guild
from handfast.classic.locks import acquire_lock_with_timeout, release_lock
from handfast.classic.market import list_item, purchase_item
from handfast.classic.scores import zadd_unless_smaller
from handfast.classic.script import script_load
from handfast.classic.semaphores import acquire_semaphore, refresh_semaphore, release_semaphore

__all__ = [
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
