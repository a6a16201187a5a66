"""Finding out which rights a user lacks, before a script fails for lack of one.

A server refuses a command within a script when it is reached, and the script's earlier writes stay. So it is better to
ask first. Redis from 7.0 on and any Valkey can tell a script which commands the user may run.
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
    "asking": "ASKING",
    "client|setinfo": "CLIENT SETINFO LIB-NAME x",
    "cluster|slots": "CLUSTER SLOTS",
    "config|get": "CONFIG GET x",
    "eval": "EVAL x 0",
    "evalsha": "EVALSHA x 0",
    "info": "INFO",
    "pubsub|numsub": "PUBSUB NUMSUB x",
    "pubsub|shardnumsub": "PUBSUB SHARDNUMSUB x",
    "time": "TIME",
}
"""An example of each command whose first argument is neither a key nor a channel."""

_ON_CHANNELS = {
    "subscribe": "SUBSCRIBE {}",
    "publish": "PUBLISH {} x",
    "ssubscribe": "SSUBSCRIBE {}",
    "spublish": "SPUBLISH {} x",
}
"""An example of each command on a channel."""

_GLOB = re.compile(r"\\(?P<plain>.)|\[(?P<not>\^?)(?P<one>[^\]]*)\]|(?P<many>\*)|(?P<any>\?)|(?P<other>.)", re.DOTALL)


def missing_rights(client: Any, rights: Rights) -> tuple[str, ...]:
    """Return the rights that the user of a client lacks.

    Changes nothing, and writes nothing to the server's ACL LOG. A script asks, so if the user may not run scripts, all
    commands are returned, and it takes a second call to find the missing keys and channels. If it may use none of the
    keys, or none of the channels, they are returned with all commands on them, which cannot be asked about either.

    Args:
        client: A client of redis-py, logged in as the user.
        rights: The rights that the user should have.

    Returns:
        The missing rights as rules of ACL SETUSER, such as ``"+zadd"``; empty if none is missing.

    Raises:
        ServerUnsupported: The server cannot tell, as Redis 6.2.
        ServerRefused: The user may run only loaded scripts, and the script of this check is not loaded.
        redis.RedisError: An error of the client, such as a failed login.

    """
    keys = {f"~{pattern}": _example(pattern) for pattern in rights.keys}
    channels = {f"&{pattern}": _example(pattern) for pattern in rights.channels}
    senders = [command for command in _ON_CHANNELS if command in rights.commands]
    try:
        refused = _refused(client, _on_keys_and_channels(keys, channels, senders))
    except NoPermissionError as error:
        # EVAL is tried where the server does not know the script. A user of loaded scripts is refused it as
        # intended: then the script is what is missing, and no right.
        if "'eval'" not in str(error) or "eval" in rights.running:
            return tuple(rule for rule in rights.rules() if rule[0] == "+")
        message = f"the script that checks rights is not loaded, and the user may not send it; run handfast script load ({error})"
        raise ServerRefused(message, name=CHECK.name, changed_nothing=True, reply=str(error)) from error
    missing = {rule for rule in keys if rule in refused}
    # Only where every command is refused on it: one that is refused on all channels is a missing command.
    missing |= {rule for rule in channels if all(f"{rule} {command}" in refused for command in senders)}
    # Commands are asked about with a key and a channel which the user may use.
    key = next((key for rule, key in keys.items() if rule not in missing), None)
    channel = next((name for rule, name in channels.items() if rule not in missing), None)
    missing |= _missing_commands(client, rights, key, channel)
    return tuple(rule for rule in rights.rules() if rule in missing)


def _missing_commands(client: Any, rights: Rights, key: str | None, channel: str | None) -> set[str]:
    """Return the commands that the user lacks, and those that nothing can be asked about."""
    examples = {f"+{command}": _example_of(command, key, channel) for command in rights.commands}
    askable = {rule: example for rule, example in examples.items() if example is not None}
    return {*_refused(client, askable), *(examples.keys() - askable.keys())}


def _on_keys_and_channels(keys: dict[str, str], channels: dict[str, str], senders: list[str]) -> dict[str, str]:
    """Return the calls that tell which keys and channels the user may use.

    The script that asks runs, so its user may run scripts: EVALSHA can only be refused because of its key.
    """
    calls = {rule: f"EVALSHA x 1 {key}" for rule, key in keys.items()}
    for rule, name in channels.items():
        calls |= {f"{rule} {command}": _ON_CHANNELS[command].format(name) for command in senders}
    return calls


def _example_of(command: str, key: str | None, channel: str | None) -> str | None:
    """Return an example of a command; None if the user may use it on no key or channel."""
    if command in _WITHOUT_KEY:
        return _WITHOUT_KEY[command]
    if command in _ON_CHANNELS:
        return None if channel is None else _ON_CHANNELS[command].format(channel)
    return None if key is None else f"{command} {key}"


def _refused(client: Any, commands: Mapping[str, str]) -> list[str]:
    """Return the names of the commands that the user may not send."""
    reply = CHECK(client, commands=list(commands.values()))
    if reply.tag == "unknown":
        raise ServerUnsupported(
            "this server cannot tell what a user may do: it needs Redis 7.0 or newer, or any Valkey; use ACL GETUSER instead",
            name=CHECK.name,
        )
    names = list(commands)
    return [names[place - 1] for place in reply.places]


def _example(pattern: str) -> str:
    """Return a string that the pattern matches."""

    def one(found: re.Match[str]) -> str:
        if found["one"] is not None:
            listed = found["one"].replace("\\", "")
            return next(c for c in map(chr, range(33, 127)) if c not in listed) if found["not"] else listed[:1]
        return found["plain"] or ("x" if found["many"] or found["any"] else found["other"])

    return _GLOB.sub(one, pattern)
