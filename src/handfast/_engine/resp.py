"""RESP3, the protocol of the server: encode arguments as bytes, and decode bytes to frames.

A session takes its socket from the client library after the handshake and then reads it itself, because replies and
pushes share the connection and each must reach the right waiter. The reader does no I/O: it accepts bytes in pieces of
any size and returns whole frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["INCOMPLETE", "ErrorReply", "Push", "Reader", "bulk"]


class Push(list[Any]):
    """A frame that the server sent unasked, such as a message to a channel."""


class ErrorReply(str):
    """An error reply. It is a value rather than an exception: the caller of the command judges it."""

    __slots__ = ()


INCOMPLETE = object()
"""The result of `Reader.frame` while no whole frame has arrived."""

_NOTHING = object()
"""The value that completes an empty aggregate: no item is added."""


def bulk(value: bytes | str | int) -> bytes:
    """Encode one argument of a command as a bulk string."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Reader:
    """Decode bytes to frames: bytes, int, float, bool, None, list, dict, `Push` or `ErrorReply`.

    Most frames of a session are bulk strings, or short arrays, that arrive whole; `_read_whole` is a fast path for them.

    A long frame in many pieces is decoded once: decoded items are kept, and not decoded again with every piece.
    """

    __slots__ = ("_open", "_pieces", "_size", "_wanted", "frames")

    def __init__(self) -> None:
        self.frames: deque[Any] = deque()
        """The whole frames, for the caller to take from the left."""
        self._open: list[tuple[int, int, list[Any]]] = []
        """The aggregates that are incomplete, outermost first: the kind of each, its size and its items so far."""
        self._pieces: list[bytes] = []
        """The bytes received and not decoded yet."""
        self._size = 0
        """The length of the pieces together, in bytes."""
        self._wanted = 0
        """The length in bytes at which the pieces have a whole bulk string, so that decoding is worth another try."""

    def feed(self, data: bytes) -> None:
        """Accept the bytes that the socket returned."""
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._wanted:
                return
            data, self._pieces = b"".join(self._pieces), []
        if not self._open:
            data = self._read_whole(data)
        while data:
            rest = self._read_any(data)
            if self._open or len(rest) == len(data):
                self._pieces, self._size = [rest], len(rest)
                return
            data = self._read_whole(rest)

    def frame(self) -> Any:
        """Return the next whole frame, or `INCOMPLETE`."""
        return self.frames.popleft() if self.frames else INCOMPLETE

    def _read_whole(self, data: bytes) -> bytes:
        """Decode whole frames up to the first one that is no line, no bulk string and no short array of such frames.

        All bytes are split into lines at once; the length of a bulk string shows whether it contains a line end itself.
        Returns the rest.
        """
        lines = data.split(b"\r\n")
        frames, sizes = self.frames, _SIZES
        at, end = 0, len(lines) - 1  # the last line is incomplete
        while at < end:
            start, head = at, lines[at]
            at += 1
            size = sizes.get(head)
            # A data part with a line end was split, so the length of
            # its first piece differs: it goes the slow way below.
            if size is not None and at < end and len(lines[at]) == size:
                frames.append(lines[at])
                at += 1
            elif head[0] == _INTEGER:
                frames.append(int(head[1:]))
            elif head in _SHORT:
                kind, count = _SHORT[head]
                items = kind()
                for _ in range(count):
                    line = lines[at]
                    at += 1
                    size = sizes.get(line)
                    if size is not None and at < end and len(lines[at]) == size:
                        items.append(lines[at])
                        at += 1
                    elif line[:1] == b":" and at <= end:
                        # The last of `lines` is incomplete and may be empty, so neither `line[0]` nor the
                        # number would be safe before this test.
                        items.append(int(line[1:]))
                    elif line not in _SHORT or (at := _read_inner(lines, at, items)) > end:
                        # An array that is incomplete is given back as a whole:
                        # `_read_any` keeps its items from one piece to the next.
                        return b"\r\n".join(lines[start:])
                frames.append(items)
            elif head[0] in _LINES:
                frames.append(_LINES[head[0]](head[1:]))
            else:
                return b"\r\n".join(lines[start:])
        return lines[end]

    def _read_any(self, data: bytes) -> bytes:
        """Decode one frame of any kind, or more items of the incomplete one. Returns the rest."""
        at = self._wanted = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            kind, head, after = data[at], data[at + 1 : end], end + 2
            if kind in _LINES:
                value = _LINES[kind](head)
            elif (size := int(head)) < 0:
                value = None
            elif kind in _BULKS:
                after += size + 2
                if len(data) < after:
                    self._wanted = after - at
                    break
                value = _BULKS[kind](data[end + 2 : after - 2])
            else:
                self._open.append((kind, size * 2 if kind in b"%|" else size, []))
                at = after
                if size:
                    continue
                value = _NOTHING
            at = after
            if self._add(value):
                break
        return data[at:]

    def _add(self, value: Any) -> bool:
        """Add a value to the innermost aggregate and close those that are complete; return whether a frame is complete."""
        if not self._open:
            self.frames.append(value)
            return True
        if value is not _NOTHING:
            self._open[-1][2].append(value)
        while self._open and len(self._open[-1][2]) == self._open[-1][1]:
            kind, _, items = self._open.pop()
            if kind == ord("|"):  # an attribute only annotates the frame that follows it
                return False
            value = _AGGREGATES[kind](items)
            if not self._open:
                self.frames.append(value)
                return True
            self._open[-1][2].append(value)
        return False


