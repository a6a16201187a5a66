"""The terminal's own colors, where there is a terminal that wants them: no pipe, no ``NO_COLOR``, no dumb terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

__all__ = ["BLUE", "BOLD", "COLORS", "DIM", "GREEN", "MAGENTA", "RED", "YELLOW", "colored", "has_color", "wrapped"]

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA = "1", "2", "31", "32", "33", "34", "35"
"""Numbers of SGR. A style has several, with ``;`` between them."""

COLORS = frozenset({RED, GREEN, YELLOW, BLUE, MAGENTA})


def has_color(stream: TextIO | None = None) -> bool:
    """Whether a stream is shown in colors; by default standard output."""
    stream = stream or sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colored(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return a text in a style, if the stream has colors."""
    return f"\x1b[{style}m{text}\x1b[0m" if text and style and has_color(stream) else text


def wrapped(text: str, columns: int | None, *, indent: int) -> list[str]:
    """Break a text between words where a terminal is too narrow for it; None has no limit."""
    if columns is None or len(text) <= columns:
        return [text]
    return textwrap.wrap(text, max(20, columns), subsequent_indent=" " * indent, break_on_hyphens=False)
