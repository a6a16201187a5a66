"""Commands off the wire: where each begins and ends in a stream of bytes, and which of them a fault is to hit.

A `Splitter` finds the ends of whole frames, of requests as well as of replies, and leaves their bytes as they came. It does
no I/O. A match is any predicate over a `Command`; `script`, `command` and `containing` make the common ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from handfast._engine.resp import Reader
from handfast._engine.script import load

__all__ = ["Command", "Match", "Scripted", "Splitter", "anything", "command", "containing", "read_command", "script"]

_CALLS = frozenset({"EVALSHA", "EVAL", "EVALSHA_RO", "EVAL_RO"})
_GROUPS = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
"""How many values follow for each that the head counts."""
_BLOBS = frozenset(b"$=!")


class Command(NamedTuple):
    """What a client asked of the server: ``name`` in capitals, ``args`` as they were sent."""

    name: str
    args: tuple[bytes, ...] = ()
    connection: int = 0
    """By which connection it came: the first one that the proxy took is 1."""


Match: TypeAlias = Callable[[Command], bool]
"""Whether a fault is to hit this command. It is asked in a thread of the proxy, once for each command."""


@runtime_checkable
class Scripted(Protocol):
    """A script as this library has them: `handfast.Script`."""

    @property
    def source(self) -> str:
        """The text that the server is given."""

    @property
    def digest(self) -> str:
        """What the server knows it by."""


def anything(asked: Command) -> bool:  # noqa: ARG001 -- a match is asked about a command
    """Match every command."""
    return True


def command(*names: str) -> Match:
    """Match commands of any of these names, in capitals or not: ``command("SET", "get")``."""
    if not names:
        raise ValueError("name a command; anything() matches all of them")
    wanted = frozenset(name.upper() for name in names)
    return lambda asked: asked.name in wanted


def containing(data: bytes | str) -> Match:
    """Match commands that have these bytes in one of their arguments, such as a key's name or a token."""
    needle = data.encode() if isinstance(data, str) else data
    return lambda asked: any(needle in arg for arg in asked.args)


def script(*scripts: str | Scripted | Any) -> Match:
    """Match calls of these scripts, whether by digest or by source; with none named: of any script.

    A script is the name of one of Handfast's own, such as ``"permit_acquire"``; or a `handfast.Script`; or what redis-py's
    ``register_script`` gave. Raises ValueError for a name that there is not.
    """
    if not scripts:
        return lambda asked: asked.name in _CALLS
    wanted = frozenset(word for one in scripts for word in _words(one))
    return lambda asked: asked.name in _CALLS and bool(asked.args) and asked.args[0] in wanted


def _words(one: Any) -> tuple[bytes, bytes]:
    """What a call of that script has as its first argument: the digest, or the source."""
    if isinstance(one, str):
        try:
            one = load(one)
        except OSError:
            raise ValueError(
                f"there is no script {one!r} in the engine; pass the script itself if it is yours"
            ) from None
    if isinstance(one, Scripted):
        return one.digest.encode(), one.source.encode()
    if hasattr(one, "sha") and hasattr(one, "script"):  # redis-py's
        source = one.script
        return one.sha.encode(), source if isinstance(source, bytes) else source.encode()
    raise TypeError(f"a script is a name, a handfast.Script or one that redis-py registered, not {type(one).__name__}")


def read_command(frame: bytes, connection: int = 0) -> Command | None:
    """The command that a whole request holds; None for an empty one, which the server does not answer either.

    Raises ValueError for what is no request.
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
    """Takes bytes in any pieces and gives whole frames, as bytes. With ``inline``, a line of words is one as well."""

    __slots__ = ("_at", "_buffer", "_inline", "_need")

    def __init__(self, *, inline: bool = False) -> None:
        self._inline = inline
        self._buffer = bytearray()
        self._at = 0
        """How far the buffer has been read."""
        self._need = 1
        """How many values the frame needs from there on."""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole by now. Raises ValueError where there is none that could ever be."""
        self._buffer += data
        frames = []
        while self._read():
            frames.append(bytes(self._buffer[: self._at]))
            del self._buffer[: self._at]
            self._at, self._need = 0, 1
        return frames

    def rest(self) -> bytes:
        """What has come of a frame that is not whole yet. It is given once."""
        rest, self._at, self._need = bytes(self._buffer), 0, 1
        self._buffer.clear()
        return rest

    def _read(self) -> bool:
        buffer = self._buffer
        while self._need:
            end = buffer.find(b"\n", self._at)
            if end < 0:
                return False
            kind, after = buffer[self._at], end + 1
            if self._inline and not self._at and kind != ord("*"):
                self._need -= 1
            elif kind in _GROUPS:
                self._need += max(0, int(buffer[self._at + 1 : end])) * _GROUPS[kind]
                if kind != ord("|"):  # an attribute comes on top of the value that follows it
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
