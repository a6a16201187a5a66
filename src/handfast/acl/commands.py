"""Which commands a script of ours sends.

The linter's parser can tell for anybody's script, but it is an extra, and ours are plain: each command is a literal. Where
one is not, this says so instead of guessing; a test holds the answers against the parser's.
"""

from __future__ import annotations

import re
from functools import cache

__all__ = ["commands_of"]

_COMMENT = re.compile(r"--.*$", re.MULTILINE)
_CALL = re.compile(r"\bredis\.p?call\b")
_LITERAL = re.compile(r"\(\s*'(\w+)'(?:\s*,\s*'(\w+)')?")
_CONTAINERS = frozenset({"PUBSUB"})
"""Those whose first argument is a command of its own to the server."""


@cache
def commands_of(source: str) -> frozenset[str]:
    """The commands of a script as rights name them, such as ``zadd`` and ``pubsub|numsub``.

    Raises ValueError for a call whose command is no literal, and for one to the server under another name.
    """
    code = _COMMENT.sub("", source)
    found = set()
    for call in _CALL.finditer(code):
        literal = _LITERAL.match(code, call.end())
        if literal is None:
            line = code.count("\n", 0, call.start()) + 1
            raise ValueError(f"the command on line {line} is no literal, so its right is not known")
        name, sub = literal.groups()
        found.add(f"{name}|{sub}".lower() if name in _CONTAINERS else name.lower())
    return frozenset(found)
