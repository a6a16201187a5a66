"""Where in a script an error arose, from what the server says of it.

Servers wrap it in different words: up to 6.2 as ``Error running script (call to f_…): @user_script:3: user_script:3: …``,
from 7.0 on as ``user_script:3: … script: <digest>, on @user_script:3.``, and Valkey leaves the digest out. An error that
a script answers on purpose (``redis.error_reply``) has no position, and is not the script's fault. In a pipeline the
client library puts the whole command in front, and quotes the rest when the pipeline is a cluster's and asyncio.
"""

from __future__ import annotations

import ast
import contextlib
import re

from handfast._engine.header import lines_of
from handfast._engine.script import LuaScript
from handfast._engine.server_errors import is_refusal
from handfast.errors import ScriptError

__all__ = ["script_error"]

_PIPELINE = re.compile(r"^Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
_QUOTED = re.compile(r"\((['\"]).*\1,\)", re.DOTALL)
_WRAPPING = re.compile(r"^(?:ERR )?(?:Error (?:running|compiling) script \(.*?\): )?")
_BEFORE = re.compile(r"^@?user_script: ?(\d+): ?")
_BEHIND = re.compile(r",? script: (?:[0-9a-f]{40}, )?on @user_script:(\d+)\.$")


def script_error(script: LuaScript, text: str) -> ScriptError | None:
    """The error with the script's name, the line and what stands there.

    None where the server names no line of the script, and where it is the server that will not: that is not its author's.
    """
    text = _PIPELINE.sub("", text)
    if _QUOTED.fullmatch(text):
        with contextlib.suppress(SyntaxError, ValueError):
            (text,) = ast.literal_eval(text)
    behind = _BEHIND.search(text)
    line = int(behind[1]) if behind else 0
    reason = _WRAPPING.sub("", text[: behind.start()] if behind else text)
    while before := _BEFORE.match(reason):
        line = int(before[1])
        reason = reason[before.end() :]
    lines = lines_of(script.source)
    code = reason.removeprefix("-")  # with its sign up to Redis 6.2
    if not 0 < line <= len(lines) or is_refusal(code):
        return None
    return ScriptError(script.name, line, lines[line - 1].strip(), reason)
