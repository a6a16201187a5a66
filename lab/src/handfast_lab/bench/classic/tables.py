"""The published tables: one operation of the listings each, in every form.

They are measured and shown in this order. A new table needs a `Workload` and a `Table` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handfast_lab.bench.classic import guilds
from handfast_lab.bench.contenders import HANDFAST
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import FIRST, LUA
from handfast_lab.bench.workload import Workload

__all__ = ["TABLES", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """One operation."""

    name: str
    title: str
    success: str
    """The noun for successes, in the plural."""
    workload: Workload


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

TABLES: Mapping[str, Table] = {table.name: table for table in (LOCKS, AUTOCOMPLETE)}
"""By name."""
