"""Lua scripts: a source, a header as its contract, and the digest by which servers know the script.

A call is sent as EVALSHA, and as EVAL with the source only where the server does not know the script. The engine's
scripts are the files of ``lua/``; they include parts of ``lua/lib/``, which `load` puts in. ``tools/check_scripts.py``
checks each header against the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from handfast._engine.constants import IN_SCRIPTS
from handfast._engine.header import Header, read_header
from handfast._engine.resp import bulk

__all__ = [
    "CommandPrefix",
    "LuaScript",
    "as_sent",
    "command",
    "include_parts",
    "load",
    "lua_text",
    "lua_texts",
    "pack",
    "with_numbers",
]

_LUA = files("handfast._engine") / "lua"
_INCLUDE = "-- @include "


class CommandPrefix(NamedTuple):
    """The bytes of a call up to its first key."""

    name: str
    """The script's name, or the command's."""
    digest: str
    evalsha: bytes
    eval_source: bytes
    """The same with EVAL, for a server that does not know the script."""


class LuaScript:
    """A script as it is sent: ``source`` has the included parts in place."""

    __slots__ = ("_prefixes", "digest", "header", "name", "prefix", "source")

    def __init__(self, name: str, source: str, header: Header) -> None:
        self.name: str = name
        self.source: str = source
        self.header: Header = header
        self.digest: str = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._prefixes: dict[tuple[int, int], CommandPrefix] = {}
        self.prefix: CommandPrefix = self.prefix_for(
            len(header.keys) - header.more_keys, len(header.args) - header.more_args
        )
        """For the keys and arguments that the header names, and none of those that its dots stand for."""

    def prefix_for(self, keys: int, args: int) -> CommandPrefix:
        """Return the prefix for so many keys and arguments."""
        prefix = self._prefixes.get((keys, args))
        if prefix is None:
            start, number = b"*%d\r\n" % (3 + keys + args), bulk(keys)
            evalsha = start + bulk("EVALSHA") + bulk(self.digest) + number
            prefix = CommandPrefix(self.name, self.digest, evalsha, start + bulk("EVAL") + bulk(self.source) + number)
            self._prefixes[keys, args] = prefix
        return prefix


class _EngineScript(LuaScript):
    """A script of ``lua/``, read at the first use: a program uses few scripts."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        """Read the script at the first use of an attribute. Two threads may do this at the same time."""
        if attribute not in LuaScript.__slots__:
            raise AttributeError(attribute)
        text = lua_text(f"{self.name}.lua")
        source = f"-- {self.name}\n{as_sent(include_parts(text))}"
        LuaScript.__init__(self, self.name, source, read_header(text))  # not `super()`: it may be a LuaScript by now
        self.__class__ = LuaScript  # type: ignore[assignment]  # has the same slots, and is quicker to read
        return getattr(self, attribute)


def command(name: str, args: int) -> CommandPrefix:
    """Return the prefix of a plain command with ``args`` arguments."""
    start = b"*%d\r\n" % (1 + args) + bulk(name)
    return CommandPrefix(name, "", start, start)


def pack(values: Iterable[Any]) -> bytes:
    """Pack keys and arguments, which follow the prefix."""
    return b"".join(map(bulk, values))


@cache
def load(name: str) -> LuaScript:
    """Return a script from ``lua/`` as it is sent: parts included, and without comments except the name."""
    return _EngineScript(name)


def include_parts(text: str) -> str:
    """Replace each line ``-- @include name`` by the part of ``lua/lib/``, and constants by their numbers.

    A part within a part comes without its own comment.
    """
    return with_numbers(
        _replace_includes(text, lambda name: _replace_includes(lua_text(f"lib/{name}.lua"), _body_of_part))
    )


def with_numbers(text: str) -> str:
    """Replace the names of constants by their numbers."""
    for name, number in IN_SCRIPTS.items():
        text = text.replace(name, str(number))
    return text


def _replace_includes(text: str, part: Callable[[str], str]) -> str:
    return "".join(
        part(line.split()[-1]) if line.lstrip(" ").startswith(_INCLUDE) else line
        for line in text.splitlines(keepends=True)
    )


def as_sent(text: str) -> str:
    """Drop the comment lines of a script, and the indents. No string of ours has more than one line."""
    lines = (line.lstrip(" ") for line in text.splitlines(keepends=True))
    return "".join(line for line in lines if not line.startswith(("--", "\n")))


def _body_of_part(name: str) -> str:
    return lua_text(f"lib/{name}.lua").partition("\n\n")[2]


def lua_text(path: str) -> str:
    """Return the text of a file of ``lua/``. Raises FileNotFoundError."""
    try:
        return lua_texts()[path]
    except KeyError:
        raise FileNotFoundError(f"handfast has no file {path}") from None


@cache
def lua_texts() -> dict[str, str]:
    """Read all files of ``lua/``, when the first is needed.

    So a release needs no file, whatever has become of the file descriptors or the root folder since the acquire.
    """
    return {
        folder + file.name: file.read_text(encoding="utf-8")
        for folder, files_of in (("", _LUA), ("lib/", _LUA / "lib"))
        for file in files_of.iterdir()
        if file.name.endswith(".lua")
    }
