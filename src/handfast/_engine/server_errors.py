"""What the server's error replies mean, and to which line of a script they point.

Servers word an error that is raised inside a script differently. Up to Redis 6.2 it is
``Error running script (call to f_…): @user_script:3: user_script:3: …``, from 7.0 on
``user_script:3: … script: <digest>, on @user_script:3.``, and Valkey leaves the digest out. An error that a script returns
on purpose (``redis.error_reply``) has no position.

A user's script may return any error. A code therefore counts only where the server puts it, and the common codes only with
the server's sentence behind them.
"""

from __future__ import annotations

import ast
import contextlib
import re

from handfast._engine.header import lines_of
from handfast._engine.script import LuaScript
from handfast.errors import ScriptError, ServerRefused

__all__ = [
    "is_failover",
    "is_noscript",
    "is_refusal",
    "is_transient",
    "refusal",
    "script_error",
    "subscribe_denied",
]

_CODE = (
    r"(?:(?:ERR )?Error running script \(.*?\): (?:@user_script: ?\d+: )*-?)?"
    r"(?:(OOM) command not allowed|(READONLY) You can't write|(BUSY) \w+ is busy|(LOADING) \w+ is loading"
    r"|(NOREPLICAS) Not enough|(MISCONF) (?:\w+ is configured|Errors writing)|(NOPERM) |(MASTERDOWN) Link with"
    r"|(TRYAGAIN) Multiple keys|(CLUSTERDOWN) (?:The cluster|Hash slot)|(MOVED|ASK) \d+ |(CROSSSLOT) Keys in)"
)
_SCRIPT_NOPERM = r"ACL failure in script|executing the script can't"
"""NOPERM for a command inside a script, as servers word it."""
_COMMAND = r"run the '([\w|]+)' command"

_TRANSIENT = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"})
_FAILOVER = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN"})
_NO_CLUSTER = "the server is part of a cluster, which is not supported yet; use a single primary"
_ADVICE = {
    "OOM": "the server is out of memory; raise its maxmemory or free some",
    "NOREPLICAS": "too few replicas are in sync; see min-replicas-to-write",
    "READONLY": "this server is a replica; name the primary, or use Sentinel so that it is found",
    "MISCONF": "the server cannot persist and therefore takes no writes; see its log",
    "MOVED": _NO_CLUSTER,
    "CROSSSLOT": _NO_CLUSTER,
}

_PIPELINE = r"(?s)^Command # \d+ \(.*\) of pipeline caused error: "
"""What redis-py puts in front of an error in a pipeline."""
_QUOTED = r"(?s)\((['\"]).*\1,\)"
"""The rest of it, as redis-py's asyncio pipelines of a cluster quote it."""
_WRAPPING = r"^(?:ERR )?(?:Error (?:running|compiling) script \(.*?\): )?"
_POSITION_BEFORE = r"^@?user_script: ?(\d+): ?"
_POSITION_BEHIND = r",? script: (?:[0-9a-f]{40}, )?on @user_script:(\d+)\.$"


def is_noscript(text: str) -> bool:
    """Return whether the server lacks the script and needs its source.

    A script that has run may return an error that begins with NOSCRIPT, so the server's sentence must follow.
    """
    return text.startswith("NOSCRIPT No matching script")


def is_refusal(text: str) -> bool:
    """Return whether the server refused the command, rather than the script having failed."""
    return bool(_code(text))


def is_transient(text: str) -> bool:
    """Return whether the server refused because of a state that is likely to end within seconds."""
    return _code(text) in _TRANSIENT


def is_failover(text: str) -> bool:
    """Return whether another server may be the primary by now, so that a new connection finds it."""
    return _code(text) in _FAILOVER


def refusal(text: str, name: str, *, again: bool = False) -> ServerRefused:
    """Return the error for a refusal that a retry does not end, with advice.

    ``again`` says that the script was sent before without a reply: the server may have run it, or may do so later.
    """
    code = _code(text)
    advice = _advice_on_rights(text) if code == "NOPERM" else _ADVICE.get(code, "see the server's message")
    message = f"the server refused a script for {name!r}: {advice} ({text})"
    return ServerRefused(message, name=name, changed_nothing=code == "OOM" and not again, reply=text)


def subscribe_denied(text: str, channel: str) -> ServerRefused:
    """Return the error for a session that may not subscribe to its channel, or may not ask who has."""
    found = re.search(_COMMAND, text)
    missing = "+pubsub|numsub" if found and found[1].startswith("pubsub") else f"+subscribe &{channel}"
    message = (
        f"the server refused the subscription to {channel!r}: allow it with ACL SETUSER … {missing}, "
        f"or give the user all rights that `handfast acl` prints ({text})"
    )
    return ServerRefused(message, name=channel, changed_nothing=True, reply=text)


def script_error(script: LuaScript, text: str) -> ScriptError | None:
    """Return the error with the script's name and the line that failed.

    None if the server names no line of the script, or if the server refused the command: then the script is not at fault.
    """
    text = re.sub(_PIPELINE, "", text)
    if re.fullmatch(_QUOTED, text):
        with contextlib.suppress(SyntaxError, ValueError):
            (text,) = ast.literal_eval(text)
    behind = re.search(_POSITION_BEHIND, text)
    line = int(behind[1]) if behind else 0
    reason = re.sub(_WRAPPING, "", text[: behind.start()] if behind else text)
    while before := re.match(_POSITION_BEFORE, reason):
        line = int(before[1])
        reason = reason[before.end() :]
    lines = lines_of(script.source)
    code = reason.removeprefix("-")  # Redis up to 6.2 keeps the sign of an error reply
    if not 0 < line <= len(lines) or is_refusal(code):
        return None
    return ScriptError(script.name, line, lines[line - 1].strip(), reason)


def _advice_on_rights(text: str) -> str:
    """Return advice on a right that the user lacks. Servers before Redis 7.2 do not name it if a script lacks it."""
    found = re.search(_COMMAND, text)
    if found and found[1] == "eval":
        return (
            "the user has too few rights to send this script, which the server does not know (any more); load it with "
            "`handfast script load`, or allow it with ACL SETUSER … +eval"
        )
    missing = f"ACL SETUSER … +{found[1]}" if found else "ACL SETUSER"
    return f"the user has too few rights for this script; give them with {missing}, `handfast acl` prints all that it needs"


def _code(text: str) -> str:
    found = re.match(_CODE, text)
    return next(filter(None, found.groups())) if found else "NOPERM" if re.search(_SCRIPT_NOPERM, text) else ""
