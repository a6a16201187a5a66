"""A Lua script as a thing with a contract: its header says what it takes, and its digest is computed here.

A call is EVALSHA at once, and the whole source only where the server does not know it. The engine's own scripts stand in
``lua/``, with parts that they include; `load` puts these in place. ``tools/check_scripts.py`` holds each header against
its body.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from handfast._engine.header import Header, read_header
from handfast._engine.resp import bulk

__all__ = ["CommandPrefix", "LuaScript", "command", "load", "pack"]

_LUA = files("handfast._engine") / "lua"
_INCLUDE = re.compile(r"^ *-- @include (\w+)\n", re.MULTILINE)


class CommandPrefix(NamedTuple):
    """The bytes that a call begins with, up to its first key."""

    name: str
    """Of the script, or of the command."""
    digest: str
    evalsha: bytes
    eval_source: bytes
    """The same for a server that has forgotten the script or never knew it."""


@dataclass(frozen=True, slots=True)
class LuaScript:
    """A script, whole and ready to be called. ``source`` is what the server is given."""

    name: str
    source: str
    header: Header
    digest: str = field(init=False)
    head: CommandPrefix = field(init=False, repr=False, compare=False)
    """For as many keys and arguments as the header names."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "head", self.head_for(len(self.header.keys), len(self.header.args)))

    def head_for(self, keys: int, args: int) -> CommandPrefix:
        """For that many keys and arguments."""
        start = b"*%d\r\n" % (3 + keys + args)
        evalsha = start + bulk("EVALSHA") + bulk(self.digest) + bulk(keys)
        return CommandPrefix(self.name, self.digest, evalsha, start + bulk("EVAL") + bulk(self.source) + bulk(keys))


def command(name: str, args: int) -> CommandPrefix:
    """A command that needs no script, with that many arguments, as the head of a call."""
    start = b"*%d\r\n" % (1 + args) + bulk(name)
    return CommandPrefix(name, "", start, start)


def pack(values: Iterable[Any]) -> bytes:
    """Keys and arguments, as they follow the head of a call."""
    return b"".join(map(bulk, values))


@cache
def load(name: str) -> LuaScript:
    """The script of that name from ``lua/``, with its parts in place."""
    text = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    source = _INCLUDE.sub(lambda match: (_LUA / "lib" / f"{match[1]}.lua").read_text(encoding="utf-8"), text)
    return LuaScript(name, source, read_header(text))
