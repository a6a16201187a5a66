"""Key and channel names: all are made here.

The state of a name lives in two keys with the same hash tag, ``{<namespace>:<kind>:<name>}:<part>``. Namespace
and name are percent-encoded, in the namespace the colons, too. So two different triples never meet in the same key, and
nothing can end the tag early. The parts have the same names as in the scripts' headers.

A name may have parts behind it, ``<name>|<part>|<part>``. They are encoded like the name, in which no ``|`` is left
then. Users see and give such a name in the same order, unencoded, with a backslash before each ``|`` and each backslash
inside the name or a part: `shown_name` writes this text, and `read_shown` reads it. So each key has a single text, and
each text a single key.

Kinds with `ObjectKind.is_one_slot` have the parts at the end of a key, outside of the hash tag.

A namespace in braces is the hash tag of all keys in it, ``{<namespace>}:<kind>:<name>:<part>``: in a cluster all names
of the namespace are in the same slot. There the name's colons are encoded, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

from handfast._engine.validate import MAX_NAME_BYTES, encode_name
from handfast._kinds import KINDS

__all__ = [
    "KEYED",
    "ONE_SLOT",
    "KeySet",
    "check_namespace",
    "control_channel",
    "empty_channel",
    "inbox_channel",
    "key_pattern",
    "keys_of_kind",
    "read_key",
    "read_shown",
    "sharded_channel",
    "shown_name",
]

ONE_SLOT = frozenset(name for name, kind in KINDS.items() if kind.is_one_slot)
"""Kinds of which all parts of a name have the hash tag of the name: ``{<namespace>:<kind>:<name>}:<what>:<part>|<part>``."""

KEYED = frozenset(name for name, kind in KINDS.items() if kind.has_keys)
"""Kinds whose names may have parts behind them. A name of another kind is shown as it is."""

_KINDS = {kind: kind for kind in KINDS}
"""One string for each kind, which all names that a search finds share."""

SEPARATOR = "|"
"""What stands between a name and its parts."""

_ESCAPED = re.compile(r"[|\\]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SHOWN_PART = re.compile(r"(?:[^|\\]|\\[|\\])+")
"""A name or a part as it is shown."""

_NAME_SAFE = ":/@"
"""What a name may have in a key besides letters, digits and ``_.-~``."""


class KeySet:
    """The keys of a name, and of the parts behind it if there are any.

    ``tag``: the beginning of the keys, where it was read from a key.
    """

    __slots__ = ("_behind", "_namespace", "_parts", "_plain_name", "kind", "name", "tag")

    def __init__(
        self, namespace: str, kind: str, name: str, parts: tuple[str, ...] = (), *, tag: str | None = None
    ) -> None:
        self._namespace = namespace
        self._plain_name = name
        self._parts = parts
        is_behind = bool(parts) and kind in ONE_SLOT
        self._behind = f":{_encoded(namespace, parts)}" if is_behind else ""
        self.kind: str = kind
        self.tag: str = _tag(namespace, kind, name, () if is_behind else parts) if tag is None else tag
        """What all of them begin with."""
        self.name: str = shown_name(kind, name, parts)
        """The name with its parts, as users see it."""

    @classmethod
    def of_shown(cls, namespace: str, kind: str, text: str) -> KeySet:
        """Return the keys of the name with this text. Raises TypeError or ValueError if no name has it."""
        return cls(namespace, kind, *read_shown(kind, text))

    @property
    def mark(self) -> str:
        """The text in each key of this name, and in no key of another name."""
        return self.tag + self._behind

    def renamed(self, name: str) -> KeySet:
        """Return the keys of another name of the same kind."""
        return KeySet(self._namespace, self.kind, name)

    @property
    def root(self) -> tuple[str, str]:
        """The namespace, and the name without the parts behind it."""
        return self._namespace, self._plain_name

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts behind the name; empty without any."""
        return self._parts

    @property
    def whole(self) -> KeySet:
        """The keys of the name without the parts behind it."""
        return KeySet(self._namespace, self.kind, self._plain_name) if self._parts else self

    def keyed(self, parts: tuple[str, ...]) -> KeySet:
        """Return the keys of the same name with these parts behind it, after its present parts."""
        return KeySet(self._namespace, self.kind, self._plain_name, self._parts + parts)

    def key(self, part: str) -> str:
        """Return the key of a part of the state, such as ``tokens``."""
        return f"{self.tag}:{part}{self._behind}"


def shown_name(kind: str, name: str, parts: Iterable[str] = ()) -> str:
    """Return the text of a name with parts, as users see it: no other name of this kind has the same text."""
    if kind not in KEYED:
        return name
    return SEPARATOR.join([_ESCAPED.sub(r"\\\g<0>", text) for text in (name, *parts)])


