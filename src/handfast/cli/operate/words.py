"""The findings, for people: tables and sentences of names, by their faces, and the findings about a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from handfast._watch.faces.leases import standing
from handfast._watch.facts import Column, Label, Length, Listing, Moment, Part, Sentence
from handfast._watch.rows import Level, Row
from handfast._watch.thresholds import SILENT_S
from handfast.cli.colors import BOLD, DIM, GREEN, RED, YELLOW, colored, has_color, wrapped
from handfast.cli.durations import period, span
from handfast.cli.operate.table import fitted, lines, printable
from handfast.records import Holder, OperatorAction, ServerFinding, Waiter

__all__ = ["Entry", "action", "described", "diagnosis", "entry", "role_of", "summary", "text_of"]

QUEUE_SHOWN = 10
"""Waiters that `described` lists, unless all are wanted."""

LISTED = 10
"""Texts of a list that `described` shows in a line."""

SEVERITIES = {"failure": ("FAIL", RED), "warning": ("WARN", YELLOW), "info": ("info", DIM), "ok": ("ok", GREEN)}
"""How a finding is marked, the worst first."""

LEVELS: dict[Level | None, str] = {None: "", "warning": YELLOW, "urgent": RED}


def text_of(said: Sentence, now: float) -> str:
    """Return the text of a sentence, at a moment of `time.monotonic`."""
    if len(said) == 1:
        return _text(said[0], now)
    return "".join([_text(part, now) for part in said])


def _text(part: Part, now: float) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Label):
        return printable(part.text) or "?"
    if isinstance(part, Moment):
        return span(abs(now - part.at))
    return span(part.seconds) if isinstance(part, Length) else period(part.seconds)


class Entry(NamedTuple):
    """A line of a table: the only part kept of a name in a long list."""

    rank: tuple[object, ...]
    columns: tuple[Column, ...]
    cells: list[str]
    styles: tuple[str, ...]
    """How each cell is drawn; empty without colors."""


def entry(row: Row) -> Entry:
    """Return the line of a name."""
    facts, columns = row.facts, row.face.columns
    cells = [text_of(said, row.at) for said in row.face.cells(row, facts)]
    styles: tuple[str, ...] = ()
    if has_color():
        levels = {"held": LEVELS[row.held_level(row.at)], "waits": LEVELS[row.wait_level(row.at)]}
        levels["name"] = BOLD if facts.waiting else ""
        styles = tuple(levels.get(column.shows, "") for column in columns)
    return Entry((*facts.rank, row.name), columns, cells, styles)


def summary(entries: Iterable[Entry], most: int | None, *, last_used: bool) -> Iterator[str]:
    """Yield a table for all kinds with the same columns, by default without one for when a name was last used."""
    tables = dict[tuple[Column, ...], list[Entry]]()
    for one in entries:
        tables.setdefault(one.columns, []).append(one)
    for number, columns in enumerate(sorted(tables, key=lambda each: -len(each))):
        shown = columns if last_used else tuple(column for column in columns if not column.is_extra)
        count = len(shown)  # those that are left out are the last
        flexible = [place for place, one in enumerate(shown) if one.is_flexible]
        right = [place for place, one in enumerate(shown) if not (one.is_flexible or one.is_word)]
        styles = {
            (line, place): style
            for line, one in enumerate(tables[columns], 1)
            for place, style in enumerate(one.styles[:count])
            if style
        }
        cells = [[column.head for column in shown], *(one.cells[:count] for one in tables[columns])]
        if number:
            yield ""
        yield from lines(cells, most, flexible=flexible, right=right, styles=styles)


def described(row: Row, most: int | None, *, whole_queue: bool) -> Iterator[str]:
    """Yield all known facts of a name."""
    face, facts = row.face, row.facts
    yield colored(fitted(f"{row.kind} {printable(row.name)}", most), BOLD)
    level = row.held_level(row.at) or row.wait_level(row.at)  # a hold is never less than urgent
    yield from _paragraph(face.says(row, facts), row, most, LEVELS[level])
    for said in face.notes(row, facts):
        yield from _paragraph(said, row, most, "")
    if facts.holders:
        yield from _holders(row, most)
    if facts.queue:
        yield from _queue(row, most, facts.queue if whole_queue else facts.queue[:QUEUE_SHOWN])
    for listing in face.listings(row):
        yield from _listing(listing, row, most)
    if facts.last is not None:
        yield ""
        yield from (f"  {line}" for line in action(facts.last))


def _holders(row: Row, most: int | None) -> Iterator[str]:
    face, facts = row.face, row.facts
    value = ["VALUE"] * face.has_values
    holds = [["HELD BY", "AS", "FOR", "ENDS IN", "FENCE", *value]]
    for holder in facts.holders:
        times = span(holder.held_for), span(holder.remaining), str(holder.fence)
        holds.append([_label(holder), role_of(row, holder), *times, *[printable(holder.value)] * face.has_values])
    yield ""
    yield from lines(holds, most, flexible=(0, 5)[: 1 + len(value)], right=(2, 3), indent="  ")
    yield from _more(facts.holding - len(facts.holders))


def _queue(row: Row, most: int | None, queue: Sequence[Waiter]) -> Iterator[str]:
    face = row.face
    value = ["VALUE"] * face.has_values
    waits = [["QUEUE", "WAITS", "AS", "FOR", *value]]
    for waiter in queue:
        place, time = str(waiter.position + 1), span(waiter.waited_for)
        waits.append([place, _label(waiter), role_of(row, waiter), time, *[printable(waiter.value)] * face.has_values])
    silent = {(line, at): RED for line, one in enumerate(queue, 1) if one.silent_for > SILENT_S for at in (1, 2)}
    yield ""
    yield from lines(waits, most, flexible=(1, 4)[: 1 + len(value)], right=(0, 3), indent="  ", styles=silent)
    yield from _more(row.facts.waiting - len(queue))


def _listing(listing: Listing, row: Row, most: int | None) -> Iterator[str]:
    yield ""
    yield colored(f"  {listing.title}", DIM)
    for said, texts in listing.rows:
        shown = ", ".join(map(printable, texts[:LISTED]))
        more = f" and {len(texts) - LISTED:,} more" if len(texts) > LISTED else ""
        head = text_of(said, row.at)
        yield fitted(f"    {head}{': ' * bool(head and shown)}{shown}{more}", most)
    yield from _more(listing.more)


def role_of(row: Row, one: Holder | Waiter) -> str:
    """Return the role of a holder or a waiter: ``writer``, ``2 permits, slot 0``, ``lock, silent for 40s``."""
    return text_of(standing(row.face, one), row.at)


def action(last: OperatorAction) -> Iterator[str]:
    """Yield the last act of an operator."""
    yield f"last: {last.what} by {printable(last.by)} at {last.at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"      {'limit ' if last.what == 'resize' else ''}{printable(last.why)}"


def diagnosis(found: Sequence[ServerFinding], most: int | None) -> Iterator[str]:
    """Yield the findings about a server, the worst first, and below each finding the advice."""
    order = [*SEVERITIES]
    for one in sorted(found, key=lambda one: order.index(one.severity)):
        word, style = SEVERITIES[one.severity]
        first, *more = wrapped(f"{word:<6}{one.text}", most, indent=6)
        yield colored(first[:6], style) + first[6:]
        yield from more
        if one.advice or one.command:
            advice = f"    → {': '.join(filter(None, (one.advice, one.command)))}"
            yield from wrapped(advice, most, indent=6)


def _label(one: Holder | Waiter) -> str:
    return printable(one.label) or "?"


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  … {count:,} more"


def _paragraph(said: Sentence, row: Row, most: int | None, style: str) -> Iterator[str]:
    """Yield a sentence in lines that fit."""
    for line in wrapped(f"  {text_of(said, row.at)}", most, indent=4):
        yield colored(fitted(line, most), style)
