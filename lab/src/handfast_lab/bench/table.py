"""The results as tables for the terminal, 100 columns wide, and narrower ones of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from handfast_lab.bench.cluster import Frames, SpreadRow
from handfast_lab.bench.contenders import HANDFAST, LOCKS, SEMAPHORES, TASK_LOCKS
from handfast_lab.bench.crowd import Crowd, ScriptTimes, inversions
from handfast_lab.bench.figures import DISTINCT, FLOOR, ONE, Case, Row
from handfast_lab.bench.handoffs import Handoff
from handfast_lab.bench.limiting import AskingRow, LineRow
from handfast_lab.bench.limiting import Memory as LimiterMemory
from handfast_lab.bench.memory import CostRow
from handfast_lab.bench.stampedes import StampedeRow

__all__ = [
    "Cells",
    "asking_table",
    "blocks",
    "cost_table",
    "crowd_table",
    "fitted",
    "frames_table",
    "from_to",
    "handoff_table",
    "lines_table",
    "lock_table",
    "memory_table",
    "ownership_table",
    "script_table",
    "semaphore_table",
    "spread_table",
    "tasks_table",
]

Cells = Mapping[str, Callable[[Row], str]]
"""The text of each column, except the first two."""


def lock_table(rows: Sequence[Row], title: str) -> Table:
    """One block for each client count. Handoffs are p50/p99."""
    return blocks(rows, [], order=list(LOCKS), first="clients", cells=LOCK, title=title)


def handoff_table(rows: Iterable[Handoff], title: str) -> Table:
    """What an acquire and its release cost: one row for each contender."""
    columns = "commands", "received", "bytes", "sent", "bytes", "client wakes", "server wakes"
    grid = _grid(title, ("contender",), columns)
    for row in rows:
        received, sent = (row.reads, row.bytes_received), (row.writes, row.bytes_sent)
        messages = [text for count, size in (received, sent) for text in (f"{count:.2f}", f"{size:,.0f}")]
        wakes = f"{row.client_wakeups:.2f}", f"{row.server_wakeups:.2f}"
        grid.add_row(row.contender, f"{row.commands:.1f}", *messages, *wakes, style=_style(row.contender))
    return grid


def semaphore_table(rows: Sequence[Row], failed: Sequence[Case], title: str) -> Table:
    """One block for each client count."""
    return blocks(rows, failed, order=list(SEMAPHORES), first="clients", cells=SEMAPHORE, title=title)


def tasks_table(rows: Sequence[Row], failed: Sequence[Case], setting: str, title: str) -> Table:
    """One block for each number of tasks, in one setting; cases in ``failed`` had no error-free round."""
    mine = [row for row in rows if row.setting == setting]
    lost = [case for case in failed if case.setting == setting]
    return blocks(mine, lost, order=[*TASK_LOCKS, FLOOR], first="tasks", cells=TASKS[setting], title=title)


def cost_table(rows: Sequence[CostRow], title: str) -> Table:
    """The cost of a waiter: one row for each contender."""
    grid = _grid(title, ("contender",), ("waiters", "bytes each", "connections"))
    for row in sorted(rows, key=lambda row: list(TASK_LOCKS).index(row.contender)):
        cells = f"{row.waiters:,}", _or_dash(row.bytes_per_waiter, ",.0f"), f"{row.connections:,.0f}"
        grid.add_row(row.contender, *cells, style=_style(row.contender))
    return grid


def crowd_table(crowd: Crowd, waiters: int, title: str) -> Table:
    """One row for the whole run."""
    columns = "waiters", "got in", "inversions", "seconds", "acquires/s", "bytes each", "connections"
    grid = _grid(title, (), columns)
    grid.add_row(
        f"{waiters:,}",
        f"{len(crowd.order):,}",
        f"{inversions(crowd.order):,}",
        f"{crowd.seconds:.2f}",
        f"{len(crowd.order) / crowd.seconds:,.0f}",
        _or_dash(None if crowd.grown is None else crowd.grown / waiters, ",.0f"),
        f"{crowd.connections:,}",
    )
    return grid


def ownership_table(figures: Sequence[Mapping[str, Any]], title: str) -> Table:
    """A row for each measurement; of a spread the number, the median, the 99th percentile and the maximum."""
    grid = _grid(title, (), [name.replace("_", " ") for name in figures[0]])
    for found in figures:
        cells = (
            " / ".join(map(str, cell.values())) if isinstance(cell, Mapping) else str(cell) for cell in found.values()
        )
        grid.add_row(*cells)
    return grid


def script_table(found: Iterable[ScriptTimes]) -> Table:
    """One row for each script."""
    grid = _grid("Time within the server, µs", ("script",), ("calls", "p50", "p99", "p99.9", "longest"))
    for one in found:
        grid.add_row(
            one.script, f"{one.calls:,}", *(f"{time:,.0f}" for time in (one.p50, one.p99, one.p999, one.longest))
        )
    return grid


def spread_table(rows: Iterable[SpreadRow], title: str) -> Table:
    """One block for each load. CPU times are in microseconds."""
    costs = "client", "servers", "busiest", "conns"
    grid = _grid(title, ("load", "place"), ("cycles/s", "min-max", "x server", *costs))
    for load, block in groupby(rows, key=lambda row: row.load):
        for place, row in enumerate(block):
            rates = f"{row.rate:,.0f}", from_to(row.slowest, row.fastest), _or_dash(row.to_server, ".2f")
            times = (f"{time:.1f}" for time in (row.client_us, row.server_us, row.busiest_us))
            grid.add_row("" if place else load, row.place, *rates, *times, f"{row.connections:.1f}")
        grid.add_section()
    return grid


def frames_table(found: Iterable[Frames], title: str) -> Table:
    """One row for each API and place."""
    grid = _grid(title, ("API", "place"), ("acquire", "release"))
    for one in found:
        grid.add_row(one.api, one.place, str(one.acquire), str(one.release))
    return grid


def asking_table(rows: Iterable[AskingRow], title: str) -> Table:
    """One block for each setting and number of processes. The CPU time of a call on the server is in microseconds."""
    grid = _grid(title, ("calls are", "clients", "contender"), ("calls/s", "min-max", "x GCRA", "server, µs"))
    for (setting, clients), block in groupby(rows, key=lambda row: (row.setting, row.clients)):
        for number, row in enumerate(block):
            figures = f"{row.rate:,.0f}", from_to(row.slowest, row.fastest), _or_dash(row.to_base, ".2f")
            heads = ("", "") if number else (setting, str(clients))
            grid.add_row(*heads, row.contender, *figures, f"{row.server_us:.1f}", style=_style(row.contender))
        grid.add_section()
    return grid


def lines_table(rows: Iterable[LineRow], title: str) -> Table:
    """One row for each contender that waits."""
    grid = _grid(title, ("contender",), ("waiters", "s over shortest", "inversions", "of pairs", "calls each"))
    for row in rows:
        figures = f"{row.over_s:.2f}", f"{row.inversions:,}", f"{row.pairs:,}", f"{row.calls:.1f}"
        grid.add_row(row.contender, f"{row.waiters:,}", *figures, style=_style(row.contender))
    return grid


def memory_table(found: Iterable[LimiterMemory], title: str) -> Table:
    """One row for each contender and number of admissions."""
    grid = _grid(title, ("contender",), ("admissions", "bytes", "bytes each"))
    for one in found:
        figures = f"{one.admissions:,}", f"{one.bytes:,}", f"{one.bytes / one.admissions:,.1f}"
        grid.add_row(one.contender, *figures, style=_style(one.contender))
    return grid


def stampedes_table(rows: Iterable[StampedeRow], title: str) -> Table:
    """One row for each contender."""
    figures = "runs", "last answer, ms", "commands each", "server each, us", "found/s", "bytes"
    grid = _grid(title, ("contender",), figures)
    for row in rows:
        runs = f"{row.fewest}" if row.fewest == row.most else f"{row.fewest}-{row.most}"
        costs = f"{row.last_ms:,.0f}", f"{row.commands:,.1f}", f"{row.server_us:,.0f}", f"{row.found:,.0f}"
        grid.add_row(row.contender, runs, *costs, f"{row.bytes:,}", style=_style(row.contender))
    return grid


def blocks(
    rows: Sequence[Row], failed: Sequence[Case], *, order: list[str], first: str, cells: Cells, title: str
) -> Table:
    """One block for each number of clients, its contenders in this order; cases in ``failed`` have no figures."""
    grid = _grid(title, (), (first,))
    grid.add_column("contender", no_wrap=True)
    for column in cells:
        grid.add_column(column, justify="right", no_wrap=True)
    lines = [
        (row.clients, order.index(row.contender), row.contender, [cell(row) for cell in cells.values()]) for row in rows
    ]
    lines += [(case.clients, order.index(case.contender), case.contender, ["failed"]) for case in failed]
    for clients, block in groupby(sorted(lines), key=lambda line: line[0]):
        for place, (_, _, contender, texts) in enumerate(block):
            grid.add_row("" if place else str(clients), contender, *texts, style=_style(contender))
        grid.add_section()
    return grid


def fitted(grid: Table, width: int) -> tuple[Table, list[str]]:
    """Return a table that fits that width, and the columns that it leaves out, from the last one on.

    A table of one row is turned on its side instead. No figure is ever shortened.
    """
    left_out: list[str] = []
    while _width(grid) > width:
        if grid.row_count == 1:
            turned = _grid("", ("",), ("",))
            turned.show_header = False
            for column in grid.columns:
                turned.add_row(column.header, *column.cells)
            return turned, []
        left_out.insert(0, str(grid.columns.pop().header))
    return grid, left_out


def _width(grid: Table) -> int:
    console = Console(width=1000)
    return Measurement.get(console, console.options, grid).maximum


def _grid(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in texts:
        grid.add_column(column, no_wrap=True)
    for column in numbers:
        grid.add_column(column, justify="right", no_wrap=True)
    return grid


def _style(contender: str) -> str:
    return "bold" if contender == HANDFAST else ""


def _span(row: Row) -> str:
    return from_to(row.slowest, row.fastest)


def from_to(slowest: float, fastest: float) -> str:
    """Format the spread of a rate."""
    if fastest < 1000:
        return f"{slowest:.0f}-{fastest:.0f}"
    form = ".1f" if fastest < 99_950 else ".0f"
    return f"{slowest / 1000:{form}}-{fastest / 1000:{form}}k"


def _handoff(row: Row) -> str:
    return f"{_time(row.handoff_p50_us)}/{_time(row.handoff_p99_us)}"


def _time(microseconds: float | None) -> str:
    """Format microseconds; as milliseconds if the text would be too wide for the table."""
    if microseconds is None or microseconds < 10_000:
        return _or_dash(microseconds, ".0f")
    return f"{microseconds / 1000:.0f}ms"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _of_many(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    """Show a dash for a single client, for which the figure has no meaning."""
    return lambda row: "-" if row.clients == 1 else cell(row)


RATE: Cells = {"acquires/s": lambda row: f"{row.rate:,.0f}", "min-max": _span}
SHARING: Cells = {"fairness": _of_many(lambda row: f"{row.fairness:.2f}"), "handoff µs": _of_many(_handoff)}
TO_FLOOR: Cells = {"x floor": lambda row: _or_dash(row.to_floor, ".2f")}
OF_TASKS: Cells = {
    "conns": lambda row: _or_dash(row.connections, ",.0f"),
    **TO_FLOOR,
    "x redis": lambda row: _or_dash(row.to_redis, ".2f"),
}
LOCK: Cells = {
    "tries/s": lambda row: f"{row.tries:,.0f}",
    **RATE,
    **SHARING,
    **TO_FLOOR,
    "x Lua": lambda row: _or_dash(row.to_classic, ".2f"),
}
SEMAPHORE: Cells = {
    "tries/s": lambda row: f"{row.tries:,.0f}",
    "permits/s": lambda row: f"{row.rate:,.0f}",
    "min-max": _span,
    "fairness": _of_many(lambda row: f"{row.fairness:.2f}"),
    "over limit": lambda row: f"{row.violations:,}",
    **TO_FLOOR,
    "x Lua": lambda row: _or_dash(row.to_classic, ".2f"),
}
TASKS: Mapping[str, Cells] = {DISTINCT: {**RATE, **OF_TASKS}, ONE: {**RATE, **SHARING, **OF_TASKS}}
