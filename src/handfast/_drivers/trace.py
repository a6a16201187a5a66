"""Show each call and each reply, for those who debug the wire: DEBUG of the logger ``handfast.wire``.

``HANDFAST_TRACE=1`` sets this level and prints the records to standard error. Keys, tags and numbers are shown. All
other texts are masked, since tokens and results are among them. A session reads the level when it is made, so without
DEBUG a call costs nothing more.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping
from functools import cache
from logging import DEBUG
from struct import unpack
from typing import Any

from handfast._drivers.connect import Connector
from handfast._engine.effects import Call
from handfast._engine.exchange import Exchange
from handfast._engine.header import read_header
from handfast._engine.messages import Wanted, parse_message
from handfast._engine.resp import ErrorReply, Push, Reader
from handfast._engine.script import lua_texts

__all__ = ["configure", "new_exchange", "wire_log"]

wire_log = logging.getLogger("handfast.wire")

_numbers = itertools.count(1)


def configure(environ: Mapping[str, str]) -> None:
    """Print all records if ``HANDFAST_TRACE`` is set, and is not 0."""
    if environ.get("HANDFAST_TRACE", "0") not in ("", "0"):
        wire_log.setLevel(DEBUG)
        wire_log.propagate = False
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        wire_log.addHandler(handler)


def new_exchange(connector: Connector) -> Exchange:
    """Return the exchange of a session, which is traced if the logger has DEBUG."""
    return _Traced(connector) if wire_log.isEnabledFor(DEBUG) else Exchange(connector)


class _Traced(Exchange):
    """Logs all calls, and the frames of the server."""

    __slots__ = ("_address", "_number")

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self._address, self._number = connector.address, 0

    def open(self) -> Reader:
        super().open()
        self._number = next(_numbers)
        wire_log.debug("#%d is a connection to %s", self._number, self._address)
        return _TracedReader(self._number)

    def pack(self, call: Call, *, by_source: bool = False) -> tuple[bytes, ...]:
        pieces = super().pack(call, by_source=by_source)
        wire_log.debug("#%d -> %s", self._number, _call_shown(call.prefix.name, b"".join(pieces)))
        return pieces


class _TracedReader(Reader):
    """Logs the frames."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def feed(self, data: bytes) -> None:
        before = len(self.frames)
        super().feed(data)
        for frame in [*self.frames][before:]:
            wire_log.debug("#%d <- %s", self._number, _frame_shown(frame))


def _call_shown(name: str, sent: bytes) -> str:
    """Show a script with the keys, or a command with the first argument; and how many arguments follow."""
    reader = Reader()
    reader.feed(sent)
    command, *args = reader.frame()
    if command not in (b"EVALSHA", b"EVAL"):
        return f"{name} {_text(args[0])}{_more(args[1:])}" if args else name
    keys = args[2 : 2 + int(args[1])]
    source = " with its source" if command == b"EVAL" else ""
    return " ".join([name, *map(_text, keys)]) + _more(args[2 + len(keys) :]) + source


def _more(args: list[bytes]) -> str:
    return f" and {len(args)} argument{'s' * (len(args) != 1)}" if args else ""


def _frame_shown(frame: Any) -> str:
    if isinstance(frame, ErrorReply):
        return f"error {frame.partition(', with args')[0]}"  # the server quotes arguments behind that
    if isinstance(frame, Push):
        return _push_shown(frame)
    if isinstance(frame, list):
        return " ".join(map(_item_shown, frame))
    return _item_shown(frame)


def _push_shown(frame: Push) -> str:
    match parse_message(frame):
        case None:
            return f"push {_text(frame[0])}"
        case _, str(reason):
            return f"message revoked: {reason}"
        case _, Wanted(grace, _, by, reason):
            return f"message wanted within {grace:g} s by {by}: {reason}"
        case _, grant:
            return f"message granted {grant.fence} {grant.granted_us} {grant.lease_us}"


def _item_shown(item: Any) -> str:
    """Show a number, or a tag of our scripts with the packed numbers."""
    if isinstance(item, bytes):
        tag, _, packed = item.partition(b" ")
        if tag not in _tags() or len(packed) % 8:
            return _mask(item)
        return " ".join([_text(tag), *(f"{number:.0f}" for number in unpack(f"<{len(packed) // 8}d", packed))])
    return _mask(item) if isinstance(item, str | list | dict) else str(item)


@cache
def _tags() -> frozenset[bytes]:
    """Return the tags of all replies of the engine's scripts. No other text is shown: it may be a user's."""
    scripts = [text for path, text in lua_texts().items() if "/" not in path]
    return frozenset(tag.encode() for text in scripts for tag in read_header(text).replies)


def _mask(value: Any) -> str:
    return f"({len(value)} bytes)" if isinstance(value, bytes | str) else f"({len(value)} items)"


def _text(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


configure(os.environ)