def read_shown(kind: str, text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the parts in a text of `shown_name`. Raises ValueError for any other text."""
    if kind not in KEYED or not text or not isinstance(text, str):
        return text, ()
    found = _SHOWN_PART.findall(text)
    if SEPARATOR.join(found) != text:
        raise ValueError(
            f"{text!r} is not the name of a {kind}: a | stands between the name and its parts, none of which is empty; "
            r"write \| and \\ for a | and a \ inside one of them"
        )
    name, *parts = (_ESCAPE.sub(r"\1", one) for one in found)
    return name, tuple(parts)


def check_namespace(namespace: str) -> None:
    """Raise TypeError or ValueError for an invalid namespace."""
    _frame(namespace)


def keys_of_kind(namespace: str, kind: str) -> str:
    """Return the server's pattern for all keys of a kind."""
    return f"{_frame(namespace)[0]}{kind}:*"


def key_pattern(namespace: str, pieces: Iterable[str], part: str | None) -> str:
    """Return the server's pattern for ``part`` of all names, of every kind, with these pieces in this order.

    Anything may stand between two pieces, so the empty pieces at the ends leave an end open. Without ``part`` a piece may
    stand anywhere behind the kind, also outside of a hash tag.
    """
    start, safe, end = _frame(namespace)
    name = "*".join(piece and encode_name(piece, "name", safe=safe) for piece in pieces)
    return f"{start}*:{name}*" if part is None else f"{start}*:{name}{end}:{part}"


def read_key(namespace: str, key: str) -> tuple[KeySet, str] | None:
    """Return the keys of the name with this key, and the key's part; None if it is no key of a name in this namespace.

    Raises ValueError if the name is too long.
    """
    plain = _plain_keys(namespace).fullmatch(key)
    if plain is not None and plain[2] not in ONE_SLOT:
        tag, kind, name, part = plain.groups()
        return KeySet(namespace, _KINDS.get(kind, kind), name, tag=tag), part
    start, _, end = _frame(namespace)
    kind, _, rest = key.removeprefix(start).partition(":")
    encoded, _, part = rest.partition(f"{end}:")
    if kind in ONE_SLOT:
        part, colon, behind = part.partition(":")
        encoded += f"{SEPARATOR}{behind}" if colon else ""
    name, *parts = map(unquote, encoded.split(SEPARATOR))
    is_name = part and all((name, *parts)) and (not parts or kind in KEYED)
    return (KeySet(namespace, kind, name, tuple(parts)), part) if is_name else None


@lru_cache
def _plain_keys(namespace: str) -> re.Pattern[str]:
    """Return a pattern for keys in which the name is not encoded, as most are: tag, kind, name and part.

    A search reads 100,000 keys: the pattern takes a quarter of the time of decoding and encoding the name.
    """
    start, safe, end = _frame(namespace)
    name = rf"[\w.\-~{safe}]{{1,{MAX_NAME_BYTES}}}"
    return re.compile(rf"({re.escape(start)}([^:]*):({name}){end}):(.+)", re.ASCII | re.DOTALL)


def _tag(namespace: str, kind: str, name: str, parts: tuple[str, ...]) -> str:
    start, safe, end = _frame(namespace)
    encoded = encode_name(name, "name", safe=safe)
    return f"{start}{kind}:{encoded}{SEPARATOR + _encoded(namespace, parts) if parts else ''}{end}"


def _encoded(namespace: str, parts: tuple[str, ...]) -> str:
    _, safe, _ = _frame(namespace)
    return SEPARATOR.join(encode_name(part, "a part", safe=safe) for part in parts)


def _frame(namespace: str) -> tuple[str, str, str]:
    """Return the text before the kind in a key, the extra unencoded characters of a name, and the text behind it."""
    encoded = encode_name(namespace, "namespace")
    if namespace[0] == "{" and namespace[-1] == "}":
        return f"{{{encode_name(namespace[1:-1], 'what a namespace has in braces')}}}:", "/@", ""
    return f"{{{encoded}:", _NAME_SAFE, "}"


def inbox_channel(namespace: str, client_id: str, number: int) -> str:
    """The channel on which scripts publish the grants for the waiters of a connection, the client's ``number``-th.

    Each connection has another inbox. So a queue entry made through an earlier connection, as an older state of the
    server may have it, has no subscriber and is skipped.
    """
    return f"{encode_name(namespace, 'namespace')}:inbox:{client_id}:{number}"


def sharded_channel(inbox: str, word: str) -> str:
    """The channel of the same connection for the names in a slot of a cluster: the slot of the key ``word``.

    Only such a channel has braces.
    """
    start, _, client = inbox.rpartition("inbox:")
    return f"{start}inbox:{{{word}}}{client}"


def empty_channel(namespace: str) -> str:
    """A channel without subscribers, to which a client may publish."""
    return f"{encode_name(namespace, 'namespace')}:inbox:-"


def control_channel(namespace: str, client_id: str) -> str:
    """The channel on which scripts publish that a lease of the client was taken away."""
    return f"{encode_name(namespace, 'namespace')}:control:{client_id}"
