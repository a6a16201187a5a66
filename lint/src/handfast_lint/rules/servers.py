"""Features that the oldest server of a script lacks: commands, options and functions.

The oldest server is named in the header, ``-- NEEDS redis 7.0, valkey 8.0``, or passed to `check`.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast_lint.findings import Finding
from handfast_lint.script import CheckedScript, Command
from handfast_lint.versions import API, COMMANDS, OPTIONS, SHEBANG, Since, missing_on

__all__ = ["RULES", "check"]

RULES = {"too-new": "The oldest server of the script has every feature that it uses."}


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check the first line, the commands and the functions."""
    if script.source.startswith("#!") and (why := missing_on(SHEBANG, script.oldest)):
        message = f"this first line is too new, {why}: {_remedy(SHEBANG)}"
        yield Finding(script.name, 1, 1, "too-new", "error", message)
    for command in script.commands:
        yield from _command(script, command)
    for node in script.nodes:
        if node.kind == "index" or (node.kind == "name" and node in script.scopes.globals_read):
            path = script.flow.path(node)
            if path == "server" and "redis" in script.oldest:
                yield script.finding("too-new", node, "only Valkey has the table server: write redis, which both have")
            elif path in API and (why := missing_on(API[path], script.oldest)):
                yield script.finding("too-new", node, f"{path} is too new, {why}: {_remedy(API[path])}")
        if node.kind == "name" and node.word == "print" and node in script.scopes.globals_read:
            yield script.finding("too-new", node, "Redis 7.0 removed print: write redis.log(redis.LOG_NOTICE, ...)")


def _command(script: CheckedScript, command: Command) -> Iterator[Finding]:
    since = COMMANDS.get(command.name)
    if since is not None and (why := missing_on(since, script.oldest)):
        yield script.finding("too-new", command.node, f"{command.name} is too new, {why}: {_remedy(since)}")
    for place, word in enumerate(command.words):
        option = OPTIONS.get((command.name, word or ""))
        if option is not None and _is_option(command, place) and (why := missing_on(option, script.oldest)):
            yield script.finding(
                "too-new", command.arguments[place], f"{command.name} {word} is too new, {why}: {_remedy(option)}"
            )


def _is_option(command: Command, place: int) -> bool:
    """Return whether a word is in the place of an option, and not the value of a field."""
    if command.name == "BITOP":
        return place == 0
    if command.name == "XADD":
        return "*" not in command.words[:place]
    return place >= (2 if command.name in ("SET", "EXPIRE", "EXPIREAT", "PEXPIRE", "PEXPIREAT") else 1)


def _remedy(since: Since) -> str:
    servers = [f"{kind} {version[0]}.{version[1]}" for kind, version in since.items() if version is not None]
    return f"do without it, or declare it in the header, -- NEEDS {', '.join(servers)}"
