"""RESP3, the language of the server: commands to bytes, and bytes to frames.

A session takes its socket from the client library after the handshake and then speaks for itself, because
replies and pushes share the connection and each has to reach the right waiter. The reader does no I/O: it
is fed bytes in any pieces and gives whole frames.
"""

from __future__ import annotations

from collections import deque
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

    __slots__ = ("_frames", "_rest")

    def __init__(self) -> None:
        self._frames: deque[Any] = deque()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        self._rest = data = self._read_lines(self._rest + data if self._rest else data)
        while data:
            try:
                frame, used = _frame(data, 0)
            except _Incomplete:
                break
            self._frames.append(frame)
            self._rest = data = self._read_lines(data[used:])

    def frame(self) -> Any:
        """The next whole frame, or `INCOMPLETE`."""
        return self._frames.popleft() if self._frames else INCOMPLETE

    def _read_lines(self, data: bytes) -> bytes:
        """Read frames for as long as they are lines, or flat arrays of integers and texts, which nearly all are.

        Several times as fast as `_frame`: all is split at the line ends at once. A text with a line end in it shows by
        its length. Gives back what begins with anything else, or is not whole.
        """
        lines = data.split(b"\r\n")
        at, end = 0, len(lines) - 1  # what follows the last line end is no line yet
        while at < end:
            start, head = at, lines[at]
            kind, at = head[:1], at + 1
            if kind in _ARRAYS and head[1:2] != b"-":
                items = _ARRAYS[kind]()
                for _ in range(int(head[1:])):
                    line = lines[at]
                    if line[:1] == b":" and at < end:
                        items.append(int(line[1:]))
                        at += 1
                    elif line[:1] == b"$" and at + 1 < end and len(lines[at + 1]) == int(line[1:]):
                        items.append(lines[at + 1])
                        at += 2
                    else:
                        return b"\r\n".join(lines[start:])
                self._frames.append(items)
            elif head[0] in _LINES:
                self._frames.append(_LINES[head[0]](head[1:]))
            else:
                return b"\r\n".join(lines[start:])
        return lines[end]


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


_ARRAYS: dict[bytes, type[list[Any]]] = {b"*": list, b">": Push}
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
