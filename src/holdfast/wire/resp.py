"""RESP3, the language of the server: commands to bytes, and bytes to frames.

A session takes its socket from the client library after the handshake and then speaks for itself, because
replies and pushes share the connection and each has to reach the right waiter. The reader does no I/O: it
is fed bytes in any pieces and gives whole frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["INCOMPLETE", "ErrorReply", "Push", "Reader", "bulk"]


class Push(list[Any]):
    """A frame that the server sent on its own account, such as a message to a channel."""


class ErrorReply(str):
    """An error that the server answered with. It is a value here: who asked decides what it means."""

    __slots__ = ()


class _Incomplete(Exception):
    """The bytes end within a frame."""


INCOMPLETE = object()
"""What the reader gives while it has no whole frame."""


def bulk(value: bytes | str | int) -> bytes:
    """One argument of a command, as the server reads it."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Reader:
    """Bytes in, frames out: bytes, int, float, bool, None, list, dict, `Push` or `ErrorReply`."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        self._buffer = self._buffer + data if self._buffer else data

    def frame(self) -> Any:
        """The next whole frame, or `INCOMPLETE`."""
        data = self._buffer
        if not data:
            return INCOMPLETE
        if data[0] in b"*>" and (items := _flat(data)) is not None:
            self._buffer = b""
            return items
        try:
            frame, used = _frame(data, 0)
        except _Incomplete:
            return INCOMPLETE
        self._buffer = data[used:]
        return frame


def _flat(data: bytes) -> list[Any] | None:
    """The bytes as one whole array or push of integers and texts, which nearly all are; None if they are anything else.

    Twice as fast as the way below: split at the line ends, and then see whether that was right. A text with a line end
    in it shows by its length.
    """
    if data[-2:] != b"\r\n":
        return None
    lines = iter(data[:-2].split(b"\r\n"))
    size = int(next(lines)[1:])
    items: list[Any] = [] if data[0] == ord("*") else Push()
    for line in lines:
        if line[:1] == b":":
            items.append(int(line[1:]))
        elif line[:1] == b"$" and (text := next(lines, None)) is not None and len(text) == int(line[1:]):
            items.append(text)
        else:
            return None
    return items if len(items) == size else None


def _frame(data: bytes, start: int) -> tuple[Any, int]:
    end = data.find(b"\r\n", start)
    if end < 0:
        raise _Incomplete
    kind, head, position = data[start], data[start + 1 : end], end + 2
    if kind in _LINES:
        return _LINES[kind](head), position
    size = int(head)
    if size < 0:
        return None, position
    if kind in _BLOBS:
        end = position + size
        if len(data) < end + 2:
            raise _Incomplete
        return _BLOBS[kind](data[position:end]), end + 2
    items = []
    for _ in range(size * 2 if kind in b"%|" else size):
        item, position = _frame(data, position)
        items.append(item)
    if kind == ord("|"):  # an attribute only decorates the frame that follows it
        return _frame(data, position)
    return _GROUPS[kind](items), position


def _error(text: bytes) -> ErrorReply:
    return ErrorReply(text.decode(errors="replace"))


_LINES: dict[int, Callable[[bytes], Any]] = {
    ord(":"): int,
    ord("+"): bytes,
    ord("-"): _error,
    ord("_"): lambda _: None,
    ord("#"): lambda head: head == b"t",
    ord(","): float,
    ord("("): int,
}
_BLOBS: dict[int, Callable[[bytes], Any]] = {
    ord("$"): bytes,
    ord("="): lambda blob: blob[4:],
    ord("!"): _error,
}
_GROUPS: dict[int, Callable[[list[Any]], Any]] = {
    ord("*"): list,
    ord("~"): list,
    ord(">"): Push,
    ord("%"): lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
