"""Tables that fit a terminal, and whose cells are whole where the output goes elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from handfast._engine.records import printable as escaped
from handfast.cli.colors import DIM, colored, has_color

__all__ = ["fitted", "lines", "printable", "width"]

GAP = "  "
LEAST = 10
"""Columns that a shortened cell keeps."""


def width() -> int | None:
    """Return the columns of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def lines(
    rows: Sequence[Sequence[str]],
    most: int | None,
    *,
    flexible: Sequence[int],
    right: Sequence[int],
    indent: str = "",
    styles: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the rows of a table, the first of which is its head.

    Args:
        rows: The cells.
        most: The most columns of a line; None has no limit.
        flexible: The columns with cells that may be shortened, by position.
        right: The columns aligned to the right.
        indent: The beginning of every line.
        styles: By row and column, how a cell is drawn on a terminal with colors. The head is dim.
    """
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    while most is not None and cell_len(indent) + sum(widths) + len(GAP) * (len(widths) - 1) > most:
        widest = max(flexible, key=lambda place: widths[place])
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
    has_styles, rights = has_color(), frozenset(right)
    for number, row in enumerate(rows):
        cells = [
            _sized(cell, size, right=place in rights)
            for place, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        cells[-1] = cells[-1].rstrip()
        if has_styles:
            cells = [
                colored(cell, styles.get((number, place), "") if number else DIM) for place, cell in enumerate(cells)
            ]
        yield (indent + GAP.join(cells)).rstrip()


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _sized(cell: str, size: int, *, right: bool) -> str:
    """Return a cell in so many columns."""
    if cell.isascii():  # the rule, and much quicker
        if len(cell) > size:
            cell = fitted(cell, size)
        return cell.rjust(size) if right else cell.ljust(size)
    cell = fitted(cell, size)
    return cell.rjust(size) if right else set_cell_size(cell, size)


def fitted(text: str, most: int | None) -> str:
    """Shorten a text in the middle: names, and labels with a process id, often differ at their ends."""
    if most is None or cell_len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{set_cell_size(text, most - 1 - tail).rstrip()}…{set_cell_size(text[::-1], tail)[::-1].lstrip()}"


def printable(text: str) -> str:
    """Escape the characters of a text that would move the cursor of a terminal; a tab becomes spaces."""
    return escaped(text.rstrip("\r").replace("\t", "    "))
