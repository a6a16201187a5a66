"""A Lua script as a thing with a contract: its header is read, not just written.

A script's first comment names its KEYS, its ARGV and its REPLYs (tagged arrays). `load` reads the header,
puts the included parts in place and computes the digest, so that a call is EVALSHA at once and the whole
source only where the server does not know it. ``tools/check_scripts.py`` holds each header against its body.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from holdfast.wire.resp import bulk

__all__ = ["EngineScript", "Header", "load", "read_header"]

_LUA = files("holdfast.wire") / "lua"
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Header:
    """What a script says of itself: names of keys and arguments in order, and the fields of each reply."""

    keys: tuple[str, ...]
    args: tuple[str, ...]
    replies: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class EngineScript:
    """One of the engine's scripts, whole and ready to be called."""

    name: str
    source: str
    header: Header
    digest: str = field(init=False)
    by_digest: bytes = field(init=False, repr=False)
    """The head of a call as EVALSHA, up to and with the number of keys."""
    by_source: bytes = field(init=False, repr=False)
    """The same as EVAL, for a server that has forgotten the script or never knew it."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        count = len(self.header.keys)
        start = b"*%d\r\n" % (3 + count + len(self.header.args))
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "by_digest", start + bulk("EVALSHA") + bulk(digest) + bulk(count))
        object.__setattr__(self, "by_source", start + bulk("EVAL") + bulk(self.source) + bulk(count))


def read_header(source: str) -> Header:
    """Read the KEYS, ARGV and REPLY lines from the comment that a script begins with."""
    words: dict[str, list[list[str]]] = {"KEYS": [], "ARGV": [], "REPLY": []}
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        first, *rest = line.removeprefix("--").split() or [""]
        if first in words:
            words[first].append(rest)
    return Header(
        keys=tuple(word for line in words["KEYS"] for word in line),
        args=tuple(word for line in words["ARGV"] for word in line),
        replies={tag: tuple(fields) for tag, *fields in words["REPLY"]},
    )


@cache
def load(name: str) -> EngineScript:
    """The script of that name from ``lua/``, with its parts in place."""
    text = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    source = _INCLUDE.sub(lambda match: (_LUA / "parts" / f"{match[1]}.lua").read_text(encoding="utf-8"), text)
    return EngineScript(name, source, read_header(text))
