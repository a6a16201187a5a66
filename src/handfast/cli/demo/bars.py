"""Progress bars with a caption, a number and a remark, in groups under a heading."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table

__all__ = ["Bar", "Bars"]


@dataclass(slots=True)
class Bar:
    """One bar. The caller changes its value."""

    caption: str
    total: int
    value: int = 0
    remark: str = ""


class Bars:
    """Bars below each other; a str is a heading."""

    def __init__(self, *rows: Bar | str) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=20)
        grid.add_column(width=max(10, min(options.max_width - 45, 60)))
        grid.add_column(width=4, justify="right")
        grid.add_column(width=17)
        for row in self._rows:
            if isinstance(row, str):
                grid.add_row(f"  {row}")
            else:
                bar = ProgressBar(row.total, row.value, complete_style="cyan", finished_style="green")
                grid.add_row(f"    {row.caption}", bar, str(row.value), row.remark)
        yield grid
