"""The record of a token on the server, and the clients' text about its owner.

The twin of ``lua/lib/record.lua``.

    mark weight limit claim_ms caller, as doubles, and inbox control label words..., as text

The text is the owner: the channels on which it hears of a grant and of the loss of a lease, and a label for people. The
words are ``name=text``, percent-encoded. ``value`` is data for others to see, ``ttl`` the length of the
lease in milliseconds where it is not 30 s, ``slot`` the number of a holder, ``ahead`` the head start of a
request in microseconds, ``wanted`` when a holder that is to end is revoked, ``hold`` the end of an operator's hold, and
``reason`` why. A reader passes over words whose names it does not know.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

__all__ = [
    "Action",
    "Record",
    "encode_label",
    "owner_text",
    "printable",
    "read_action",
    "read_record",
    "reason_word",
    "ttl_word",
    "words_of",
]

UNSAID_TTL_MS = 30_000
"""The ttl of a record that names none. It is stored this way, so it stays when the default of an option changes."""

OWNERS_REMEMBERED = 1024
"""Texts about owners that are kept decoded, about 1 MB: a client has the same text in the records of all its names."""

_NUMBERS, _TIME = Struct("<5d"), Struct("<d")


class Record(NamedTuple):
    """The record of a token."""

    mark: int
    """Of a holder the fence; of a waiter the end of its wait-lease, in microseconds on the server's clock."""
    weight: int
    limit: int
    claim_ms: int
    caller: int
    """The number of the thread or task that requested it."""
    inbox: str
    control: str
    label: str
    value: str = ""
    slot: int | None = None
    """The number which a holder has asked for."""
    ahead_us: int = 0
    """By how much its request counts as earlier than it came."""
    wanted_us: int | None = None
    """When it is revoked, in microseconds on the server's clock, if a later request has asked it to end."""
    hold_us: int | None = None
    """Of an operator's hold its end, in microseconds on the server's clock."""
    reason: str = ""
    """Of an operator's hold."""
    ttl_ms: int = UNSAID_TTL_MS
    """The length of its lease, as it was requested."""

    @property
    def of_several(self) -> bool:
        """Whether the request is for several names: such a request has no claim."""
        return self.claim_ms == 0 and self.weight > 0

    @property
    def owner(self) -> str:
        """The id of the client and the number of the caller; empty where they are not known."""
        return _owner(self.control, self.caller)


@lru_cache(OWNERS_REMEMBERED)
def _owner(control: str, caller: int) -> str:
    client = control.rpartition(":")[2]
    return client and f"{client}.{caller}"


def printable(text: str) -> str:
    """Escape line ends and other control characters of another client's text: it goes to logs and terminals.

    All texts of other clients pass here: labels, reasons, and the texts of exceptions.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def owner_text(inbox: str, control: str, label: str) -> str:
    """The end of the argument ``wants`` of the scripts, behind the numbers."""
    return f"{inbox} {control} {encode_label(label)}"


def words_of(value: str, ahead_us: int) -> bytes:
    """The words of a record for data shown to others and for a head start; empty without either."""
    words = f" value={encode_label(value)}" if value else ""
    return (f"{words} ahead={ahead_us}" if ahead_us else words).encode()


def ttl_word(ttl_ms: int) -> bytes:
    """The word of a record for the length of a lease; empty for 30 s."""
    return b"" if ttl_ms == UNSAID_TTL_MS else f" ttl={ttl_ms}".encode()


def reason_word(reason: str) -> bytes:
    """The word of a record with an operator's reason."""
    return f" reason={encode_label(reason)}".encode()


def encode_label(label: str) -> str:
    """Percent-encode the characters that would end a label."""
    return quote(label, safe=":;=,/@")


def read_record(text: bytes) -> Record | None:
    """Read a record; None for the empty text, which scripts return where it was evicted."""
    if not text:
        return None
    mark, weight, limit, claim_ms, caller = map(int, _NUMBERS.unpack_from(text))
    return Record(mark, weight, limit, claim_ms, caller, *_read_owner_text(text[_NUMBERS.size :]))


@lru_cache(OWNERS_REMEMBERED)
def _read_owner_text(text: bytes) -> tuple[Any, ...]:
    """Read the end of a record: the fields of `Record` behind the numbers. All records of a client share its strings."""
    inbox, control, label, *words = text.decode(errors="replace").split(" ")
    named = dict(word.partition("=")[::2] for word in words)
    slot, wanted, hold = map(named.get, ("slot", "wanted", "hold"))
    return (
        *map(printable, map(unquote, (inbox, control, label))),
        unquote(named.get("value", "")),
        int(slot) if slot else None,
        int(named.get("ahead", 0)),
        int(wanted) if wanted else None,
        None if hold is None else int(hold),
        "" if hold is None else printable(unquote(named.get("reason", ""))),
        int(named.get("ttl", UNSAID_TTL_MS)),
    )


class Action(NamedTuple):
    """The last action of an operator, as the field ``last`` of a name has it."""

    at_us: int
    what: str
    by: str
    why: str
    """The reason of a ``force_release``, the limit of a ``resize``."""


def read_action(text: bytes) -> Action | None:
    """Read the last action; None for the empty text, where there was none."""
    if not text:
        return None
    (at_us,) = _TIME.unpack_from(text)
    what, by, why = text[_TIME.size :].decode(errors="replace").split(" ", 2)
    return Action(int(at_us), printable(what), printable(unquote(by)), printable(why))
