"""What a script says of itself in its first comment: a contract that is read, not just written.

    -- take: move an amount from one account to another.
    --
    -- KEYS source target
    -- ARGV amount note...
    -- REPLY taken left
    -- REPLY short missing
    -- NEEDS redis 7.0, valkey 8.0

KEYS and ARGV name what the caller passes, in its order; a name that ends with three dots is the last of its line and stands
for any number of values. Each REPLY is a tagged array: its first item, and the names of those that follow. A reply that
is no tagged array is described in words behind a dash: ``-- REPLY - how many are left``. NEEDS names the oldest server of
each kind that the script is written for. TWICE says what happens when the script is sent a second time: one that has it
may be sent again when its reply got lost. All of them may be missing, KEYS, ARGV and REPLY may stand on several lines,
and the comment may say more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Header", "HeaderError", "lines_of", "read_header"]

WORDS = "KEYS", "ARGV", "REPLY", "NEEDS", "TWICE"
MORE = "..."
IN_WORDS = "-"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SERVER = re.compile(r"(redis|valkey) (\d+)\.(\d+)(?:\.\d+)?")
_LINE_END = re.compile(r"\r\n|\n\r|\n|\r")
_TAKEN = frozenset({"tag", "_fields"})
"""Names that a reply has already, so that a field would be hidden behind them."""


class HeaderError(ValueError):
    """A header that cannot be understood. ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def __reduce__(self) -> tuple[type[HeaderError], tuple[str, int]]:
        return type(self), (str(self), self.line)


@dataclass(frozen=True, slots=True)
class Header:
    """Names of keys and arguments in their order, and the fields of each reply by its tag."""

    keys: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    replies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    more_keys: bool = False
    """Whether the last of the keys stands for any number of them."""
    more_args: bool = False
    """Whether the last of the arguments does."""
    in_words: bool = False
    """Whether a reply that is no tagged array is described."""
    needs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The oldest server of each kind, ``redis`` and ``valkey``, where the script says so."""
    lines: dict[str, int] = field(default_factory=dict, compare=False)
    """On which line each of the header's words stands first."""

    @property
    def declares(self) -> bool:
        """Whether it names what the caller passes; else nothing is known of it."""
        return "KEYS" in self.lines or "ARGV" in self.lines

    @property
    def repeatable(self) -> bool:
        """Whether it says what happens when it is sent twice: then a lost reply is no reason not to."""
        return "TWICE" in self.lines


def lines_of(source: str) -> list[str]:
    """The lines as Lua counts them: Python knows more ends of a line."""
    return _LINE_END.split(source)


def read_header(source: str) -> Header:
    """Read the comment that a script begins with. Raises HeaderFault for what it cannot mean.

    It may be indented, and stand below empty lines and a shebang.
    """
    words: dict[str, list[tuple[str, int]]] = {"KEYS": [], "ARGV": []}
    replies: dict[str, tuple[str, ...]] = {}
    needs: dict[str, tuple[int, int]] = {}
    lines: dict[str, int] = {}
    in_words = False
    for number, line in _comment(source):
        first, *rest = line.split() or [""]
        if first not in WORDS:
            continue
        lines.setdefault(first, number)
        if first in words:
            words[first] += [(name, number) for name in rest]
        elif first == "NEEDS":
            needs |= _servers(" ".join(rest), number)
        elif first == "REPLY" and rest[:1] == [IN_WORDS]:
            in_words = True
        elif first == "REPLY":
            tag, fields = _reply(rest, number)
            if tag in replies:
                raise HeaderError(f"the reply {tag!r} is described twice", number)
            replies[tag] = fields
    keys, more_keys = _list(words["KEYS"], "KEYS")
    args, more_args = _list(words["ARGV"], "ARGV")
    for name, (_, number) in zip(args, words["ARGV"], strict=True):
        if name in keys:
            raise HeaderError(f"{name!r} is the name of a key and of an argument", number)
    return Header(keys, args, replies, more_keys, more_args, in_words, needs, lines)


def _comment(source: str) -> Iterator[tuple[int, str]]:
    """The lines of the first comment, with their numbers and without their dashes."""
    begun = False
    for number, text in enumerate(lines_of(source), 1):
        line = text.strip()
        if line.startswith("--"):
            begun = True
            yield number, line.removeprefix("--")
        elif begun or (line and not (line.startswith("#!") and number == 1)):
            break


def _reply(words: list[str], line: int) -> tuple[str, tuple[str, ...]]:
    """A tag and its fields."""
    if not words:
        raise HeaderError("REPLY names nothing", line)
    (tag,) = _names([(words[0], line)], "REPLY")
    fields = _names([(name, line) for name in words[1:]], "REPLY")
    if taken := _TAKEN.intersection(fields):
        raise HeaderError(f"no field of a reply can be called {min(taken)!r}: that is taken", line)
    return tag, tuple(fields)


def _list(named: list[tuple[str, int]], what: str) -> tuple[tuple[str, ...], bool]:
    """Names, each with its line, and whether the last of them stands for any number of values."""
    more = bool(named) and named[-1][0].endswith(MORE)
    if more:
        name, line = named[-1]
        named = [*named[:-1], (name.removesuffix(MORE), line)]
    return tuple(_names(named, what)), more


def _names(named: list[tuple[str, int]], what: str) -> list[str]:
    names: list[str] = []
    for name, line in named:
        if not _NAME.fullmatch(name):
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
        match = _SERVER.fullmatch(part.strip())
        if match is None:
            raise HeaderError(f"NEEDS takes servers such as 'redis 7.0, valkey 8.0', not {part.strip()!r}", line)
        found[match[1]] = (int(match[2]), int(match[3]))
    return found
