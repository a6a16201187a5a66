"""A picture of who did what when: one line for each process, time runs to the right.

    process C   ·······━━━━━              got in 1st
    process A   ···········━━━━━          got in 2nd

States differ in their signs and not only in their colours, so that the picture can be read in a log file too.
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
    "frozen": ("≈", "cyan", "is frozen"),
    "dead": ("╌", "red", "is dead, its lease goes on"),
}
"""What a process may be doing: the sign, its style, and what it means."""

MARK = "✗"
"""Something happened to the process at that moment."""

NAME, REMARK = 13, 29
"""Columns for what stands left and right of the lines."""

WIDEST = 60
"""Columns of the longest lines."""


@dataclass(slots=True)
class _Lane:
    changes: list[tuple[float, str]] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    remark: str = ""

    def draw(self, since: float, until: float) -> tuple[str, str]:
        """The sign and style of one cell: the mark in it, else the state at its middle."""
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
    """Lanes by name, in the order in which they were first mentioned. ``seconds`` is how long a line is at least."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = monotonic()
        self._ended: float | None = None
        self._lanes: dict[str, _Lane] = {}

    def change(self, name: str, state: str, at: float | None = None) -> None:
        """From that moment on, or from now, the process does something else: one of `STATES`, or nothing (``""``)."""
        self._lane(name).changes.append((monotonic() if at is None else at, state))

    def mark(self, name: str, remark: str) -> None:
        """Something happens to the process right now."""
        self._lane(name).marks.append(monotonic())
        self.remark(name, f"[bold red]{remark}")

    def remark(self, name: str, text: str) -> None:
        """Write something behind a line. Understands rich's markup."""
        self._lane(name).remark = text

    def stop(self) -> None:
        """Let time stand still: the lines grow no more."""
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
