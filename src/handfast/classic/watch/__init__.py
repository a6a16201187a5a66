"""The first forms: one command after the other, with SETNX, or with WATCH, MULTI and EXEC where one must see first.

The same names, signatures and keys as in `handfast.classic`. They cost more round trips than the scripts. The loops with
WATCH start over when somebody else was faster, as often as that happens: none has a limit. And where a client dies
between two commands, its half of the work stays.
"""

from __future__ import annotations

from handfast.classic.watch.autocomplete import autocomplete_on_prefix, join_guild, leave_guild
from handfast.classic.watch.locks import acquire_lock_with_timeout, release_lock
from handfast.classic.watch.market import list_item, purchase_item
from handfast.classic.watch.semaphores import (
    acquire_fair_semaphore,
    acquire_semaphore,
    acquire_semaphore_with_lock,
    refresh_fair_semaphore,
    release_fair_semaphore,
    release_semaphore,
)

__all__ = [
    "acquire_fair_semaphore",
    "acquire_lock_with_timeout",
    "acquire_semaphore",
    "acquire_semaphore_with_lock",
    "autocomplete_on_prefix",
    "join_guild",
    "leave_guild",
    "list_item",
    "purchase_item",
    "refresh_fair_semaphore",
    "release_fair_semaphore",
    "release_lock",
    "release_semaphore",
]
