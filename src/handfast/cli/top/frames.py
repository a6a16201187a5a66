"""The frames of `handfast top`: lines of cells."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, log10
from typing import Literal, NamedTuple, TypeAlias

from handfast._kinds import MAX_PERMITS
from handfast._watch.held import SILENT_S, HeldName
from handfast._watch.live import Key, Row, View
from handfast._watch.problems import HELD_LONG_S, WAITED_LONG_S, WAITED_TOO_LONG_S, Label, Moment, Part, Problem
from handfast.cli.durations import period, span
from handfast.cli.operate.table import printable
from handfast.cli.operate.unheld import fullness
from handfast.cli.operate.words import role_of
from handfast.cli.top.cells import BLUE, BOLD, DIM, GREEN, MAGENTA, RED, YELLOW, Cell, Line, cut, fit
from handfast.records import DebounceStatus, LatchStatus, LimiterStatus, LockStatus, RateStatus

__all__ = ["SORTS", "VIEWS", "Screen", "ViewName"]

ViewName: TypeAlias = Literal["names", "problems", "limits", "show"]
VIEWS: tuple[ViewName, ...] = ("names", "problems", "limits")
"""The views that show all; ``show`` is that of one name."""

BARS = "▁▂▃▄▅▆▇█"
"""How long a waiter has waited: the tallest bar for an hour or more."""

SIGNS = {"urgent": ("!", RED), "warning": ("▲", YELLOW), "note": ("·", MAGENTA)}

NARROW, WIDE = 78, 104
"""The columns from which on there is a picture of each queue, and from which on all columns are shown."""

FIGURES = 22
"""Columns of the figures of a rate."""

MOST_GATES = 8
"""Permits in a picture."""


class Sort(NamedTuple):
    """An order of the names."""

    word: str
    head: str
    """The head of its column."""
    key: Callable[[Row], float | str]


SORTS = (
    Sort("queue", "QUEUE", lambda row: -row.status.waiting),
    Sort("wait", "WAITED", lambda row: row.waits_since or inf),
    Sort("held", "HELD", lambda row: row.held_since or inf),
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
    first: int = 0
    """The number of the first row that is seen."""
    outage: str = ""
    """Why nothing new is seen; empty while looks succeed."""
    is_of_server: bool = True
    """Whether that is because of the server, or of the way to it."""
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
        makes = {"names": self._names, "problems": self._problems, "limits": self._limits, "show": self._show}
        body = makes[self.shows](columns, room, now)[:room]
        return [*head, *body, *([()] * (room - len(body))), self._foot(columns)][:lines]

    def rows(self) -> list[Row]:
        """Return the rows of the view that match the filter, in their order."""
        limits = self.shows == "limits"
        words = self.filter.lower().split()
        rows = [
            row
            for row in self.view.rows
            if isinstance(row.status, LimiterStatus) == limits and all(word in _searched(row) for word in words)
        ]
        if limits:
            return sorted(rows, key=_fullest_first)
        rows = [row for row in rows if _is_shown(row)]
        return sorted(rows, key=lambda row: (self.sort.key(row), row.held_since or inf, row.name, row.kind))

    def seen(self, lines: int) -> list[Key]:
        """Return the names that are on a screen of so many lines."""
        if self.shows == "show":
            return [self.marked] if self.marked is not None else []
        if self.shows == "problems":
            return [one.where for one in self.problems[:lines] if one.where is not None]
        return [row.key for row in self.rows()[self.first : self.first + lines]]

    def marked_row(self) -> Row | None:
        """Return the row that is marked; None if none is, or if it is gone."""
        return next((row for row in self.view.rows if row.key == self.marked), None)

    def move(self, by: int) -> None:
        """Mark the row that many further down."""
        rows = self.rows()
        at = next((number for number, row in enumerate(rows) if row.key == self.marked), -1 if by > 0 else 0)
        self.marked = rows[max(0, min(len(rows) - 1, at + by))].key if rows else None

    # --- head and foot

    def _title(self, columns: int, now: float) -> Line:
        if self.outage:
            word = "no look" if not self.is_of_server else "no answer" if self.view.is_whole else "no server"
            state = Cell(word, f"{BOLD};{RED}")
        elif self.is_frozen:
            state = Cell("frozen", MAGENTA)
        else:
            state = Cell("live" if self.view.is_whole else "looking", GREEN)
        clock = time.strftime(" %H:%M:%S ", time.localtime(time.time() - (time.monotonic() - now)))
        name = " handfast"
        where = fit(f"  {printable(self.server)}", columns - len(name) - len(state.text) - len(clock))
        return [Cell(name, BOLD), Cell(where, DIM), state, Cell(clock)]

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
            what = "No answer" if self.is_of_server else "No look has succeeded"
            text = f"{what} for {span(self.silent_for)}. What you see is old. {printable(self.outage)}"
            return [Cell(" ! ", f"{BOLD};{RED}"), Cell(cut(text, columns - 3), RED)]
        if not self.problems:
            return [Cell(" Nothing is wrong." if self.view.is_whole else "", GREEN)]
        if self.shows == "problems":
            return []
        first, more = self.problems[0], len(self.problems) - 1
        sign, color = SIGNS[first.level]
        rest = f"  w: {more} more " if more else " "
        text = fit(cut(sentence(first.says, now), columns - 3 - len(rest)), columns - 3 - len(rest))
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
            "names": f"q quit  j k  ⏎ show  / filter{found}  s sort: {self.sort.word}  w wrong  l limits  f freeze",
            "show": "esc back  r release  h hold  f freeze  q quit",
            "problems": "esc back  l limits  f freeze  q quit",
            "limits": f"esc back  j k  / filter{found}  p pause  w wrong  f freeze  q quit",
        }
        return [Cell(cut(f" {keys[self.shows]}", columns), DIM)]

    # --- views

    def _names(self, columns: int, room: int, now: float) -> list[Line]:
        layout = _Layout.of(columns)
        found: list[Line] = [self._heads(layout)]
        rows = self.rows()
        space = self._scroll(rows, room - 1)
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
        held, ends, waits = row.held_since, row.ends_at, row.waits_since
        cells = [
            Cell("▌" if row.key == self.marked else " ", BLUE),
            Cell(fit(printable(row.name), layout.name), BOLD if row.status.waiting else ""),
            Cell(" "),
        ]
        if layout.is_wide:
            cells += [Cell(fit(row.kind, 9), DIM), Cell(" ")]
        who, style = _who(row)
        cells += [Cell(fit(who, layout.who), style), Cell(" ")]
        is_awaited = row.status.waiting > 0 and not row.stands_by
        is_stuck = held is not None and is_awaited and now - held > HELD_LONG_S
        cells += [Cell(_span(held, now), f"{BOLD};{RED}" if is_stuck else ""), Cell(" ")]
        if isinstance(row.status, LockStatus) and row.status.hold is not None and ends is None:
            cells.append(Cell(_span(now, row.at + row.status.hold.remaining), MAGENTA))
        elif isinstance(row.status, DebounceStatus):
            cells.append(Cell(_span(now, row.at + (row.status.due_in or 0)), DIM))
        else:
            cells.append(Cell(_span(now, ends), DIM))
        cells += [Cell(" "), Cell(fit(_number(row.status.waiting), 6, right=True), BOLD), Cell(" ")]
        if layout.picture:
            cells += [*_queue(row, layout.picture), Cell(" ")]
        wait = 0.0 if waits is None or row.stands_by else now - waits
        style = f"{BOLD};{RED}" if wait > WAITED_TOO_LONG_S else YELLOW if wait > WAITED_LONG_S else ""
        cells.append(Cell(_span(waits, now), style))
        if layout.is_wide:
            cells += [Cell(" "), Cell(fit(f"{row.rate:.1f}" if row.rate else "", 6, right=True), DIM)]
        return cells

    def _problems(self, columns: int, room: int, now: float) -> list[Line]:
        found: list[Line] = [()]
        for one in self.problems:
            sign, color = SIGNS[one.level]
            lines = textwrap.wrap(sentence(one.says, now), max(20, columns - 4))
            for number, text in enumerate(lines):
                style = BOLD if one.level == "urgent" else ""
                found.append([Cell(f" {sign} " if number == 0 else "   ", f"{BOLD};{color}"), Cell(text, style)])
            means = textwrap.wrap(sentence(one.means, now), max(20, columns - 4))
            found += [[Cell("   "), Cell(text, DIM)] for text in means]
        if len(found) > room:
            found = [*found[: room - 1], [Cell(" more below: a taller window shows it", DIM)]]
        return found

    def _limits(self, columns: int, room: int, now: float) -> list[Line]:
        rest = max(12, columns - FIGURES - 25)
        size = min(24, rest // 3)
        name = min(40, rest - size)
        queue, wait, pause = (
            fit(head, width, right=True) for head, width in (("QUEUE", 6), ("WAITED", 7), ("PAUSED", 7))
        )
        heads = f" {fit('LIMITER', name)} {fit('USED', size + FIGURES)} {queue} {wait} {pause}"
        found: list[Line] = [[Cell(heads, DIM)]]
        rows = self.rows()
        space = self._scroll(rows, room - 1)
        for row in rows[self.first : self.first + space]:
            if isinstance(row.status, LimiterStatus):
                found += self._limiter(row, row.status, name, size, now)
        return [*found[: room - 1], *self._rest(rows, space, "No limiter has admitted anything lately.")]

    def _limiter(self, row: Row, status: LimiterStatus, name: int, size: int, now: float) -> Iterator[Line]:
        waits = row.waits_since
        paused = row.at + status.paused_for if status.paused_for else None
        for number, rate in enumerate(status.rates or (None,)):
            mark = Cell("▌" if row.key == self.marked else " ", BLUE)
            cells = [mark, Cell(fit(printable(row.name) if number == 0 else "", name), BOLD), Cell(" ")]
            cells += _bar(rate, size)
            if number == 0:
                cells += [Cell(" "), Cell(fit(_number(status.waiting), 6, right=True), BOLD)]
                cells += [Cell(" "), Cell(_span(waits, now)), Cell(" "), Cell(_span(now, paused), MAGENTA)]
            yield cells

    def _show(self, columns: int, room: int, now: float) -> list[Line]:
        row = self.marked_row()
        if row is None:
            return [[Cell(" The server does not know this name any more.", DIM)]]
        found: list[Line] = [[Cell(f" {row.kind} ", DIM), Cell(printable(row.name), BOLD)]]
        if not isinstance(row.status, LockStatus):
            return [*found, *([Cell(f" {printable(text)}")] for text in _told(row, now))]
        status, shown = row.status, HeldName(row.kind, row.name, row.status, None)
        if status.grants:
            mean = span(status.waited / status.grants)
            text = f" {status.grants:,} grant{'s' * (status.grants != 1)}, {mean} mean wait, fence {status.fence}"
            found.append([Cell(text, DIM)])
        if status.hold is not None:
            left = span(max(0.0, row.at + status.hold.remaining - now))
            text = f" on hold for {left} by {printable(status.hold.by)}: {printable(status.hold.reason)}"
            found.append([Cell(cut(text, columns), MAGENTA)])
        label = max(16, columns - 44)
        if status.holders:
            heads = f" {fit('HELD BY', label)} {fit('FOR', 7, right=True)} {fit('ENDS', 7, right=True)}  FENCE"
            found += [(), [Cell(heads, DIM)]]
        else:
            found += [(), [Cell(" no one holds it", DIM)]]
        holders = sorted(status.holders, key=lambda one: -one.held_for)
        for holder in holders[: max(1, room // 3)]:
            text = fit(f"{_aside(role_of(shown, holder), row.kind)}{printable(holder.label)}", label)
            ends = _span(now, row.at + holder.remaining)
            cells = [Cell(f" {text}", BOLD), Cell(f" {_span(row.at - holder.held_for, now)}"), Cell(f" {ends}", DIM)]
            found.append([*cells, Cell(f"  {holder.fence}", DIM)])
        found += _more(status.holding - min(len(holders), max(1, room // 3)))
        last = status.last
        space = max(1, room - len(found) - 3 - 2 * (last is not None))
        if status.waiters:
            heads = f" {fit('QUEUE', label)} {fit('FOR', 7, right=True)}"
            found += [(), [Cell(heads, DIM)]]
            for waiter in status.waiters[:space]:
                is_silent = waiter.silent_for > SILENT_S
                text = f"{waiter.position + 1:>3} {_aside(role_of(shown, waiter), row.kind)}{printable(waiter.label)}"
                cells = [Cell(f" {fit(text, label)}", RED if is_silent else "")]
                found.append([*cells, Cell(f" {_span(row.at - waiter.waited_for, now)}")])
            found += _more(status.waiting - min(len(status.waiters), space))
        else:
            found += [(), [Cell(" no one waits", DIM)]]
        if last is not None:
            text = (
                f" last: {last.what} by {printable(last.by)} at {last.at:%Y-%m-%d %H:%M:%S} UTC: {printable(last.why)}"
            )
            found += [(), [Cell(cut(text, columns), DIM)]]
        return found

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
    """The widths of the columns that depend on the terminal's."""

    is_wide: bool
    name: int
    who: int
    picture: int

    @classmethod
    def of(cls, columns: int) -> _Layout:
        is_wide = columns >= WIDE
        picture = min(34, columns - 86) if is_wide else 12 if columns >= NARROW else 0
        rest = columns - 33 - (17 if is_wide else 0) - (picture + 1 if picture else 0)
        who = max(10, min(26, rest * 2 // 5))
        return cls(is_wide, max(8, rest - who - 1), who, picture)

    def heads(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the head of each column, its width, and whether it is aligned to the right."""
        yield "NAME", self.name, False
        if self.is_wide:
            yield "KIND", 9, False
        yield "HELD BY", self.who, False
        yield "HELD", 7, True
        yield "ENDS", 7, True
        yield "QUEUE", 6, True
        if self.picture:
            yield "", self.picture, False
        yield "WAITED", 7, True
        if self.is_wide:
            yield "/S", 6, True


def sentence(parts: Sequence[Part], now: float) -> str:
    """Return the text of a sentence, at a moment of `time.monotonic`."""
    texts = []
    for part in parts:
        match part:
            case Label(text):
                texts.append(printable(text))
            case Moment(at):
                texts.append(span(abs(now - at)))
            case _:
                texts.append(part)
    return "".join(texts)


def _is_shown(row: Row) -> bool:
    """Whether a name is held, waited for, on hold, or otherwise not idle."""
    status = row.status
    if isinstance(status, LockStatus):
        return bool(status.holding or status.waiting or status.hold)
    return True


def _searched(row: Row) -> str:
    """Return the text that a filter looks into."""
    labels = [one.label for one in row.status.holders] if isinstance(row.status, LockStatus) else []
    return " ".join((row.name, row.kind, *labels)).lower()


def _fullest_first(row: Row) -> tuple[float, float, str]:
    status = row.status
    return -status.waiting, -fullness(status) if isinstance(status, LimiterStatus) else 0.0, row.name


def _who(row: Row) -> tuple[str, str]:
    """Return who holds a name in a cell, and how it is drawn."""
    status = row.status
    match status:
        case DebounceStatus():
            items = f"{status.items:,} items" if status.items else ""
            return items, DIM
        case LatchStatus():
            return f"{status.number:,} done", DIM
        case LockStatus() if not status.holders:
            return ("-", DIM) if status.hold is None else (f"on hold {printable(status.hold.by)}", MAGENTA)
        case LockStatus():
            first = max(status.holders, key=lambda one: one.held_for)
            others = f" +{status.holding - 1:,}" if status.holding > 1 else ""
            aside = ""
            if row.kind == "semaphore":
                aside = f"{status.held}/{status.limit} "
            elif row.kind == "rwlock":
                aside = "writer " if first.exclusive else "reader "
            elif first.released:
                aside = "released "
            return f"{aside}{printable(first.label) or '?'}{others}", MAGENTA if status.hold is not None else ""
    return "", ""


def _queue(row: Row, width: int) -> Iterator[Cell]:
    """Yield a picture: the permits of a semaphore, then a bar for each waiter in the order of the queue, taller for longer."""
    status = row.status
    if not isinstance(status, LockStatus):
        yield Cell(" " * width)
        return
    if row.kind == "semaphore" and 1 < status.limit < MAX_PERMITS and width > 2 * MOST_GATES:
        count = min(MOST_GATES, status.limit)
        out = round(status.held / status.limit * count)
        yield Cell("■" * out + "□" * (count - out) + " ", BLUE)
        width -= count + 1
    room = width if status.waiting <= width else width - 1 - len(f"{status.waiting:,}")
    shown = status.waiters[:room]
    for one in shown:
        tall = min(len(BARS) - 1, int((len(BARS) - 1) * log10(1 + one.waited_for) / log10(3601)))
        is_reader = row.kind == "rwlock" and not one.exclusive
        if one.silent_for > SILENT_S:
            yield Cell("\N{MULTIPLICATION SIGN}", RED)
        else:
            yield Cell(BARS[tall], f"{DIM};{YELLOW}" if is_reader else YELLOW)
    rest = status.waiting - len(shown)
    yield Cell(fit(f"+{rest:,}" if rest > 0 else "", width - len(shown)), DIM)


def _bar(rate: RateStatus | None, size: int) -> list[Cell]:
    """Return how much of a rate is used: a bar and figures."""
    if rate is None:
        return [Cell(" " * (size + FIGURES))]
    if not rate.limit:
        return [Cell(fit(f"{rate.used:,} in {period(rate.per)}, limit not known", size + FIGURES), DIM)]
    share = rate.used / rate.limit
    filled = min(size, round(share * size))
    color = YELLOW if share >= 0.9 and rate.per >= 10 else BLUE
    figures = f" {rate.used:,}/{rate.limit:,} in {period(rate.per)}"
    return [Cell("█" * filled, color), Cell("░" * (size - filled), DIM), Cell(fit(figures, FIGURES))]


def _told(row: Row, now: float) -> Iterator[str]:
    """Yield the status of a name without leases."""
    match row.status:
        case LimiterStatus() as status:
            for rate in status.rates:
                limit = f" of {rate.limit:,}" if rate.limit else ""
                yield f"{rate.used:,}{limit} used in {period(rate.per)}"
            yield f"{status.waiting:,} waiting"
        case DebounceStatus() as status:
            due = row.at + (status.due_in or 0) - now
            yield f"runs in {span(max(0.0, due))}" if status.waiting else "no call waits"
            yield f"{status.items:,} items that no run has done"
        case LatchStatus() as status:
            yield f"{status.number:,} parts done, {status.waiting:,} waiting"


def _aside(word: str, kind: str) -> str:
    """Return the role of a holder or a waiter before its label; empty where the kind says it."""
    return "" if word == kind else f"{word} "


def _more(count: int) -> list[Line]:
    return [[Cell(f"   … {count:,} more", DIM)]] if count > 0 else []


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _span(since: float | None, until: float | None) -> str:
    """Return the time from one moment to another in seven columns; blank if there is none."""
    return " " * 7 if since is None or until is None else fit(span(max(0.0, until - since)), 7, right=True)