def _read_inner(lines: list[bytes], at: int, outer: list[Any]) -> int:
    """Decode a short array within another one, to which it is added; its items begin at the line ``at``.

    Returns the number of the line behind the array. That is beyond the last line if an item is incomplete, or of a kind that
    `Reader._read_whole` does not decode.
    """
    kind, count = _SHORT[lines[at - 1]]
    items, sizes, end = kind(), _SIZES, len(lines) - 1
    for _ in range(count):
        if at >= end:
            return end + 1
        line = lines[at]
        at += 1
        if line[0] == _INTEGER:  # first: most items of a status are integers
            items.append(int(line[1:]))
        elif (size := sizes.get(line)) is not None:
            if at >= end or len(lines[at]) != size:
                return end + 1
            items.append(lines[at])
            at += 1
        elif line not in _SHORT or (at := _read_inner(lines, at, items)) > end:
            return end + 1
    outer.append(items)
    return at


def _map(items: list[Any]) -> dict[Any, Any] | list[Any]:
    """Return a dict, or the list of alternating keys and values if a key is not hashable."""
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        return items


def _error(text: bytes) -> ErrorReply:
    return ErrorReply(text.decode(errors="replace"))


_INTEGER = ord(":")
_SIZES = {b"$%d" % size: size for size in range(1025)}
"""The size of a short bulk string by the first line: a lookup costs a third of `int()`."""
_SHORT: dict[bytes, tuple[type[list[Any]], int]] = {
    b"%b%d" % (kind, count): (one, count) for kind, one in ((b"*", list), (b">", Push)) for count in range(65)
}
"""The kind and the length of a short array by the first line."""
_LINES: dict[int, Callable[[bytes], Any]] = {
    ord(":"): int,
    ord("+"): bytes,
    ord("-"): _error,
    ord("_"): lambda _: None,
    ord("#"): lambda head: head == b"t",
    ord(","): float,
    ord("("): int,
}
_BULKS: dict[int, Callable[[bytes], Any]] = {
    ord("$"): bytes,
    ord("="): lambda data: data[4:],
    ord("!"): _error,
}
_AGGREGATES: dict[int, Callable[[list[Any]], Any]] = {
    ord("*"): list,
    ord("~"): list,
    ord(">"): Push,
    ord("%"): _map,
}
