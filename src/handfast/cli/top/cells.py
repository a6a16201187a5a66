"""Text in cells of a terminal: fitted to a number of columns, and colored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from handfast.cli.colors import COLORS
from handfast.cli.durations import span
from handfast.cli.operate.table import fitted

__all__ = ["Cell", "Line", "cut", "drawn", "fit", "span_cell"]


class Cell(NamedTuple):
    """A text, and how it is drawn."""

    text: str
    style: str = ""
    """Numbers of SGR with ``;`` between them."""


Line = Sequence[Cell]


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return a text in exactly so many columns, shortened in the middle or padded."""
    width = max(0, width)
    if cell_len(text) > width:
        text = set_cell_size(fitted(text, width), width) if width else ""
    size = cell_len(text)
    return " " * (width - size) + text if right else text + " " * (width - size)


def cut(text: str, width: int) -> str:
    """Return a sentence in at most so many columns, without the end if need be."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def drawn(line: Line, width: int, *, color: bool, plain: bool = False) -> str:
    """Return a line as text, cut to the width.

    Args:
        line: The cells.
        width: The columns.
        color: Whether it has colors; else bold and dim text only.
        plain: Whether it has no sequences at all.
    """
    left, texts = width, list[str]()
    for text, style in line:
        if left <= 0:
            break
        shown = text if cell_len(text) <= left else fit(text, left)
        left -= cell_len(shown)
        kept = ";".join(part for part in style.split(";") if part and (color or part not in COLORS))
        # Each cell is reset by itself, so that no style runs on where a line is cut.
        texts.append(f"\x1b[{kept}m{shown}\x1b[0m" if kept and shown and not plain else shown)
    return "".join(texts)


def span_cell(since: float | None, until: float | None) -> str:
    """Return the time from one moment to another in seven columns; blank if there is none."""
    return " " * 7 if since is None or until is None else fit(span(max(0.0, until - since)), 7, right=True)
