"""What a script says of itself in its first comment: a contract that is read, not just written.

    -- take: move an amount from one account to another.
    --
    -- KEYS from to
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
from dataclasses import dataclass, field

__all__ = ["Header", "HeaderFault", "read_header"]

WORDS = "KEYS", "ARGV", "REPLY", "NEEDS", "TWICE"
MORE = "..."
IN_WORDS = "-"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SERVER = re.compile(r"(redis|valkey) (\d+)\.(\d+)(?:\.\d+)?")


class HeaderFault(ValueError):
    """A header that cannot be understood. ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


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


def read_header(source: str) -> Header:
    """Read the comment that a script begins with. Raises HeaderFault for what it cannot mean."""
    words: dict[str, list[str]] = {"KEYS": [], "ARGV": []}
    replies: dict[str, tuple[str, ...]] = {}
    needs: dict[str, tuple[int, int]] = {}
    lines: dict[str, int] = {}
    in_words = False
    for number, line in enumerate(source.splitlines(), 1):
        if not line.startswith("--"):
            if line.startswith("#!") and number == 1:
                continue
            break
        first, *rest = line.removeprefix("--").split() or [""]
        if first not in WORDS:
            continue
        lines.setdefault(first, number)
        if first == "TWICE":
            continue
        if first == "NEEDS":
            needs |= _servers(" ".join(rest), number)
        elif first == "REPLY":
            if rest[:1] == [IN_WORDS]:
                in_words = True
                continue
            tag, *fields = _names(rest, "REPLY", number)
            if tag in replies:
                raise HeaderFault(f"the reply {tag!r} is described twice", number)
            replies[tag] = tuple(fields)
        else:
            words[first] += rest
    keys, more_keys = _list(words["KEYS"], "KEYS", lines)
    args, more_args = _list(words["ARGV"], "ARGV", lines)
    if both := set(keys) & set(args):
        raise HeaderFault(f"{min(both)!r} is the name of a key and of an argument", lines["ARGV"])
    return Header(keys, args, replies, more_keys, more_args, in_words, needs, lines)


def _list(names: list[str], what: str, lines: dict[str, int]) -> tuple[tuple[str, ...], bool]:
    more = bool(names) and names[-1].endswith(MORE)
    if more:
        names = [*names[:-1], names[-1].removesuffix(MORE)]
    if not names:
        return (), False
    return tuple(_names(names, what, lines[what])), more


def _names(names: list[str], what: str, line: int) -> list[str]:
    if not names:
        raise HeaderFault(f"{what} names nothing", line)
    for name in names:
        if not _NAME.fullmatch(name):
            why = f"only the last of {what} may end with {MORE}" if name.endswith(MORE) else f"{what} takes names only"
            raise HeaderFault(f"{name!r} is no name: {why}", line)
    if len(set(names)) < len(names):
        raise HeaderFault(f"{what} has a name twice", line)
    return names


def _servers(text: str, line: int) -> dict[str, tuple[int, int]]:
    found = {}
    for part in text.split(","):
        match = _SERVER.fullmatch(part.strip())
        if match is None:
            raise HeaderFault(f"NEEDS takes servers such as 'redis 7.0, valkey 8.0', not {part.strip()!r}", line)
        found[match[1]] = (int(match[2]), int(match[3]))
    return found
