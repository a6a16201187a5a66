"""The listings without scripts: single commands, SETNX, or WATCH, MULTI and EXEC.

They have the names, signatures and keys of `handfast.classic`, and the same arguments and results. They take more round
trips than the scripts. The loops with WATCH start over after each concurrent change, without a limit. If a client dies
between two commands, the first part of its work remains.
"""

from __future__ import annotations

from handfast._naming import name_publicly
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

name_publicly(globals())
