"""The published tables and two more: one operation of the listings each, in every form.

They are measured and shown in this order. A new table needs a `Workload` and a `Table` here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from handfast_lab.bench.classic import guilds, market
from handfast_lab.bench.contenders import FAIR, HANDFAST, LENIENT
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import FIRST, LUA
from handfast_lab.bench.workload import Workload

__all__ = ["LIMIT", "TABLES", "Table"]

LIMIT = 3
"""Permits of the measured semaphore."""


@dataclass(frozen=True, slots=True)
class Table:
    """One operation and its descriptions."""

    name: str
    title: str
    success: str
    """The noun for successes, in the plural."""
    effort: Literal["tries", "retries"]
    """The count that shows wasted work."""
    about: str
    """What a client does, for the report."""
    workload: Workload
    lenient: Collection[str] = ()
    """Contenders that are known to exceed the limit: reported, but not a failure."""


LOCKS = Table(
    "locks",
    "One lock",
    "acquires",
    "tries",
    "Each client acquires the lock, without a timeout, and releases it at once. A try is one request for the lock. The "
    "listings poll every millisecond; Handfast waits in a queue.",
    Contention((FIRST, LUA, HANDFAST)),
)
"""``acquire_lock_with_timeout`` and ``release_lock``, and ``hf.lock``."""

AUTOCOMPLETE = Table(
    "autocomplete",
    "Autocomplete in one guild",
    "calls",
    "retries",
    f"A guild has {guilds.MEMBERS:,} members. Each client completes one prefix after the other, of one to three letters, "
    "drawn from the names: at most ten names for each. The listings write two sentinels to find the place, and the first "
    "form starts over if another client wrote meanwhile; Handfast reads once and writes nothing.",
    guilds.Guilds(),
)
"""``autocomplete_on_prefix``, and ``hf.autocomplete``."""

SEMAPHORES = Table(
    "semaphores",
    f"One semaphore with {LIMIT} places",
    "acquires",
    "tries",
    f"Each client acquires one of {LIMIT} places, without a timeout, and releases it at once. A try is one request. The "
    "listings poll every millisecond; Handfast waits in a queue. The fair form ranks by a counter and closes its race with "
    "a lock, for which it waits 10 ms at most. The first form may exceed the limit if the commands of two clients arrive in "
    "another order than their clock readings; this is counted and reported.",
    Contention((FIRST, FAIR, LUA, HANDFAST), permits=LIMIT),
    lenient=LENIENT,
)
"""``acquire_semaphore`` in its three forms, and ``hf.semaphore``."""

MARKET = Table(
    "market",
    "One marketplace",
    "purchases",
    "retries",
    f"Each client is a user who initially owns {market.ITEMS} items. It repeatedly lists one of its items, reads the whole "
    "market, picks an offer and tries to buy it (a try), which fails if another client was faster. The first form watches "
    "the market, so each trade makes all other clients start over. After each measurement every item must exist exactly "
    "once, and the total of the funds must be unchanged.",
    market.Market(),
)
"""``list_item`` and ``purchase_item``. Handfast has no market in its API: see the examples for a modern one."""

TABLES: Mapping[str, Table] = {table.name: table for table in (LOCKS, AUTOCOMPLETE, SEMAPHORES, MARKET)}
"""By name."""
