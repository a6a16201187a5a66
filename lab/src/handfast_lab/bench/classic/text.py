"""The tables for the terminal, and the number formats used everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table as Grid

from handfast_lab.bench.classic.published import PUBLISHED, SECONDS
from handfast_lab.bench.classic.tables import Table
from handfast_lab.bench.figures import Row
from handfast_lab.bench.table import Cells, blocks, from_to

__all__ = ["classic_table", "in_order", "number", "published_of", "total"]


def classic_table(table: Table, rows: Sequence[Row], title: str) -> Grid:
    """One block for each client count."""
    order = list(table.workload.contenders)
    mine = in_order(table, rows)
    return blocks(mine, [], order=order, first="clients", cells=_columns(table, mine), title=title)


def in_order(table: Table, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of this table, ordered by clients and then by contender."""
    order = list(table.workload.contenders)
    mine = [row for row in rows if row.setting == table.name]
    return sorted(mine, key=lambda row: (row.clients, order.index(row.contender)))


def _columns(table: Table, rows: Sequence[Row]) -> Cells:
    """Return the columns that apply to this table."""
    cells: dict[str, Callable[[Row], str]] = {
        "tries": lambda row: total(row, row.tries),
        table.success: lambda row: total(row, row.rate),
        "a second": lambda row: number(row.rate),
        "min-max": lambda row: "-" if row.rounds == 1 else from_to(row.slowest, row.fastest),
        "retries": lambda row: total(row, row.retries),
        "x first": lambda row: "-" if row.to_first is None else f"{row.to_first:.2f}",
    }
    if (found := PUBLISHED.get(table.name)) is not None:
        as_long = all(abs(row.seconds - SECONDS) < 0.001 for row in rows)
        if not found.timed:
            cells["published"] = lambda row: published_of(row, 1)
        elif as_long:
            cells[f"published, {SECONDS:g} s"] = lambda row: published_of(row, 1)
        else:
            cells["published, 1 s"] = lambda row: published_of(row, 1 / SECONDS)
    return cells


def published_of(row: Row, scale: float) -> str:
    """Return the published figures of this row, multiplied by ``scale``: tries / successes, or successes alone."""
    one = PUBLISHED[row.setting].figures.get((row.contender, row.clients))
    if one is None:
        return "-"
    tries = "" if one.tries is None else f"{number(one.tries * scale)} / "
    return tries + number(one.successes * scale)


def total(row: Row, per_second: float) -> str:
    """Format the number of events in one measurement, of which there were so many per second."""
    return number(per_second * row.seconds)


def number(value: float) -> str:
    """Format as a whole number with thousands separators."""
    return f"{value:,.0f}"
