"""Keys: every key of a command was passed by the caller.

Before a script runs, a cluster routes it by its KEYS and an ACL checks them; neither knows a key that the script
builds. A key may pass through locals, tables, parameters and return values of the script's own functions. A key of
unknown origin is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast_lint.commands import KNOWN, key_places
from handfast_lint.findings import Finding
from handfast_lint.flow import Origin
from handfast_lint.parsing import Node
from handfast_lint.script import CheckedScript, Command

__all__ = ["RULES", "check"]

RULES = {"undeclared-key": "Every key of a command comes from KEYS."}

REMEDY = "pass it as one of KEYS, because a cluster must know every key before the script runs"


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check each key of each command, once for each of its sources."""
    reported: set[Node] = set()
    for command in script.commands:
        for at, finding in _of_command(script, command):
            if at not in reported:
                reported.add(at)
                yield finding
    for node in script.nodes:
        for target in node.many("targets"):
            if target.kind == "index" and script.scopes.is_global(target.one("base"), "KEYS"):
                yield script.finding(
                    "undeclared-key",
                    target,
                    "KEYS holds the keys that the caller passed: use a local table for other values",
                )


def _of_command(script: CheckedScript, command: Command) -> Iterator[tuple[Node, Finding]]:
    arguments = command.arguments
    if not arguments and KNOWN.get(command.name):
        yield (
            command.node,
            script.finding("undeclared-key", command.node, f"{command.name} needs a key: add it after the command"),
        )
    if not command.sure:
        return
    for place in key_places(command.name, command.words, len(arguments)):
        for origin in _origins(script, command, place):
            at = origin.site or arguments[place]
            yield at, _finding(script, command, at, origin)
    for place, word in enumerate(command.words[1:], 1):
        if command.name in ("SORT", "SORT_RO") and command.words[place - 1] in ("BY", "GET") and "*" in (word or ""):
            by = f"{command.name} {command.words[place - 1]}"
            message = f"{by} builds keys from a pattern, which a cluster cannot know: read them one by one"
            yield arguments[place], script.finding("undeclared-key", arguments[place], message)


def _origins(script: CheckedScript, command: Command, place: int) -> list[Origin]:
    """Return the sources of the key at that index that are not KEYS."""
    argument = command.arguments[place]
    origins = script.flow.origins(argument)
    spread = argument is command.arguments[-1] and script.flow.called(argument) == "unpack"
    if spread and KNOWN[command.name] != "1-" and any(origin.kind in ("key", "unknown") for origin in origins):
        return []  # only some of the unpacked values are keys, and it is unknown which
    return [origin for origin in origins if origin.kind not in ("key", "unknown")]


def _finding(script: CheckedScript, command: Command, at: Node, origin: Origin) -> Finding:
    by = command.name if command.node.line == at.line else f"{command.name} on line {command.node.line}"
    return script.finding("undeclared-key", at, f"{by} is called on {_shown(script, origin)}: {REMEDY}")


def _shown(script: CheckedScript, origin: Origin) -> str:
    node = origin.node
    if origin.kind == "argument":
        return f"{node.text if node.kind == 'index' else 'one of ARGV'}, which is not a key"
    if node.kind == "string":
        return f"the fixed key {node.word!r}"
    if origin.kind == "item" or script.sent_by(node):
        return "a key that the script has read" if script.sent_by(node) else "a key that the script makes"
    if (node.kind == "binary" and node.word == "..") or script.flow.called(node).startswith("string."):
        return f"a key that the script builds, {_short(node.text)}"
    return f"{_short(node.text)}, which is not one of KEYS"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:37]}..."
