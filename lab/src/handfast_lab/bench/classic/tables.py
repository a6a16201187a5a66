"""All tables, by name and in the order in which they are measured and shown."""

from __future__ import annotations

from collections.abc import Mapping

from handfast_lab.bench.classic.client import Table
from handfast_lab.bench.classic.guilds import Guilds
from handfast_lab.bench.classic.locks import Locks
from handfast_lab.bench.classic.market import Market
from handfast_lab.bench.classic.semaphores import Semaphores

__all__ = ["CONTENDERS", "TABLES"]

TABLES: Mapping[str, Table] = {table.name: table for table in (Locks(), Guilds(), Semaphores(), Market())}

CONTENDERS = tuple(dict.fromkeys(contender for table in TABLES.values() for contender in table.contenders))
"""All contenders that appear in any table."""
