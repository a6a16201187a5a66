"""The commands sent by a script of Handfast.

The linter's parser could read them from any script, but it is an extra. In our scripts each command is a literal, so
regular expressions suffice; anything else raises. A test compares the results with the parser's.
"""

from __future__ import annotations

import re
from functools import cache

__all__ = ["commands_of"]

_COMMENT = re.compile(r"--.*$", re.MULTILINE)
_CALL = re.compile(r"\bredis\.p?call\b")
_LITERAL = re.compile(r"\(\s*'(\w+)'(?:\s*,\s*'(\w+)')?")
_CONTAINERS = frozenset({"PUBSUB"})
"""Commands whose first argument is a subcommand with a right of its own."""


@cache
def commands_of(source: str) -> frozenset[str]:
    """Return the commands of a script as ACL rules name them, such as ``zadd`` and ``pubsub|numsub``.

    Args:
        source: The Lua source of the script.

    Returns:
        The names, in lower case.

    Raises:
        ValueError: The command of a call is not a literal.

    """
    code = _COMMENT.sub("", source)
    found = set()
    for call in _CALL.finditer(code):
        literal = _LITERAL.match(code, call.end())
        if literal is None:
            line = code.count("\n", 0, call.start()) + 1
            raise ValueError(f"the command on line {line} is not a literal, so its right is unknown")
        name, sub = literal.groups()
        found.add(f"{name}|{sub}".lower() if name in _CONTAINERS else name.lower())
    return frozenset(found)
