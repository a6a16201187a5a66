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
    "Each client takes the lock, waiting as long as it takes, and releases it at once. A try is each time that it asks the "
    "server for the lock. The listings poll every millisecond; Handfast waits in line.",
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
    "form starts over when anybody else wrote meanwhile; Handfast reads once and writes nothing.",
    guilds.Guilds(),
)
"""``autocomplete_on_prefix``, and ``hf.autocomplete``."""

SEMAPHORES = Table(
    "semaphores",
    f"One semaphore with {LIMIT} places",
    "acquires",
    "tries",
    f"Each client takes one of {LIMIT} places, waiting as long as it takes, and gives it up at once. A try is each time "
    "that it asks. The listings ask again after 1 ms; Handfast waits in line. The fair form ranks by a counter and closes "
    "its race with a lock, for which it waits 10 ms at most. The first form's places may be stolen, here by two clients "
    "whose commands arrive in another order than their clocks were read; that is counted and told.",
    Contention((FIRST, FAIR, LUA, HANDFAST), permits=LIMIT),
    lenient=LENIENT,
)
"""``acquire_semaphore`` in its three forms, and ``hf.semaphore``."""

MARKET = Table(
    "market",
    "One marketplace",
    "purchases",
    "retries",
    f"Each client is a user who owns {market.ITEMS} items at first. Again and again it lists one that it owns, looks at the "
    "whole market, picks an offer and tries to buy it (a try), which fails when somebody else was faster. The first form "
    "watches the market, so everybody's trade makes everybody else start over. After each measurement all items must be "
    "there once, and all funds.",
    market.Market(),
)
"""``list_item`` and ``purchase_item``. Handfast has no market in its API: see the examples for a modern one."""

TABLES: Mapping[str, Table] = {table.name: table for table in (LOCKS, AUTOCOMPLETE, SEMAPHORES, MARKET)}
"""By name."""
