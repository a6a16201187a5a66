"""Commands, options and functions that the oldest server lacks on which the script is to run.

Which that is stands in the header, ``-- NEEDS redis 7.0, valkey 8.0``, else it is told to `check`.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast.lint.findings import Finding
from handfast.lint.script import Body, Command
from handfast.lint.versions import API, COMMANDS, OPTIONS, SHEBANG, Since, missing_on

__all__ = ["RULES", "check"]

RULES = {"too-new": "The oldest server that the script is for has everything that it uses."}


def check(body: Body) -> Iterator[Finding]:
    """The first line, the commands, and the functions."""
    if body.source.startswith("#!") and (why := missing_on(SHEBANG, body.oldest)):
        message = f"this first line is too new, {why}: {_mend(SHEBANG)}"
        yield Finding(body.name, 1, 1, "too-new", "error", message)
    for command in body.commands:
        yield from _command(body, command)
    for node in body.nodes:
        if node.kind == "index" or (node.kind == "name" and node in body.scopes.globals_read):
            path = body.flow.path(node)
            if path == "server" and "redis" in body.oldest:
                yield body.finding("too-new", node, "only Valkey calls it server: write redis, as both do")
            elif path in API and (why := missing_on(API[path], body.oldest)):
                yield body.finding("too-new", node, f"{path} is too new, {why}: {_mend(API[path])}")
        if node.kind == "name" and node.word == "print" and node in body.scopes.globals_read:
            yield body.finding("too-new", node, "print is gone since Redis 7.0: write redis.log(redis.LOG_NOTICE, ...)")


def _command(body: Body, command: Command) -> Iterator[Finding]:
    since = COMMANDS.get(command.name)
    if since is not None and (why := missing_on(since, body.oldest)):
        yield body.finding("too-new", command.node, f"{command.name} is too new, {why}: {_mend(since)}")
    for place, word in enumerate(command.words):
        option = OPTIONS.get((command.name, word or ""))
        if option is not None and _is_option(command, place) and (why := missing_on(option, body.oldest)):
            yield body.finding(
                "too-new", command.arguments[place], f"{command.name} {word} is too new, {why}: {_mend(option)}"
            )


def _is_option(command: Command, place: int) -> bool:
    """Whether a word stands where options do, and is not by chance the value of a field."""
    if command.name == "BITOP":
        return place == 0
    if command.name == "XADD":
        return "*" not in command.words[:place]
    return place >= (2 if command.name in ("SET", "EXPIRE", "EXPIREAT", "PEXPIRE", "PEXPIREAT") else 1)


def _mend(since: Since) -> str:
    servers = [f"{kind} {version[0]}.{version[1]}" for kind, version in since.items() if version is not None]
    return f"do without, or say in the header that the script needs it, -- NEEDS {', '.join(servers)}"
