"""The results as people read them: one block for each client count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table

from holdfast.bench.contenders import CONTENDERS
from holdfast.bench.figures import Row

__all__ = ["table"]

COLUMNS = ("tries/s", "acquires/s", "min-max", "fairness", "handoff µs", "x floor", "x Lua")


def table(rows: Sequence[Row], title: str) -> Table:
    """A table that fits 100 columns. The handoff is given as p50/p99."""
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("clients", justify="right", no_wrap=True)
    grid.add_column("contender", no_wrap=True)
    for column in COLUMNS:
        grid.add_column(column, justify="right", no_wrap=True)
    order = list(CONTENDERS)
    rows = sorted(rows, key=lambda row: (row.clients, order.index(row.contender)))
    for clients, block in groupby(rows, key=lambda row: row.clients):
        for place, row in enumerate(block):
            grid.add_row(
                "" if place else str(clients), *_cells(row), style="bold" if row.contender == "holdfast" else ""
            )
        grid.add_section()
    return grid


def _cells(row: Row) -> list[str]:
    return [
        row.contender,
        f"{row.tries:,.0f}",
        f"{row.rate:,.0f}",
        f"{row.slowest / 1000:.1f}-{row.fastest / 1000:.1f}k",
        "-" if row.clients == 1 else f"{row.fairness:.2f}",
        "-" if row.clients == 1 else f"{_or_dash(row.handoff_p50_us, '.0f')}/{_or_dash(row.handoff_p99_us, '.0f')}",
        _or_dash(row.to_floor, ".2f"),
        _or_dash(row.to_classic, ".2f"),
    ]


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
