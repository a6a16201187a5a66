"""What the server's error replies mean.

An error raised inside a script arrives wrapped in other words up to Redis 6.2. A code counts only where the server itself
puts it, and the common ones only with the server's sentence behind them: a script of the user's may answer what it likes.
"""

from __future__ import annotations

import re

from handfast.errors import ServerRefused

__all__ = ["is_failover", "is_noscript", "is_refusal", "is_transient", "refusal", "subscribe_denied"]

_CODE = re.compile(
    r"(?:(?:ERR )?Error running script \(.*?\): (?:@user_script: ?\d+: )*-?)?"
    r"(?:(OOM) command not allowed|(READONLY) You can't write|(BUSY) \w+ is busy|(LOADING) \w+ is loading"
    r"|(NOREPLICAS) Not enough|(MISCONF) (?:\w+ is configured|Errors writing)|(NOPERM) |(MASTERDOWN) Link with"
    r"|(TRYAGAIN) Multiple keys|(CLUSTERDOWN) (?:The cluster|Hash slot)|(MOVED|ASK) \d+ |(CROSSSLOT) Keys in)"
)
_NO_RIGHT = re.compile(r"ACL failure in script|executing the script can't")
"""How servers say NOPERM where it is the script that lacks a right."""
_COMMAND = re.compile(r"run the '([\w|]+)' command")
_PASSING = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"})
_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN"})
_ADVICE = {
    "OOM": "the server is out of memory; raise its maxmemory or free some",
    "NOREPLICAS": "too few replicas are in sync; see min-replicas-to-write",
    "READONLY": "this server is a replica; name the primary, or use Sentinel so that it is found",
    "MISCONF": "the server cannot persist and therefore takes no writes; see its log",
    "MOVED": "the server is part of a cluster, which is not supported yet; use a single primary",
    "CROSSSLOT": "the server is part of a cluster, which is not supported yet; use a single primary",
}


def is_noscript(text: str) -> bool:
    """Whether the server does not know the script: it wants the source.

    In its very words: a script may answer NOSCRIPT as well, and then it has run.
    """
    return text.startswith("NOSCRIPT No matching script")


def is_refusal(text: str) -> bool:
    """Whether it is the server that will not, for reasons of its own."""
    return bool(_code(text))


def is_transient(text: str) -> bool:
    """Whether the state that made the server refuse is likely to pass in seconds."""
    return _code(text) in _PASSING


def is_failover(text: str) -> bool:
    """Whether another server may be the primary by now, so that a new connection finds it."""
    return _code(text) in _ELSEWHERE


def refusal(text: str, name: str, *, again: bool = False) -> ServerRefused:
    """The error for a refusal that will not pass, with what to do about it.

    ``again`` says that the script was sent before without an answer: the server may have run it, or may still do so.
    """
    code = _code(text)
    advice = _about_rights(text) if code == "NOPERM" else _ADVICE.get(code, "see the server's words")
    message = f"the server refused a script for {name!r}: {advice} ({text})"
    return ServerRefused(message, name=name, changed_nothing=code == "OOM" and not again, words=text)


def subscribe_denied(text: str, inbox: str) -> ServerRefused:
    """Return the error for a session that may not subscribe: no grant could reach it."""
    found = _COMMAND.search(text)
    command = found[1] if found else "subscribe"
    message = (
        f"the server does not let us listen to {inbox!r}: allow it with ACL SETUSER … +{command} &{inbox}, "
        f"or all that is needed with what `handfast acl` prints ({text})"
    )
    return ServerRefused(message, name=inbox, changed_nothing=True, words=text)


def _about_rights(text: str) -> str:
    """What to do about a right that the user lacks. Servers before Redis 7.2 do not say which, where it is the script's."""
    found = _COMMAND.search(text)
    if found and found[1] == "eval":
        return (
            "the user has too few rights to send this script, which the server does not know (any more); load it with "
            "`handfast script load`, or allow it with ACL SETUSER … +eval"
        )
    missing = f"ACL SETUSER … +{found[1]}" if found else "ACL SETUSER"
    return f"the user has too few rights for this script; give them with {missing}, `handfast acl` prints all that it needs"


def _code(text: str) -> str:
    found = _CODE.match(text)
    return next(filter(None, found.groups())) if found else "NOPERM" if _NO_RIGHT.search(text) else ""
