"""The published tables and two more: one operation of the listings each, in every form.

They are measured and shown in this order. A new table needs a `Workload` and a `Table` here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

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
    """One operation."""

    name: str
    title: str
    success: str
    """The noun for successes, in the plural."""
    workload: Workload
    lenient: Collection[str] = ()
    """Contenders that are known to exceed the limit: reported, but not a failure."""


LOCKS = Table(
    "locks",
    "One lock",
    "acquires",
    Contention((FIRST, LUA, HANDFAST)),
)
"""``acquire_lock_with_timeout`` and ``release_lock``, and ``hf.lock``: without a timeout, and released at once."""

AUTOCOMPLETE = Table(
    "autocomplete",
    "Autocomplete in one guild",
    "calls",
    guilds.Guilds(),
)
"""``autocomplete_on_prefix``, and ``hf.autocomplete``: prefixes of one to three letters, at most ten names for each."""

SEMAPHORES = Table(
    "semaphores",
    f"One semaphore with {LIMIT} places",
    "acquires",
    Contention((FIRST, FAIR, LUA, HANDFAST), permits=LIMIT),
    lenient=LENIENT,
)
"""``acquire_semaphore`` in its three forms, and ``hf.semaphore``. The fair form ranks by a counter and closes its race
with a lock, for which it waits 10 ms at most."""

MARKET = Table(
    "market",
    "One marketplace",
    "purchases",
    market.Market(),
)
"""``list_item`` and ``purchase_item``. Each client is a user who lists an item, reads the whole market and tries to buy
an offer, again and again. Afterwards every item must exist once, and the total of the funds be unchanged."""

TABLES: Mapping[str, Table] = {table.name: table for table in (LOCKS, AUTOCOMPLETE, SEMAPHORES, MARKET)}
"""By name."""
