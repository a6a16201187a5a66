"""The frame of a single name: sentences, holders, lists of its face, waiters, and the last act of an operator."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from handfast._watch.facts import Listing
from handfast._watch.rows import Row
from handfast._watch.thresholds import SILENT_S
from handfast.cli.colors import BOLD, DIM, RED
from handfast.cli.operate.table import printable
from handfast.cli.operate.words import role_of, text_of
from handfast.cli.top.cells import Cell, Line, cut, fit, span_cell

__all__ = ["opened"]


def opened(row: Row, columns: int, room: int, now: float) -> list[Line]:
    """Return the frame. A third of the room is for holders; waiters have what the other parts leave."""
    face, facts = row.face, row.facts
    found: list[Line] = [[Cell(f" {row.kind} ", DIM), Cell(printable(row.name), BOLD)]]
    found.append([Cell(cut(f" {text_of(face.says(row, facts), now)}", columns))])
    notes = (text_of(said, now) for said in face.notes(row, facts))
    found += [[Cell(cut(f" {text}", columns), DIM)] for text in notes]
    who = max(12, (columns - 40) * 3 // 5)
    role = max(8, columns - 43 - who)
    found += _holders(row, who, role, max(1, room // 3), now)
    for listing in face.listings(row):
        found += _listing(listing, columns, now)
    last = facts.last
    space = max(1, room - len(found) - 3 - 2 * (last is not None))
    found += _waiters(row, who, role, space, now)
    if last is not None:
        text = f" last: {last.what} by {printable(last.by)} at {last.at:%Y-%m-%d %H:%M:%S} UTC: {printable(last.why)}"
        found += [(), [Cell(cut(text, columns), DIM)]]
    return found


def _holders(row: Row, who: int, role: int, most: int, now: float) -> Iterator[Line]:
    """Yield the table of holders, with these widths and at most so many rows; nothing if there are none."""
    facts = row.facts
    if facts.holders:
        heads = (
            f" {fit('HELD BY', who)} {fit('AS', role)} {fit('FOR', 7, right=True)} {fit('ENDS', 7, right=True)}  FENCE"
        )
        yield from ((), [Cell(heads, DIM)])
    for holder in facts.holders[:most]:
        yield [
            Cell(f" {fit(printable(holder.label) or '?', who)}", BOLD),
            Cell(f" {fit(role_of(row, holder), role)}", DIM),
            Cell(f" {span_cell(row.at - holder.held_for, now)}"),
            Cell(f" {span_cell(now, row.at + holder.remaining)}", DIM),
            Cell(f"  {holder.fence}", DIM),
        ]
    yield from _more(facts.holding - min(len(facts.holders), most))


def _waiters(row: Row, who: int, role: int, most: int, now: float) -> Iterator[Line]:
    """Yield the table of waiters, with these widths and at most so many rows; nothing if there are none."""
    facts = row.facts
    if not facts.queue:
        return
    heads = f" {fit('#', 4, right=True)} {fit('WAITS', who - 5)} {fit('AS', role)} {fit('FOR', 7, right=True)}"
    yield from ((), [Cell(heads, DIM)])
    for waiter in facts.queue[:most]:
        style = RED if waiter.silent_for > SILENT_S else ""
        text = f" {waiter.position + 1:>4} {fit(printable(waiter.label) or '?', who - 5)} {fit(role_of(row, waiter), role)}"
        yield [Cell(text, style), Cell(f" {span_cell(row.at - waiter.waited_for, now)}")]
    yield from _more(facts.waiting - min(len(facts.queue), most))


def _listing(listing: Listing, columns: int, now: float) -> Iterator[Line]:
    """Yield a list of the face, each row wrapped."""
    yield from ((), [Cell(f" {listing.title}", DIM)])
    for head, texts in listing.rows:
        own = ", ".join(map(printable, texts))
        text = f"{text_of(head, now)}{': ' * bool(head and own)}{own}"
        yield from ([Cell(f" {line}")] for line in textwrap.wrap(text, max(20, columns - 2), subsequent_indent="  "))


def _more(count: int) -> list[Line]:
    return [[Cell(f"   … {count:,} more", DIM)]] if count > 0 else []
