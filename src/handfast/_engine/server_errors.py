"""The meaning of the server's error replies, and the line of a script to which they point.

Servers word an error raised inside a script differently. Up to Redis 6.2 it is
``Error running script (call to f_…): @user_script:3: user_script:3: …``, from 7.0 on
``user_script:3: … script: <digest>, on @user_script:3.``, and Valkey leaves the digest out. An error that a script
returns on purpose (``redis.error_reply``) has no position.

A user's script may return any error. A code therefore counts only where the server puts it, and the common codes only
with the server's sentence behind them.
"""

from __future__ import annotations

import ast
import contextlib
import re

from handfast._engine.header import lines_of
from handfast._engine.script import LuaScript
from handfast.errors import ScriptError, ServerRefused, UnknownLayout

__all__ = [
    "is_cut_off",
    "is_failover",
    "is_noscript",
    "is_on_the_move",
    "is_refusal",
    "is_transient",
    "may_have_written",
    "refusal",
    "script_error",
    "subscribe_denied",
    "takes_no_scripts",
]

_CODE = (
    r"(?:(?:ERR )?Error running script \(.*?\): (?:@user_script: ?\d+: )*-?)?"
    r"(?:(OOM) command not allowed|(READONLY) You can't write|(BUSY) \w+ is busy|(LOADING) \w+ is loading"
    r"|(NOREPLICAS) Not enough|(MISCONF) (?:\w+ is configured|Errors writing)|(NOPERM) |(MASTERDOWN) Link with"
    r"|(TRYAGAIN) Multiple keys|(CLUSTERDOWN) (?:The cluster|Hash slot)|(MOVED|ASK) \d+ |(CROSSSLOT) Keys in)"
)
_TORN = r"(?i)attempted to access a non local key in a cluster node"
"""A script is cut off, in the middle of its writes, where it has emptied a key of a slot that is moving away and comes
back to it. So is one that uses a key which it does not declare. Valkey begins the sentence with this, in capitals."""
_NO_LUA = r"(?i)^(?:ERR )?(?:unknown command .evalsha\b|could not find scripting engine)"
_SCRIPT_NOPERM = r"ACL failure in script|executing the script can't"
"""NOPERM for a command inside a script, as servers word it."""
_COMMAND = r"run the '([\w|]+)' command"
_USES = {
    "scan": " --for names",
    **dict.fromkeys(("getrange", "xadd", "xrange", "xrevrange"), " --for operate"),
    "info": " --for check_server",
    "config|get": " --for check_server",
    "wait": " --for min_replicas",
}
"""The option of `handfast acl` for each command that clients send outside of scripts, and that its default lacks."""
_RUNS_SCRIPTS = r"run the 'eval(?:sha)?' command|nothing was done: the user has no permissions "
"""In a NOPERM: the user may run no script, so none has begun, and no script calls these commands; or the script has looked
what the user may do, see ``lua/lib/rights.lua``."""

_TAKES_NO_SCRIPTS = r"run the 'eval' command|(?i:unknown command .eval\b)"

_TRANSIENT = frozenset({"LOADING", "BUSY", "TRYAGAIN", "TORN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"})
_MAY_HAVE_WRITTEN = frozenset({"", "NOPERM", "TORN"})
"""A command in the middle of a script may lack a right. All other refusals come before the script or from its first
write."""
_MOVING = frozenset({"TRYAGAIN", "TORN"})
_FAILOVER = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN"})
_IS_CLUSTER = "the server is part of a cluster; name it with redis+cluster://host:port, or pass a RedisCluster client"
_MOVES = "its slot of the cluster is moving to another primary; try again when it has moved"
_ADVICE = {
    "OOM": "the server is out of memory; raise its maxmemory or free some",
    "NOREPLICAS": "too few replicas are in sync; see min-replicas-to-write",
    "READONLY": "this server is a replica; name the primary, or use Sentinel so that it is found",
    "MISCONF": "the server cannot persist and therefore takes no writes; see its log",
    "MOVED": _IS_CLUSTER,
    "CLUSTERDOWN": "the cluster does not serve its slot now; see CLUSTER INFO at its nodes",
    "TRYAGAIN": _MOVES,
    "TORN": _MOVES,
    "NOLUA": "it runs no scripts, or not those in Lua; use a server that does",
    "CROSSSLOT": "its names are in different slots of the cluster",
}

_LAYOUT = r"\bstored in (layout \d+)\b"
"""The error that scripts raise for another layout, before any write; see ``lua/lib/state.lua``."""

_NO_WAIT = r"(?i)(?:ERR )?unknown command ['`]?WAIT\b"

_NOT_IN_SCRIPTS = r"command is not allowed from script|Unknown (?:\w+ )?command called from script"

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


def is_cut_off(text: str) -> bool:
    """Return whether the script was cut off in the middle, so that what it had written by then stays."""
    return _code(text) == "TORN"


def is_on_the_move(text: str) -> bool:
    """Return whether the server refused because a slot of the cluster is moving to another primary."""
    return _code(text) in _MOVING


def is_failover(text: str) -> bool:
    """Return whether another server may be the primary by now, so that a new connection finds it."""
    return _code(text) in _FAILOVER


def may_have_written(text: str) -> bool:
    """Return whether the script may have written something before the server refused the rest."""
    code = _code(text)
    return code in _MAY_HAVE_WRITTEN and not (code == "NOPERM" and re.search(_RUNS_SCRIPTS, text))


def takes_no_scripts(text: str) -> bool:
    """Return whether the user may run only scripts that the server knows."""
    return re.search(_TAKES_NO_SCRIPTS, text) is not None


def refusal(text: str, name: str, *, again: bool = False) -> ServerRefused:
    """Return the error for a refusal that a retry does not end, with advice.

    ``again`` says that the script was sent before without a reply: the server may have run it, or may do so later.
    """
    if found := re.search(_LAYOUT, text):
        return UnknownLayout(name, found[1], changed_nothing=not again, reply=text)
    code = _code(text)
    advice = _advice_on_rights(text) if code == "NOPERM" else _ADVICE.get(code, "see the server's message")
    if re.match(_NO_WAIT, text):
        advice = "it has no WAIT, so no lease can wait for its replicas; leave min_replicas out"
    if re.search(_NOT_IN_SCRIPTS, text):
        advice = (
            "it does not run a command that the script needs, as services without TIME in scripts; use another server"
        )
    message = f"the server refused {_what(text)} for {name!r}: {advice} ({text})"
    return ServerRefused(message, name=name, changed_nothing=not (again or may_have_written(text)), reply=text)


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

    None if the server names no line of the script, or if the server refused the command: then the script is not at
    fault.
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
    if not 0 < line <= len(lines) or (is_refusal(code) and not is_cut_off(code)):
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
    use = _USES.get(found[1], "") if found else ""
    return (
        f"the user has too few rights for that; give them with {missing}, `handfast acl{use}` prints all that it needs"
    )


def _what(text: str) -> str:
    """Name the thing that the server refused: a script, or a command that is sent outside of scripts."""
    found = re.search(_COMMAND, text)
    is_command = found is not None and found[1] in _USES and not re.search(_SCRIPT_NOPERM, text)
    return found[1].upper().replace("|", " ") if found is not None and is_command else "a script"


def _code(text: str) -> str:
    found = re.match(_CODE, text)
    if found:
        return str(next(filter(None, found.groups())))
    if re.match(_NO_LUA, text):
        return "NOLUA"
    return "NOPERM" if re.search(_SCRIPT_NOPERM, text) else "TORN" if re.search(_TORN, text) else ""
