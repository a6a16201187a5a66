"""A timeline: one row for each process, time runs to the right.

    process C   ·······━━━━━              acquired as number 1
    process A   ···········━━━━━          acquired as number 2

Each state has its own character, so that the picture can be read in a log file too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

__all__ = ["Timeline"]

STATES = {
    "waits": ("·", "dim", "waits"),
    "holds": ("━", "bold green", "holds the lock"),
    "runs": ("━", "bold green", "makes it"),
    "frozen": ("≈", "cyan", "is frozen"),
    "dead": ("╌", "red", "is dead, its lease has not ended"),
}
"""The states of a process: the character, its style, and its meaning."""

MARK = "✗"
"""Marks an event of the process."""

NAME, REMARK = 13, 31
"""Columns left and right of the rows. The longest remark is that of `dying`, behind two blanks."""

WIDEST = 60
"""Columns of a row at most."""


@dataclass(slots=True)
class _Lane:
    changes: list[tuple[float, str]] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    remark: str = ""

    def draw(self, since: float, until: float) -> tuple[str, str]:
        """Return the character and style of one cell: the mark in it, else the state at its middle."""
        if any(since <= mark < until for mark in self.marks):
            return MARK, "bold red"
        state = ""
        for moment, then in self.changes:
            if moment > (since + until) / 2:
                break
            state = then
        sign, style, _ = STATES.get(state, (" ", "", ""))
        return sign, style


class Timeline:
    """Rows by name, in the order of their first change. ``seconds`` is the shortest time that a full row stands for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = monotonic()
        self._ended: float | None = None
        self._lanes: dict[str, _Lane] = {}

    def change(self, name: str, state: str, at: float | None = None) -> None:
        """Change the state of a process, at that moment or now, to one of `STATES` or to none (``""``)."""
        self._lane(name).changes.append((monotonic() if at is None else at, state))

    def mark(self, name: str, remark: str) -> None:
        """Mark an event of the process, now."""
        self._lane(name).marks.append(monotonic())
        self.remark(name, f"[bold red]{remark}")

    def remark(self, name: str, text: str) -> None:
        """Set the text behind a row, in rich's markup."""
        self._lane(name).remark = text

    def stop(self) -> None:
        """End the timeline: the rows stop growing."""
        self._ended = monotonic()

    def _lane(self, name: str) -> _Lane:
        return self._lanes.setdefault(name, _Lane())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(10, min(options.max_width - NAME - REMARK, WIDEST))
        until = self._ended or monotonic()
        cell = max(self._seconds, until - self._began) / width
        for name, lane in self._lanes.items():
            row = Text(f"  process {name}".ljust(NAME), no_wrap=True)
            for column in range(width):
                since = self._began + column * cell
                row.append(*(lane.draw(since, since + cell) if since <= until else " "))
            row.append("  ")
            row.append_text(Text.from_markup(lane.remark))
            row.rstrip()
            yield row
        yield self._legend()

    def _legend(self) -> Text:
        seen = {state for lane in self._lanes.values() for _, state in lane.changes}
        legend = Text(" " * NAME, style="dim", no_wrap=True)
        for state, (sign, _, meaning) in STATES.items():
            if state in seen:
                legend.append(f"{sign} {meaning}   ")
        legend.rstrip()
        return legend
