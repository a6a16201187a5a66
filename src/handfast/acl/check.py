"""Asking a server which rights a user does not have, before anything fails for want of them.

A server that refuses a command within a script refuses it there and then: what the script had written before it stays. So
it is better to ask first. Redis from 7.0 on and any Valkey can tell a script what whoever runs it may do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redis.exceptions import NoPermissionError

from handfast.acl.rights import Rights
from handfast.errors import ServerRefused, ServerUnsupported
from handfast.script import Script

__all__ = ["CHECK", "missing_rights"]

CHECK = Script.from_package("handfast.acl", "lua/rights_check.lua")

_WITHOUT_KEY = {
    "client|setinfo": "CLIENT SETINFO LIB-NAME x",
    "eval": "EVAL x 0",
    "evalsha": "EVALSHA x 0",
    "ping": "PING",
    "pubsub|numsub": "PUBSUB NUMSUB x",
    "time": "TIME",
}
"""A whole command for each that begins with no key and no channel."""

_ON_CHANNELS = {"subscribe": "SUBSCRIBE {}", "publish": "PUBLISH {} x"}

_GLOB = re.compile(r"\\(?P<plain>.)|\[(?P<not>\^?)(?P<one>[^\]]*)\]|(?P<many>\*)|(?P<any>\?)|(?P<other>.)", re.DOTALL)


def missing_rights(client: Any, rights: Rights) -> tuple[str, ...]:
    """Which of these rights the user does not have whom a client of redis-py has logged in, as rules of ACL SETUSER.

    Nothing is changed, and no refusal gets into the server's log. Who may not run scripts, or may use none of the keys, is
    told that alone: once it is granted, ask again for the rest. Where none of the channels may be used, they are named
    together with the commands that take one, since it may be for want of these.

    Raises ServerUnsupported where the server cannot tell, which goes for Redis 6.2; ServerRefused where the user may run
    loaded scripts only, and the one that asks is not loaded; and the client library's errors.
    """
    keys = {pattern: _example(pattern) for pattern in rights.keys}
    channels = {pattern: _example(pattern) for pattern in rights.channels}
    senders = {command: form for command, form in _ON_CHANNELS.items() if command in rights.commands}
    # Whoever runs this script may run scripts: what else could be refused of one than its key?
    first = {f"~{pattern}": f"EVALSHA x 1 {key}" for pattern, key in keys.items()}
    first |= {
        f"&{pattern} {command}": form.format(name)
        for pattern, name in channels.items()
        for command, form in senders.items()
    }
    try:
        refused = _refused(client, first)
    except NoPermissionError as error:
        if "'eval'" not in str(error):
            return ("+evalsha",)
        if "eval" in rights.running:
            return ("+eval",)
        message = f"the script that asks for rights is not loaded, and the user may load none: see handfast script load ({error})"
        raise ServerRefused(message, name=CHECK.name, changed_nothing=True, words=str(error)) from error
    silent = {pattern for pattern in channels if all(f"&{pattern} {command}" in refused for command in senders)}
    key = next((key for pattern, key in keys.items() if f"~{pattern}" not in refused), None)
    channel = next((name for pattern, name in channels.items() if pattern not in silent), None)
    commands = {f"+{command}": _whole(command, key, channel) for command in rights.commands}
    missing = {f"~{pattern}" for pattern in keys} & set(refused) | {f"&{pattern}" for pattern in silent}
    missing |= set(_refused(client, {rule: whole for rule, whole in commands.items() if whole is not None}))
    missing |= {f"+{command}" for command in senders if channel is None}
    return tuple(rule for rule in rights.rules() if rule in missing)


def _whole(command: str, key: str | None, channel: str | None) -> str | None:
    """An example of a command; None where there is none that the user may use it on."""
    if command in _WITHOUT_KEY:
        return _WITHOUT_KEY[command]
    if command in _ON_CHANNELS:
        return None if channel is None else _ON_CHANNELS[command].format(channel)
    return None if key is None else f"{command} {key}"


def _refused(client: Any, commands: Mapping[str, str]) -> list[str]:
    """Which of the commands the user may not send, by what they are called here."""
    reply = CHECK(client, commands=list(commands.values()))
    if reply.tag == "unknown":
        raise ServerUnsupported(
            "this server cannot say what a user may do, which takes Redis 7.0 or any Valkey; see ACL GETUSER",
            name=CHECK.name,
        )
    names = list(commands)
    return [names[place - 1] for place in reply.places]


def _example(pattern: str) -> str:
    """What a pattern matches."""

    def one(found: re.Match[str]) -> str:
        if found["one"] is not None:
            listed = found["one"].replace("\\", "")
            return next(c for c in map(chr, range(33, 127)) if c not in listed) if found["not"] else listed[:1]
        return found["plain"] or ("x" if found["many"] or found["any"] else found["other"])

    return _GLOB.sub(one, pattern)
