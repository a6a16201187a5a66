"""The frames of `handfast top`: lines of cells."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, log10
from typing import Any, Literal, NamedTuple, TypeAlias

from rich.cells import cell_len

from handfast._watch.live import Row, View
from handfast._watch.looker import Outage
from handfast._watch.problems import Problem
from handfast._watch.rows import Key, Level, gathered, is_full
from handfast._watch.thresholds import SILENT_S
from handfast.cli.colors import BLUE, BOLD, DIM, GREEN, MAGENTA, RED, YELLOW
from handfast.cli.durations import period, span
from handfast.cli.operate.table import printable
from handfast.cli.operate.words import text_of
from handfast.cli.top.cells import Cell, Line, cut, fit, span_cell
from handfast.cli.top.opened import opened
from handfast.records import RateStatus

__all__ = ["SORTS", "VIEWS", "Screen", "ViewName"]

ViewName: TypeAlias = Literal["names", "problems", "limits", "show", "keys"]
VIEWS: tuple[ViewName, ...] = ("names", "problems", "limits")
"""The views that show all; ``show`` is that of one name, and ``keys`` the list of keys."""

KEYS = {
    "j k arrows": "mark a name or a problem",
    "enter": "show the name",
    "esc": "go back",
    "/": "filter names",
    "s": "sort by another column",
    "w": "all problems",
    "l": "limiters",
    "f": "freeze the screen, to read",
    "r": "take the leases of the name",
    "h": "put the name on hold, or end the hold",
    "p": "pause the limiter, or resume it",
    "q": "quit",
}
"""The keys, and what they do."""

BARS = "▁▂▃▄▅▆▇"
"""How long a waiter has waited: the tallest bar, which leaves a gap to the line above, for an hour or more."""

LEVELS: dict[Level | None, str] = {None: "", "warning": YELLOW, "urgent": f"{BOLD};{RED}"}

SIGNS = {"urgent": ("!", RED), "warning": ("▲", YELLOW), "note": ("·", MAGENTA)}

NARROW, WIDE = 78, 104
"""The columns from which on there is a picture of each queue, and from which on all columns are shown."""

HELD_FROM, ENDS_FROM = 44, 52
"""The columns from which on there is room for how long a name is held, and for when its lease ends."""

MOST_NAME = 40
"""Columns of a name, before the picture of its queue grows."""

FIGURES = 22
"""Columns of the figures of a rate without a metric."""

MOST_GATES = 8
"""Permits in a picture."""


class Sort(NamedTuple):
    """An order of the names."""

    word: str
    head: str
    """The head of its column."""
    key: Callable[[Row], float | str]


SORTS = (
    Sort("queue", "QUEUE", lambda row: -row.facts.waiting),
    Sort("wait", "WAITED", lambda row: row.facts.waits_since or inf),
    Sort("held", "HELD", lambda row: row.facts.held_since or inf),
    Sort("grants", "/S", lambda row: -row.rate),
    Sort("name", "NAME", lambda row: row.name),
)


@dataclass
class Screen:
    """The state of the screen, from which it makes frames. It neither reads keys nor writes."""

    server: str
    """The namespace and the address, for the head."""
    view: View = field(default_factory=View)
    problems: Sequence[Problem] = ()
    shows: ViewName = "names"
    sort: Sort = SORTS[0]
    filter: str = ""
    marked: Key | None = None
    problem: str = ""
    """The id of the problem that is marked; empty if none is."""
    first: int = 0
    """The number of the first row, or of the first line of the problems, that is seen."""
    outage: Outage | None = None
    """Why nothing new is seen; None while looks succeed."""
    reason: str = ""
    """The same in words."""
    silent_for: float = 0.0
    """For how long the server has not answered, in seconds."""
    is_frozen: bool = False
    prompt: str | None = None
    """The prompt at the bottom; None without a prompt."""
    typed: str = ""
    note: str = ""
    """The message at the bottom until the next key."""

    def frame(self, columns: int, lines: int, now: float) -> list[Line]:
        """Return so many lines, for a moment of `time.monotonic`."""
        head = [self._title(columns, now), self._totals(columns), self._alarm(columns, now)]
        room = max(0, lines - len(head) - 1)
        makes = {
            "names": self._names,
            "problems": self._problems,
            "limits": self._limits,
            "show": self._show,
            "keys": self._keys,
        }
        body = makes[self.shows](columns, room, now)[:room]
        return [*head, *body, *([()] * (room - len(body))), self._foot(columns)][:lines]

    def rows(self) -> list[Row]:
        """Return the rows of the view that match the filter, in their order."""
        limits = self.shows == "limits"
        words = self.filter.lower().split()
        rows = [
            row
            for row in self.view.rows
            if row.face.has_rates == limits
            and (limits or not row.facts.is_idle)
            and all(word in _searched(row) for word in words)
        ]
        if limits:
            return sorted(rows, key=lambda row: (row.facts.rank, row.name))
        rows = gathered(rows)
        return sorted(rows, key=lambda row: (self.sort.key(row), row.facts.held_since or inf, row.name, row.kind))

    def seen(self, lines: int) -> list[Key]:
        """Return the names that are on a screen of so many lines."""
        if self.shows == "show":
            return [self.marked] if self.marked is not None else []
        if self.shows == "problems":
            return [one.where for one in self.problems[:lines] if one.where is not None]
        return [row.key for row in self.rows()[self.first : self.first + lines]]

    def marked_row(self) -> Row | None:
        """Return the row that is marked; None if none is, or if it is gone."""
        row = next((row for row in self.view.rows if row.key == self.marked), None)
        if row is None or not row.face.has_items:
            return row
        same = gathered([one for one in self.view.rows if one.kind == row.kind])
        return next((one for one in same if one.key == row.key), row)

    def move(self, by: int) -> None:
        """Mark the row, or the problem, that many further down."""
        keys: list[Any] = (
            [one.id for one in self.problems] if self.shows == "problems" else [row.key for row in self.rows()]
        )
        marked = self.problem if self.shows == "problems" else self.marked
        at = keys.index(marked) if marked in keys else -1 if by > 0 else 0
        found = keys[max(0, min(len(keys) - 1, at + by))] if keys else None
        if self.shows == "problems":
            self.problem = found or ""
        else:
            self.marked = found

    def open(self) -> None:
        """Show the name that is marked, or that of the marked problem."""
        if self.shows == "problems":
            self.marked = next((one.where for one in self.problems if one.id == self.problem), None)
        if self.marked_row() is not None:
            self.shows = "show"

    # --- head and foot

    def _title(self, columns: int, now: float) -> Line:
        if self.outage:
            word = "no look" if not self.outage.is_of_server else "no answer" if self.view.is_whole else "no server"
            state = Cell(word, f"{BOLD};{RED}")
        elif self.is_frozen:
            state = Cell("frozen", MAGENTA)
        else:
            state = Cell("live" if self.view.is_whole else "looking", GREEN)
        clock = time.strftime(" %H:%M:%S ", time.localtime(time.time() - (time.monotonic() - now)))
        name = " handfast"
        where = fit(f"  {printable(self.server)}", columns - len(name) - len(state.text) - len(clock) - 1)
        return [Cell(name, BOLD), Cell(where, DIM), Cell(" "), state, Cell(clock)]

    def _totals(self, columns: int) -> Line:
        view = self.view
        if not view.rows and not view.is_whole:
            return [Cell(" looking …", DIM)]
        mean = "-" if view.mean is None else f"{view.mean:.1f}s"
        figures = [
            (f"{view.held:>7,}", "held"),
            (f"{view.waiting:>6,}", "waiting"),
            (f"{view.rate:>7.1f}", "grants/s"),
            (f"{mean:>6}", "mean wait"),
            (f"{view.took * 1000:>5.0f}ms", "a look"),
        ]
        cells, used = list[Cell](), 0
        for number, word in figures:
            used += len(number) + len(word) + 3
            if used > columns:
                break
            cells += [Cell(f" {number}", BOLD), Cell(f" {word} ", DIM)]
        return cells

    def _alarm(self, columns: int, now: float) -> Line:
        if self.outage:
            what = "No answer" if self.outage.is_of_server else "No look has succeeded"
            text = f"{what} for {span(self.silent_for)}. What you see is old. {printable(self.reason)}"
            return [Cell(" ! ", f"{BOLD};{RED}"), Cell(cut(text, columns - 3), RED)]
        if not self.problems:
            return [Cell(" Nothing is wrong." if self.view.is_whole else "", GREEN)]
        if self.shows == "problems":
            return []
        first, more = self.problems[0], len(self.problems) - 1
        sign, color = SIGNS[first.level]
        rest = f"  w: {more} more " if more else " "
        text = fit(cut(text_of(first.says, now), columns - 3 - len(rest)), columns - 3 - len(rest))
        return [Cell(f" {sign} ", f"{BOLD};{color}"), Cell(text, color), Cell(rest, DIM)]

    def _foot(self, columns: int) -> Line:
        if self.prompt is not None:
            asked = f" {self.prompt} "
            typed = printable(self.typed)
            return [Cell(asked, BOLD), Cell(typed[-max(0, columns - len(asked) - 1) :]), Cell("█", DIM)]
        if self.note:
            return [Cell(cut(f" {printable(self.note)}", columns), BOLD)]
        found = f": {printable(self.filter)}" if self.filter else ""
        keys = {
            "names": f"q quit  j k  ⏎ show  / filter{found}  s sort: {self.sort.word}  w problems  l limits  ? keys",
            "show": "esc back  r release  h hold  f freeze  q quit",
            "problems": "esc back  j k  ⏎ show  l limits  f freeze  q quit",
            "keys": "esc back  q quit",
            "limits": f"esc back  j k  / filter{found}  p pause  w problems  f freeze  q quit",
        }
        return [Cell(cut(f" {keys[self.shows]}", columns), DIM)]

    # --- views

    def _names(self, columns: int, room: int, now: float) -> list[Line]:
        rows = self.rows()
        space = self._scroll(rows, room - 1)
        layout = _Layout.of(columns, [row.name for row in rows[self.first : self.first + space]])
        found: list[Line] = [self._heads(layout)]
        found += [self._row(row, layout, now) for row in rows[self.first : self.first + space]]
        return [*found, *self._rest(rows, space, "No name is held or waited for.")]

    def _heads(self, layout: _Layout) -> Line:
        cells = [Cell(" ")]
        for head, width, is_right in layout.heads():
            is_sorted = head == self.sort.head
            text = f"{head}↓" if is_sorted else head
            cells += [Cell(fit(text, width, right=is_right), f"{BOLD};{DIM}" if is_sorted else DIM), Cell(" ")]
        return cells

    def _row(self, row: Row, layout: _Layout, now: float) -> Line:
        facts = row.facts
        cells = [
            Cell("▌" if row.key == self.marked else " ", BLUE),
            Cell(fit(printable(row.name), layout.name), BOLD if facts.waiting else ""),
            Cell(" "),
        ]
        # The cells stand in the order of `_Layout.heads`, and
        # each optional one depends on the same flag there.
        if layout.is_wide:
            cells += [Cell(fit(row.kind, 9), DIM), Cell(" ")]
        who = text_of(row.who, now) or "-"
        style = MAGENTA if facts.stop is not None else "" if facts.holders else DIM
        cells += [Cell(fit(who, layout.who), style), Cell(" ")]
        if layout.has_held:
            cells += [Cell(span_cell(facts.held_since, now), LEVELS[row.held_level(now)]), Cell(" ")]
        if layout.has_ends:
            cells += [
                Cell(span_cell(now, facts.ends_at), MAGENTA if facts.stop is not None and not facts.holders else DIM),
                Cell(" "),
            ]
        cells += [Cell(fit(_number(facts.waiting), 6, right=True), BOLD), Cell(" ")]
        if layout.picture:
            cells += [*_queue(row, layout.picture), Cell(" ")]
        cells.append(Cell(span_cell(facts.waits_since, now), LEVELS[row.wait_level(now)]))
        if layout.is_wide:
            cells += [Cell(" "), Cell(fit(f"{row.rate:.1f}" if row.rate else "", 6, right=True), DIM)]
        return cells

    def _problems(self, columns: int, room: int, now: float) -> list[Line]:
        lines, starts = list[Line](), list[int]()
        for one in self.problems:
            starts.append(len(lines))
            sign, color = SIGNS[one.level]
            mark = Cell("▌" if one.id == self.problem else " ", BLUE)
            for number, text in enumerate(textwrap.wrap(text_of(one.says, now), max(20, columns - 4))):
                style = BOLD if one.level == "urgent" else ""
                lines.append([mark, Cell(f"{sign} " if number == 0 else "  ", f"{BOLD};{color}"), Cell(text, style)])
            means = " ".join(filter(None, (text_of(one.means, now), one.command)))
            lines += [[mark, Cell("  "), Cell(text, DIM)] for text in textwrap.wrap(means, max(20, columns - 4))]
        space = max(1, room - 1 - (len(lines) > room - 1))
        at = next((number for number, one in enumerate(self.problems) if one.id == self.problem), None)
        if at is not None:  # the marked one is seen in full, as far as there is room
            end = starts[at + 1] if at + 1 < len(starts) else len(lines)
            self.first = min(max(self.first, end - space), starts[at])
        self.first = max(0, min(self.first, len(lines) - space))
        found: list[Line] = [(), *lines[self.first : self.first + space]]
        if len(lines) > space:
            seen = sum(self.first <= start < self.first + space for start in starts)
            found.append([Cell(f" {seen} of {len(starts)} problems; j k move", DIM)])
        return found

    def _limits(self, columns: int, room: int, now: float) -> list[Line]:
        rows = self.rows()
        metrics = [rate.metric for row in rows for rate in row.facts.rates if rate.metric]
        figures = FIGURES + max((1 + len(metric) for metric in metrics), default=0)
        rest = max(12, columns - figures - 25)
        size = min(24, rest // 3)
        name = min(40, rest - size)
        queue, wait, pause = (
            fit(head, width, right=True) for head, width in (("QUEUE", 6), ("WAITED", 7), ("PAUSED", 7))
        )
        heads = f" {fit('LIMITER', name)} {fit('USED', size + figures)} {queue} {wait} {pause}"
        found: list[Line] = [[Cell(heads, DIM)]]
        space = self._scroll(rows, room - 1)
        for row in rows[self.first : self.first + space]:
            found += self._limiter(row, name, size, figures, now)
        return [*found[: room - 1], *self._rest(rows, space, "No limiter has admitted anything lately.")]

    def _limiter(self, row: Row, name: int, size: int, figures: int, now: float) -> Iterator[Line]:
        facts = row.facts
        for number, rate in enumerate(facts.rates or (None,)):
            mark = Cell("▌" if row.key == self.marked else " ", BLUE)
            cells = [mark, Cell(fit(printable(row.name) if number == 0 else "", name), BOLD), Cell(" ")]
            cells += _bar(rate, size, figures)
            if number == 0:
                cells += [Cell(" "), Cell(fit(_number(facts.waiting), 6, right=True), BOLD)]
                paused = None if facts.stop is None else facts.stop.until
                cells += [
                    Cell(" "),
                    Cell(span_cell(facts.waits_since, now)),
                    Cell(" "),
                    Cell(span_cell(now, paused), MAGENTA),
                ]
            yield cells

    def _show(self, columns: int, room: int, now: float) -> list[Line]:
        row = self.marked_row()
        gone = [Cell(" The server does not know this name any more.", DIM)]
        return [gone] if row is None else opened(row, columns, room, now)

    def _keys(self, _columns: int, _room: int, _now: float) -> list[Line]:
        return [(), *([Cell(f" {key:>10}  ", BOLD), Cell(text)] for key, text in KEYS.items())]

    def _scroll(self, rows: Sequence[Row], room: int) -> int:
        """Bring the marked row into view. Return how many rows fit."""
        space = room if len(rows) <= room else max(1, room - 1)
        at = next((number for number, row in enumerate(rows) if row.key == self.marked), None)
        if at is not None:
            self.first = min(max(self.first, at - space + 1), at)
        self.first = max(0, min(self.first, len(rows) - space))
        return space

    def _rest(self, rows: Sequence[Row], space: int, empty: str) -> list[Line]:
        if not rows:
            text = "No name matches; esc shows all." if self.filter else empty if self.view.is_whole else ""
            return [[Cell(f" {text}", DIM)]]
        if len(rows) <= space:
            return []
        last = min(len(rows), self.first + space)
        return [[Cell(f" {self.first + 1:,} to {last:,} of {len(rows):,}", DIM)]]


class _Layout(NamedTuple):
    """The widths of the columns that depend on the terminal's, and which columns there is room for."""

    is_wide: bool
    name: int
    who: int
    picture: int
    has_held: bool
    has_ends: bool

    @classmethod
    def of(cls, columns: int, names: Iterable[str]) -> _Layout:
        is_wide, has_ends, has_held = columns >= WIDE, columns >= ENDS_FROM, columns >= HELD_FROM
        picture = 12 if columns >= NARROW else 0
        rest = columns - 17 - 8 * has_held - 8 * has_ends - (17 if is_wide else 0) - (picture + 1 if picture else 0)
        longest = max([MOST_NAME // 2, *(cell_len(printable(name)) for name in names)])
        who = max(8, min(26, rest * 2 // 5))
        name = max(6, min(MOST_NAME, longest, rest - who - 1))
        return cls(is_wide, name, who, picture and min(34, picture + max(0, rest - who - 1 - name)), has_held, has_ends)

    def heads(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the head of each column, its width, and whether it is aligned to the right."""
        yield "NAME", self.name, False
        if self.is_wide:
            yield "KIND", 9, False
        yield "HELD BY", self.who, False
        if self.has_held:
            yield "HELD", 7, True
        if self.has_ends:
            yield "ENDS", 7, True
        yield "QUEUE", 6, True
        if self.picture:
            yield "", self.picture, False
        yield "WAITED", 7, True
        if self.is_wide:
            yield "/S", 6, True


def _searched(row: Row) -> str:
    """Return the text that a filter looks into."""
    return " ".join((row.name, row.kind, *(one.label for one in row.facts.holders))).lower()


def _queue(row: Row, width: int) -> Iterator[Cell]:
    """Yield a picture: the permits of a semaphore, then a bar for each waiter in the order of the queue, taller for longer."""
    facts = row.facts
    if facts.limit and width > 2 * MOST_GATES:
        count = min(MOST_GATES, facts.limit)
        out = round(facts.out / facts.limit * count)
        yield Cell("■" * out + "□" * (count - out) + " ", BLUE)
        width -= count + 1
    room = width if facts.waiting <= width else width - 1 - len(f"{facts.waiting:,}")
    shown = facts.queue[:room]
    for one in shown:
        tall = min(len(BARS) - 1, int((len(BARS) - 1) * log10(1 + one.waited_for) / log10(3601)))
        if one.silent_for > SILENT_S:
            yield Cell("\N{MULTIPLICATION SIGN}", RED)
        else:
            yield Cell(BARS[tall], YELLOW if row.face.is_strong(one) else f"{DIM};{YELLOW}")
    rest = facts.waiting - len(shown)
    yield Cell(fit(f"+{rest:,}" if rest > 0 else "", width - len(shown)), DIM)


def _bar(rate: RateStatus | None, size: int, figures: int) -> list[Cell]:
    """Return how much of a rate is used: a bar, and figures in so many columns."""
    if rate is None:
        return [Cell(" " * (size + figures))]
    what = f" {rate.metric}" if rate.metric else ""
    if not rate.limit:
        return [Cell(fit(f"{rate.used:,}{what} in {period(rate.per)}, limit not known", size + figures), DIM)]
    share = rate.used / rate.limit
    filled = min(size, round(share * size))
    color = YELLOW if is_full(rate) else BLUE
    text = f" {rate.used:,}/{rate.limit:,}{what} in {period(rate.per)}"
    return [Cell("█" * filled, color), Cell("░" * (size - filled), DIM), Cell(fit(text, figures))]


def _number(count: int) -> str:
    return f"{count:,}" if count else ""
