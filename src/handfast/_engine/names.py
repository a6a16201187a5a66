"""Which names there are: a SCAN for their keys, and calls that inspect several names at once.

There is no registry of names. It would cost every acquire a write, and it would list names that are gone. A pattern
without wildcards is the text of one name of each kind (`handfast._engine.keys.read_shown`). It needs no SCAN, but for the
periods of a limiter, which are in the names of its keys.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, get_args

from handfast._engine.calls import INSPECT, PARTS
from handfast._engine.effects import Call
from handfast._engine.keys import ONE_SLOT, KeySet, key_pattern, read_key
from handfast._engine.limits import Window
from handfast._engine.packing import double
from handfast._engine.script import command, load, pack
from handfast._engine.validate import utf8
from handfast._kinds import AUDIT, KINDS
from handfast.arguments import Kind

__all__ = ["INSPECTED", "LIMITS", "SCANNED", "Found", "NamePattern", "at_once", "inspect_all", "outcome"]

LIMITS: dict[str, int] = {name: kind.limit for name, kind in KINDS.items() if kind.limit is not None}
"""The limit of each kind with leases; 0 where requests bring a limit."""

INSPECTED = 25
"""Names that one call inspects, so that it does not keep the server from others for long."""

OUTCOME_BYTES = 400
"""The part of a record of `once` that is read: its head, and the beginning of the result."""

MOST_STRANGE = 100
"""Names of unknown kinds that a search notes."""

SCANNED = 1000
"""Keys that one SCAN looks at: some 0.4 ms of the server's time."""

_WILDCARD = re.compile(r"\*|\?|\[(!?+\]?+[^\]]*)\]")
"""The wildcards of `fnmatch`. A set of one character stands for that character."""


_SEPARATING = re.compile(r"[|\\]+")
"""What in the text of a name may stand otherwise, or not at all, in its key."""


class Found(NamedTuple):
    """A key of a name that matches."""

    place: KeySet
    part: str
    """The part of the name: of `ObjectKind.parts`, or ``result`` of `once`."""
    window: Window | None
    """Of a limiter, one of its windows."""


class NamePattern:
    """A shell pattern for the names of some kinds, such as ``order:*``: ``*``, ``?`` and ``[abc]``, as in `fnmatch`.

    It is matched with the text of a name and its parts, as `handfast._engine.keys.shown_name` writes it.
    """

    __slots__ = (
        "_kinds",
        "_matches",
        "_namespace",
        "_parts",
        "_pieces",
        "_sought",
        "exact",
        "passed_over",
        "recorded",
        "strange",
        "text",
    )

    def __init__(self, namespace: str, text: str, kinds: Iterable[Kind], *, recorded: bool = False) -> None:
        utf8(text, "a pattern")
        self.text = text
        self.recorded: bool = recorded
        """Whether keys of `once` are found of which something is recorded, and no one runs or waits for them."""
        self.passed_over: int = 0
        """How many keys were passed over: no name has them, such as one that is too long."""
        self.strange = set[tuple[str, str]]()
        """Names of kinds that this version does not know, `MOST_STRANGE` at most, where names of all kinds are sought."""
        self._namespace, self._kinds = namespace, tuple(kinds)
        # A str is a collection of letters, so "lock" would be reported as the kinds l, o, c and k.
        if isinstance(kinds, str) or not set(self._kinds) <= set(get_args(Kind)):
            raise ValueError(f"kinds must be some of {', '.join(get_args(Kind))}, not {kinds!r}")
        pieces = _literals(text)
        self.exact = pieces[0] if len(pieces) == 1 else None
        """The text of the only name that matches, of each kind; None if several may match."""
        self._matches = re.compile(fnmatch.translate(text)).match
        # A separator of the text stands elsewhere in a key, or not at all. Cut there, the server's pattern
        # misses no name; it is coarser, and `found` compares each text.
        self._pieces = [word for piece in pieces for word in _SEPARATING.split(piece)]
        self._parts: dict[str, set[str]] = {kind: set(KINDS[kind].parts) for kind in self._kinds}
        if recorded and "once" in self._parts:
            self._parts["once"].add("result")
        # An exact name gives the keys of each kind but a
        # limiter's: those of its windows have the period in them.
        self._sought = [kind for kind in self._kinds if self.exact is None or kind == "limiter"]
        """The kinds that need a SCAN."""

    def places(self) -> list[KeySet]:
        """Return the places of the only name that matches, one of each kind that needs no SCAN."""
        if self.exact is None:
            return []
        found = []
        for kind in self._kinds:
            if kind not in self._sought:
                with contextlib.suppress(ValueError):  # no name of this kind has this text
                    found.append(KeySet.of_shown(self._namespace, kind, self.exact))
        return found

    def scan(self, cursor: bytes) -> Call | None:
        """Look for keys from a cursor on, which is ``0`` at first; None if no kind needs it."""
        parts = set[str]().union(*(self._parts[kind] for kind in self._sought))
        if not parts:
            return None
        part = None if ONE_SLOT.intersection(self._sought) else parts.pop() if len(parts) == 1 else "*"
        args = (cursor, "MATCH", key_pattern(self._namespace, self._pieces, part), "COUNT", SCANNED)
        return Call(command("SCAN", len(args)), pack(args))

    def found(self, keys: Iterable[bytes]) -> Iterator[Found]:
        """Yield those keys by which a name that matches is found.

        The server's pattern is coarser: a name is encoded there, so that ``?`` may stand for several characters, and a
        part of it may look like a kind.
        """
        for key in keys:
            try:
                # A key of another program may have any bytes. It is passed over, and ends no search.
                read = read_key(self._namespace, key.decode(errors="replace"))
            except ValueError:
                self.passed_over += 1
                continue
            if read is None:
                continue
            place, part = read
            part, _, rest = part.partition(":")
            window = None
            if part == "window":
                # A window that can't be read keeps its `rest`, and with it fails the test below.
                with contextlib.suppress(ValueError):
                    window, rest = Window.read(rest), ""
            if not rest and part in self._parts.get(place.kind, ()) and self._matches(place.name):
                yield Found(place, part, window)
            elif place.kind not in KINDS and place.kind != AUDIT and self._matches(place.name):
                # Only kinds of later versions are strange. The
                # audit has a key of this version, and is no name.
                self._note(place)

    def _note(self, place: KeySet) -> None:
        """Note a name of a kind that this version does not know."""
        if len(self._kinds) == len(get_args(Kind)) and len(self.strange) < MOST_STRANGE:
            self.strange.add((place.kind, place.name))


