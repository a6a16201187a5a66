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


INCOMPLETE = object()
"""What the reader gives while it has no whole frame."""

_NOTHING = object()
"""In the place of a value, where a group has none."""


def bulk(value: bytes | str | int) -> bytes:
    """One argument of a command, as the server reads it."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Reader:
    """Bytes in, frames out: bytes, int, float, bool, None, list, dict, `Push` or `ErrorReply`.

    What has been read is never read again, however many pieces a frame comes in.
    """

    __slots__ = ("_frames", "_open", "_pieces", "_size", "_wanted")

    def __init__(self) -> None:
        self._frames: deque[Any] = deque()
        self._open: list[tuple[int, int, list[Any]]] = []
        """The groups that are not whole yet, each within the one before: their kind, their size and what is there."""
        self._pieces: list[bytes] = []
        """What came and could not be read yet."""
        self._size = 0
        self._wanted = 0
        """How long that must be before it is worth another look."""

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._wanted:
                return
            data, self._pieces = b"".join(self._pieces), []
        if not self._open:
            data = self._read_lines(data)
        while data:
            rest = self._read_on(data)
            if self._open or len(rest) == len(data):
                self._pieces, self._size = [rest], len(rest)
                return
            data = self._read_lines(rest)

    def frame(self) -> Any:
        """The next whole frame, or `INCOMPLETE`."""
        return self._frames.popleft() if self._frames else INCOMPLETE

    def _read_lines(self, data: bytes) -> bytes:
        """Read frames for as long as they are lines, or flat arrays of integers and texts, which nearly all are.

        Several times as fast as `_read_on`: all is split at the line ends at once. A text with a line end in it shows by
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

    def _read_on(self, data: bytes) -> bytes:
        """Read one frame of any kind, or go on with the one that is open. Gives back what it did not need, or cannot read yet."""
        at = self._wanted = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            kind, head, after = data[at], data[at + 1 : end], end + 2
            if kind in _LINES:
                value = _LINES[kind](head)
            elif (size := int(head)) < 0:
                value = None
            elif kind in _BLOBS:
                after += size + 2
                if len(data) < after:
                    self._wanted = after - at
                    break
                value = _BLOBS[kind](data[end + 2 : after - 2])
            else:
                self._open.append((kind, size * 2 if kind in b"%|" else size, []))
                at = after
                if size:
                    continue
                value = _NOTHING
            at = after
            if self._fill(value):
                break
        return data[at:]

    def _fill(self, value: Any) -> bool:
        """Put a value where it belongs, and close the groups that are whole by that; whether a frame is."""
        if not self._open:
            self._frames.append(value)
            return True
        if value is not _NOTHING:
            self._open[-1][2].append(value)
        while self._open and len(self._open[-1][2]) == self._open[-1][1]:
            kind, _, items = self._open.pop()
            if kind == ord("|"):  # an attribute only decorates the frame that follows it
                return False
            value = _GROUPS[kind](items)
            if not self._open:
                self._frames.append(value)
                return True
            self._open[-1][2].append(value)
        return False


def _map(items: list[Any]) -> dict[Any, Any] | list[Any]:
    """A dict; or, where a key is one that Python cannot have, keys and values in turn."""
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        return items


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
    ord("%"): _map,
}
