"""Lua scripts: a source with a header that is its contract, and the digest by which servers know it.

A call is sent as EVALSHA, and as EVAL with the source only where the server does not know the script. The engine's scripts
are the files of ``lua/``; they include parts of ``lua/lib/``, which `load` puts in. ``tools/check_scripts.py`` checks each header
against its body.
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
    """The bytes of a call up to its first key."""

    name: str
    """The script's name, or the command's."""
    digest: str
    evalsha: bytes
    eval_source: bytes
    """The same with EVAL, for a server that does not know the script."""


@dataclass(frozen=True, slots=True)
class LuaScript:
    """A script as it is sent: ``source`` has the included parts in place."""

    name: str
    source: str
    header: Header
    digest: str = field(init=False)
    prefix: CommandPrefix = field(init=False, repr=False, compare=False)
    """For the keys and arguments that the header names, and none of those that its dots stand for."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest)
        keys, args = len(self.header.keys) - self.header.more_keys, len(self.header.args) - self.header.more_args
        object.__setattr__(self, "prefix", self.prefix_for(keys, args))

    def prefix_for(self, keys: int, args: int) -> CommandPrefix:
        """Return the prefix for that many keys and arguments."""
        start = b"*%d\r\n" % (3 + keys + args)
        evalsha = start + bulk("EVALSHA") + bulk(self.digest) + bulk(keys)
        return CommandPrefix(self.name, self.digest, evalsha, start + bulk("EVAL") + bulk(self.source) + bulk(keys))


def command(name: str, args: int) -> CommandPrefix:
    """Return the prefix of a plain command with that many arguments."""
    start = b"*%d\r\n" % (1 + args) + bulk(name)
    return CommandPrefix(name, "", start, start)


def pack(values: Iterable[Any]) -> bytes:
    """Pack keys and arguments, which follow the prefix."""
    return b"".join(map(bulk, values))


@cache
def load(name: str) -> LuaScript:
    """Load the script of that name from ``lua/``, with its parts in place."""
    text = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    source = _INCLUDE.sub(lambda match: (_LUA / "lib" / f"{match[1]}.lua").read_text(encoding="utf-8"), text)
    return LuaScript(name, source, read_header(text))
