"""The header of a script: the contract in its first comment, which callers and the linter read.

    -- take: move an amount from one account to another.
    --
    -- KEYS source target
    -- ARGV amount note...
    -- REPLY taken left
    -- REPLY short missing
    -- NEEDS redis 7.0, valkey 8.0

KEYS and ARGV
    The names of the keys and arguments, in the order in which the caller passes them. A last name that ends with
    ``...`` stands for any number of values.
REPLY
    A tagged array: the tag, which is the first item, and the names of the other items. A reply of another form is
    described after a dash: ``-- REPLY - how many are left``.
NEEDS
    The oldest version of each server that the script is written for.
TWICE
    What happens if the script is sent a second time. Only a script with this line is sent again after a lost reply.

Every line is optional. KEYS, ARGV and REPLY may take several lines, and the comment may contain other text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Header", "HeaderError", "lines_of", "read_header"]

KEYWORDS = "KEYS", "ARGV", "REPLY", "NEEDS", "TWICE"
MORE = "..."
UNTAGGED = "-"

_SERVER = r"(redis|valkey) (\d+)\.(\d+)(?:\.\d+)?"
_LINE_END = r"\r\n|\n\r|\n|\r"
_LINE = rf"([^\r\n]*)(?:{_LINE_END}|\Z)"
_TAKEN = frozenset({"tag", "_fields"})
"""Attributes of `Reply`, which would hide fields of these names."""


class HeaderError(ValueError):
    """The header of a script is malformed.

    Attributes:
        line: The line of the fault, counted from 1.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def __reduce__(self) -> tuple[type[HeaderError], tuple[str, int]]:
        return type(self), (str(self), self.line)


class Header(NamedTuple):
    """The contract of a script: the names of the keys and arguments in order, and the fields of each reply by tag."""

    keys: tuple[str, ...]
    args: tuple[str, ...]
    replies: dict[str, tuple[str, ...]]
    more_keys: bool
    """Whether the last name of the keys stands for any number of keys."""
    more_args: bool
    """Whether the last name of the arguments stands for any number of arguments."""
    untagged: bool
    """Whether the script may return something other than a tagged array."""
    needs: dict[str, tuple[int, int]]
    """The oldest version of ``redis`` and of ``valkey``, as major and minor number; empty without a NEEDS line."""
    lines: dict[str, int]
    """The number of the first line of each keyword."""

    @property
    def declares(self) -> bool:
        """Whether the header names the keys or the arguments."""
        return "KEYS" in self.lines or "ARGV" in self.lines

    @property
    def repeatable(self) -> bool:
        """Whether the script may be sent again after a lost reply."""
        return "TWICE" in self.lines


def lines_of(source: str) -> list[str]:
    """Split a source into lines as Lua counts them; `str.splitlines` knows more line ends."""
    return re.split(_LINE_END, source)


def read_header(source: str) -> Header:
    """Read the comment at the start of a script, which may be indented and follow empty lines and a shebang.

    Raises:
        HeaderError: A line of the header is malformed.
    """
    names: dict[str, list[tuple[str, int]]] = {"KEYS": [], "ARGV": []}
    replies: dict[str, tuple[str, ...]] = {}
    needs: dict[str, tuple[int, int]] = {}
    lines: dict[str, int] = {}
    untagged = False
    for number, line in _comment(source):
        first, *rest = line.split() or [""]
        if first not in KEYWORDS:
            continue
        # The first line of a keyword is the place to which an error of the linter points.
        lines.setdefault(first, number)
        if first in names:
            names[first] += [(name, number) for name in rest]
        elif first == "NEEDS":
            needs |= _servers(" ".join(rest), number)
        elif first == "REPLY" and rest[:1] == [UNTAGGED]:
            # Tested before a tagged reply: the dash would be read as a tag.
            untagged = True
        elif first == "REPLY":
            tag, fields = _reply(rest, number)
            if tag in replies:
                raise HeaderError(f"the reply {tag!r} is described twice", number)
            replies[tag] = fields
    keys, more_keys = _list(names["KEYS"], "KEYS")
    args, more_args = _list(names["ARGV"], "ARGV")
    # Callers pass keys and arguments by name in one call, so the two share their names.
    for name, (_, number) in zip(args, names["ARGV"], strict=True):
        if name in keys:
            raise HeaderError(f"{name!r} is the name of a key and of an argument", number)
    return Header(keys, args, replies, more_keys, more_args, untagged, needs, lines)


def _comment(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line of the first comment, without the dashes."""
    begun = False
    for number, found in enumerate(re.finditer(_LINE, source), 1):
        line = found[1].strip()
        if line.startswith("--"):
            begun = True
            yield number, line.removeprefix("--")
        elif begun or (line and not (line.startswith("#!") and number == 1)):
            break


def _reply(names: list[str], line: int) -> tuple[str, tuple[str, ...]]:
    if not names:
        raise HeaderError("REPLY has no tag; name one, or describe the reply after a dash", line)
    (tag,) = _names([(names[0], line)], "REPLY")
    fields = _names([(name, line) for name in names[1:]], "REPLY")
    if taken := _TAKEN.intersection(fields):
        raise HeaderError(
            f"a field of a reply can't be called {min(taken)!r}: replies have an attribute of that name; rename the field",
            line,
        )
    return tag, tuple(fields)


def _list(named: list[tuple[str, int]], what: str) -> tuple[tuple[str, ...], bool]:
    """Return the names, and whether the last one stands for any number of values. Each name comes with its line."""
    more = bool(named) and named[-1][0].endswith(MORE)
    if more:
        name, line = named[-1]
        named = [*named[:-1], (name.removesuffix(MORE), line)]
    return tuple(_names(named, what)), more


def _names(named: list[tuple[str, int]], what: str) -> list[str]:
    names: list[str] = []
    for name, line in named:
        if not (name.isascii() and name.isidentifier()):
            more = name.endswith(MORE) and what != "REPLY"
            why = f"only the last of {what} may end with {MORE}" if more else f"{what} takes names only"
            raise HeaderError(f"{name!r} is no name: {why}", line)
        if name in names:
            raise HeaderError(f"{what} has {name!r} twice", line)
        names.append(name)
    return names


def _servers(text: str, line: int) -> dict[str, tuple[int, int]]:
    found = {}
    for part in text.split(","):
        match = re.fullmatch(_SERVER, part.strip())
        if match is None:
            raise HeaderError(f"NEEDS takes servers such as 'redis 7.0, valkey 8.0', not {part.strip()!r}", line)
        found[match[1]] = (int(match[2]), int(match[3]))
    return found
