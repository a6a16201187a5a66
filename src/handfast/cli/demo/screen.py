"""The output of the demo: animated on a terminal, otherwise the same text and the last state of each picture."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from typing import IO, Any, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from handfast.cli.demo.records import Finding

__all__ = ["Screen"]

_PADDING = re.compile(" +$", re.MULTILINE)

WIDEST = 100
"""Columns used at most: longer lines are hard to read."""


class Trimmed:
    """Standard output without the blanks that pad each line to its width: a pipe and a file need none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)

    def write(self, text: str) -> int:
        sys.stdout.write(_PADDING.sub("", text))
        return len(text)


class Screen:
    """Prints to standard output."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(
                errors="replace"
            )  # question marks instead of an error where the encoding lacks our characters
        file = None if terminal else cast("IO[str]", Trimmed())
        self._console = Console(force_terminal=terminal, highlight=False, file=file)
        self._console.width = min(self._console.width, WIDEST)
        self._moves = terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None

    def title(self, text: str) -> None:
        """Print a heading."""
        self._console.print()
        self._console.rule(Text(text, style="bold"), align="left", style="dim")

    def tell(self, text: str) -> None:
        """Print a paragraph of rich's markup."""
        self._console.print(Padding(Text.from_markup(text), (0, 2), expand=False))

    @contextlib.contextmanager
    def showing(self, picture: RenderableType) -> Iterator[None]:
        """Show a picture, which is redrawn by `refresh` and keeps its last state after the block."""
        self._console.print()
        if self._moves:
            with Live(picture, console=self._console, auto_refresh=False) as live:
                self._live = live
                yield
                self.refresh()
            self._live = None
        else:
            yield
            self._console.print(picture)
        self._console.print()

    def refresh(self) -> None:
        """Redraw the picture."""
        if self._live is not None:
            self._live.refresh()

    def summary(self, findings: Iterable[Finding]) -> None:
        """Print the table at the end."""
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("tried")
        table.add_column("seen")
        table.add_column("as promised")
        for finding in findings:
            table.add_row(finding.what, finding.seen, _MARKS[finding.held])
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))


_MARKS = {
    True: Text("✓ yes", style="bold green"),
    False: Text("✗ NO", style="bold red"),
    None: Text("no promise", style="dim"),
}
