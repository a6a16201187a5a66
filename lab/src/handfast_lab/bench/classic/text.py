"""The tables for the terminal, 100 columns wide, and the number formats used everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.table import Table as Grid

from handfast_lab.bench.classic.client import OURS, Table
from handfast_lab.bench.classic.figures import TableRow
from handfast_lab.bench.classic.published import PUBLISHED, SECONDS

__all__ = ["classic_table", "in_order", "number", "published_of"]

Cells = Mapping[str, Callable[[TableRow], str]]
"""The text of each column, except the first two."""


def classic_table(table: Table, rows: Sequence[TableRow], title: str) -> Grid:
    """One block for each client count."""
    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("clients", justify="right", no_wrap=True)
    grid.add_column("contender", no_wrap=True)
    cells = _columns(table, rows)
    for column in cells:
        grid.add_column(column, justify="right", no_wrap=True)
    for clients, block in groupby(in_order(table, rows), key=lambda row: row.clients):
        for place, row in enumerate(block):
            texts = [cell(row) for cell in cells.values()]
            style = "bold" if row.contender == OURS else ""
            grid.add_row("" if place else str(clients), row.contender, *texts, style=style)
        grid.add_section()
    return grid


def in_order(table: Table, rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows of this table, ordered by clients and then by contender."""
    order = list(table.contenders)
    mine = [row for row in rows if row.table == table.name]
    return sorted(mine, key=lambda row: (row.clients, order.index(row.contender)))


def _columns(table: Table, rows: Sequence[TableRow]) -> Cells:
    """Return the columns that apply to this table."""
    cells: dict[str, Callable[[TableRow], str]] = {
        "tries": lambda row: number(row.tries),
        table.success: lambda row: number(row.successes),
        "a second": lambda row: number(row.rate),
        "min-max": _spread,
        "retries": lambda row: number(row.retries),
        "x first": lambda row: "-" if row.to_first is None else f"{row.to_first:.2f}",
    }
    if table.lenient:
        cells["over limit"] = lambda row: number(row.breaches)
    if (found := PUBLISHED.get(table.name)) is not None:
        as_long = all(abs(row.seconds - SECONDS) < 0.001 for row in rows)
        if not found.timed:
            cells["published"] = lambda row: published_of(row, 1)
        elif as_long:
            cells[f"published, {SECONDS:g} s"] = lambda row: published_of(row, 1)
        else:
            cells["published, 1 s"] = lambda row: published_of(row, 1 / SECONDS)
    return cells


def published_of(row: TableRow, scale: float) -> str:
    """Return the published figures of this row, multiplied by ``scale``: tries / successes, or successes alone."""
    one = PUBLISHED[row.table].figures.get((row.contender, row.clients))
    if one is None:
        return "-"
    tries = "" if one.tries is None else f"{number(one.tries * scale)} / "
    return tries + number(one.successes * scale)


def number(value: float | None) -> str:
    """Format as a whole number with thousands separators; a dash for None."""
    return "-" if value is None else f"{value:,.0f}"


def _spread(row: TableRow) -> str:
    """Format the spread of the rate; a dash for a single round."""
    if row.rounds == 1:
        return "-"
    smallest, largest = row.fewest / row.seconds, row.most / row.seconds
    if largest < 1000:
        return f"{smallest:.0f}-{largest:.0f}"
    form = ".1f" if largest < 99_950 else ".0f"
    return f"{smallest / 1000:{form}}-{largest / 1000:{form}}k"
