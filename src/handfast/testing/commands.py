"""Commands of a byte stream: where each begins and ends, and which of them a fault hits.

A `Splitter` finds the ends of whole frames, of requests and of replies, and leaves their bytes unchanged. It does no
I/O. A match is any predicate over a `Command`; `script`, `command` and `containing` make the common ones.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from handfast._engine.resp import Reader
from handfast._engine.script import load

__all__ = ["Command", "Match", "Scripted", "Splitter", "anything", "command", "containing", "read_command", "script"]

_SCRIPT_COMMANDS = frozenset({"EVALSHA", "EVAL", "EVALSHA_RO", "EVAL_RO"})
_GROUPS = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
"""RESP types that hold other values: how many values follow for each unit of the count."""
_BLOBS = frozenset(b"$=!")
"""RESP types with a length in bytes."""


class Command(NamedTuple):
    """A command sent by a client to the server.

    Attributes:
        name: The command's name in capitals, such as ``"EVALSHA"``.
        args: The arguments, as they were sent.
        connection: Number of the client's connection; the first connection to the proxy is 1.

    """

    name: str
    args: tuple[bytes, ...] = ()
    connection: int = 0


Match: TypeAlias = Callable[[Command], bool]
"""A predicate that selects commands. The proxy calls it in one of its threads, once for each command."""


@runtime_checkable
class Scripted(Protocol):
    """A script with a source and a digest, such as a `handfast.Script`."""

    @property
    def source(self) -> str:
        """The Lua source sent to the server."""

    @property
    def digest(self) -> str:
        """The SHA-1 of the source, by which the server knows it."""


def anything(sent: Command) -> bool:  # noqa: ARG001 -- a match takes a command
    """Match every command."""
    return True


def command(*names: str) -> Match:
    """Return a match for commands with any of these names.

    Args:
        names: Names in any case: ``command("SET", "get")``.

    Raises:
        ValueError: No name was given.

    """
    if not names:
        raise ValueError("name at least one command; anything() matches all of them")
    wanted = frozenset(name.upper() for name in names)
    return lambda sent: sent.name in wanted


def containing(data: bytes | str) -> Match:
    """Return a match for commands with these bytes in an argument, such as the name of a key or a token."""
    needle = data.encode() if isinstance(data, str) else data
    return lambda sent: any(needle in arg for arg in sent.args)


def script(*scripts: str | Scripted | Any) -> Match:
    """Return a match for calls of these scripts, by digest or by source.

    Args:
        scripts: Each is the name of a script of Handfast, such as ``"permit_acquire"``, a `handfast.Script`, or the
            result of redis-py's ``register_script``. With none, calls of every script match.

    Raises:
        ValueError: Handfast has no script with this name.
        TypeError: An argument is not a script.

    """
    if not scripts:
        return lambda sent: sent.name in _SCRIPT_COMMANDS
    wanted = frozenset(word for one in scripts for word in _first_arguments(one))
    return lambda sent: sent.name in _SCRIPT_COMMANDS and bool(sent.args) and sent.args[0] in wanted


def _first_arguments(one: Any) -> tuple[bytes, bytes]:
    """Return the first argument of a call of the script: its digest (EVALSHA), its source (EVAL)."""
    if isinstance(one, str):
        one, name = load(one), one
        try:
            return one.digest.encode(), one.source.encode()
        except OSError:
            names = sorted(
                path.name.removesuffix(".lua")
                for path in (files("handfast._engine") / "lua").iterdir()
                if path.name.endswith(".lua")
            )
            raise ValueError(
                f"Handfast has no script {name!r} but {', '.join(names)}; pass the script itself if it is yours"
            ) from None
    if isinstance(one, Scripted):
        return one.digest.encode(), one.source.encode()
    if hasattr(one, "sha") and hasattr(one, "script"):  # redis-py's
        source = one.script
        return one.sha.encode(), source if isinstance(source, bytes) else source.encode()
    raise TypeError(f"a script is a name, a handfast.Script or one that redis-py registered, not {type(one).__name__}")


def read_command(frame: bytes, connection: int = 0) -> Command | None:
    """Parse a whole request. Return None for an empty request, which the server does not answer either.

    Raises:
        ValueError: The frame is not a request.

    """
    words: list[bytes]
    if frame.startswith(b"*"):
        reader = Reader()
        reader.feed(frame)
        words = reader.frame() or []
        if not all(isinstance(word, bytes) for word in words):
            raise ValueError(f"a request is an array of strings, not {frame[:40]!r}")
    else:
        words = frame.split()
    return Command(words[0].decode(errors="replace").upper(), tuple(words[1:]), connection) if words else None


class Splitter:
    """Splits a byte stream, fed in pieces of any size, into whole frames.

    Args:
        inline: Accept inline commands too: a line of words each.

    """

    __slots__ = ("_at", "_buffer", "_inline", "_need")

    def __init__(self, *, inline: bool = False) -> None:
        self._inline = inline
        self._buffer = bytearray()
        self._at = 0
        """How far the buffer has been read."""
        self._need = 1
        """How many more values the current frame needs from there on."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add data and return the frames that are now whole.

        Raises:
            ValueError: The data cannot be the start of a frame.

        """
        self._buffer += data
        frames = []
        while self._read():
            frames.append(bytes(self._buffer[: self._at]))
            del self._buffer[: self._at]
            self._at, self._need = 0, 1
        return frames

    def rest(self) -> bytes:
        """Return and drop the beginning of a frame still incomplete."""
        rest, self._at, self._need = bytes(self._buffer), 0, 1
        self._buffer.clear()
        return rest

    def _read(self) -> bool:
        buffer = self._buffer
        # Where data is missing, `_at` and `_need` stay: the
        # values before are not read again with the next piece.
        while self._need:
            end = buffer.find(b"\n", self._at)
            if end < 0:
                return False
            kind, after = buffer[self._at], end + 1
            if self._inline and not self._at and kind != ord("*"):
                self._need -= 1
            elif kind in _GROUPS:
                self._need += max(0, int(buffer[self._at + 1 : end])) * _GROUPS[kind]
                if kind != ord("|"):  # an attribute precedes the value that it belongs to
                    self._need -= 1
            elif kind in _BLOBS:
                size = int(buffer[self._at + 1 : end])
                after += size + 2 if size >= 0 else 0
                if len(buffer) < after:
                    return False
                self._need -= 1
            else:
                self._need -= 1
            self._at = after
        return True