def inspect_all(places: Sequence[KeySet], max_shown: int, windows: Sequence[Sequence[Window]] = ()) -> Call:
    """Read the states of several names of one kind, or of several with leases.

    Of kinds with leases it lists so many holders and waiters of each, of a latch so many parts.
    ``windows`` are those of each limiter.
    """
    kind = places[0].kind
    # All kinds with leases have one layout, so one call may mix them.
    if kind in LIMITS:
        keys = [place.key(part) for place in places for part in PARTS]
        return Call(INSPECT.prefix_for(len(keys), 1), pack((*keys, max_shown)))
    script = load(f"{KINDS[kind].scripts}_inspect")
    # The header lists the keys of one name. The last one
    # stands for those of further names, or of its windows.
    own = script.header.keys[: len(script.header.keys) - script.header.more_keys]
    keys = []
    for number, place in enumerate(places):
        own_windows = [f"window:{window}" for window in windows[number]] if kind == "limiter" else []
        keys += [place.key(part) for part in (*own, *own_windows)]
    args: list[bytes] | list[int] = [max_shown] * len(script.header.args)
    if kind == "limiter":
        # A window's key has the text of the period, and the script gets the same period as a number.
        args = [b"".join(double(window.per_ms) for window in each) for each in windows]
    return Call(script.prefix_for(len(keys), len(args)), pack((*keys, *args)))


def at_once(kind: str) -> int:
    """Return how many names of a kind one call may inspect."""
    return INSPECTED if kind in LIMITS or load(f"{KINDS[kind].scripts}_inspect").header.more_keys else 1


def outcome(place: KeySet) -> Call:
    """Read the head of a record of `once`."""
    return Call(command("GETRANGE", 3), pack((place.key("result"), 0, OUTCOME_BYTES - 1)))


def _literals(pattern: str) -> list[str]:
    """Return the texts between the wildcards of a pattern."""
    pieces, start = [""], 0
    for found in _WILDCARD.finditer(pattern):
        pieces[-1] += pattern[start : found.start()]
        start = found.end()
        if found[1] is not None and len(found[1]) == 1:
            pieces[-1] += found[1]
        else:
            pieces.append("")
    pieces[-1] += pattern[start:]
    return pieces
