"""RESP3, the language of the server: commands to bytes, and bytes to frames.

A session takes its socket from the client library after the handshake and then speaks for itself, because
replies and pushes share the connection and each has to reach the right waiter. The reader does no I/O: it
is fed bytes in any pieces and gives whole frames.
"""

from __future__ import annotations

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
        if not self._buffer:
            return INCOMPLETE
        try:
            frame, used = _frame(self._buffer, 0)
        except _Incomplete:
            return INCOMPLETE
        self._buffer = self._buffer[used:]
        return frame


def _frame(data: bytes, start: int) -> tuple[Any, int]:
    end = data.find(b"\r\n", start)
    if end < 0:
        raise _Incomplete
    kind, head, position = data[start], data[start + 1 : end], end + 2
    if kind == 0x3A:  # : integer
        return int(head), position
    if kind == 0x24 or kind == 0x3D or kind == 0x21:  # $ bulk, = verbatim, ! long error
        size = int(head)
        if size < 0:
            return None, position
        end = position + size
        if len(data) < end + 2:
            raise _Incomplete
        body = data[position:end]
        if kind == 0x21:
            return ErrorReply(body.decode(errors="replace")), end + 2
        return (body if kind == 0x24 else body[4:]), end + 2
    if kind == 0x2A or kind == 0x3E or kind == 0x7E:  # * array, > push, ~ set
        count = int(head)
        if count < 0:
            return None, position
        items = Push() if kind == 0x3E else []
        for _ in range(count):
            item, position = _frame(data, position)
            items.append(item)
        return items, position
    return _rare_frame(kind, head, data, position)


def _rare_frame(kind: int, head: bytes, data: bytes, position: int) -> tuple[Any, int]:
    match chr(kind):
        case "+":
            return head, position
        case "-":
            return ErrorReply(head.decode(errors="replace")), position
        case "_":
            return None, position
        case "#":
            return head == b"t", position
        case ",":
            return float(head), position
        case "(":
            return int(head), position
        case "%" | "|" as mapping:
            pairs = {}
            for _ in range(int(head)):
                key, position = _frame(data, position)
                value, position = _frame(data, position)
                pairs[key if isinstance(key, bytes | int | float) else repr(key)] = value
            # An attribute (|) only decorates the frame that follows it.
            return (pairs, position) if mapping == "%" else _frame(data, position)
    raise ValueError(f"the server sent a frame of unknown kind {chr(kind)!r}")
