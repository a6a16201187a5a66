"""Every key that a command is called with is one that the caller passed.

A cluster routes a script by its KEYS before it runs, and an ACL lets it through or not; a key that the script builds is
known to neither. What is passed may go through locals, tables, parameters and returns of the script's own functions.
Where a key comes from somewhere that cannot be followed, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast.lint.commands import KNOWN, key_places
from handfast.lint.findings import Finding
from handfast.lint.flow import Origin
from handfast.lint.parsing import Node
from handfast.lint.script import Body, Command

__all__ = ["RULES", "check"]

RULES = {"undeclared-key": "A command's keys are KEYS[n], or come from there."}

MEND = "pass it as one of KEYS, since a cluster has to know every key before the script runs"


def check(body: Body) -> Iterator[Finding]:
    """Each key of each command, once for each place that it may come from."""
    told: set[Node] = set()
    for command in body.commands:
        for at, finding in _of_command(body, command):
            if at not in told:
                told.add(at)
                yield finding
    for node in body.nodes:
        for target in node.many("targets"):
            if target.kind == "index" and body.scopes.is_global(target.one("base"), "KEYS"):
                yield body.finding(
                    "undeclared-key",
                    target,
                    "KEYS is what the caller passed: put other things into a table of your own",
                )


def _of_command(body: Body, command: Command) -> Iterator[tuple[Node, Finding]]:
    arguments = command.arguments
    if not arguments and KNOWN.get(command.name):
        yield (
            command.node,
            body.finding("undeclared-key", command.node, f"{command.name} needs a key: name it behind the command"),
        )
    if not command.sure:
        return
    for place in key_places(command.name, command.words, len(arguments)):
        for origin in _origins(body, command, place):
            at = origin.site or arguments[place]
            yield at, _finding(body, command, at, origin)
    for place, word in enumerate(command.words[1:], 1):
        if command.name in ("SORT", "SORT_RO") and command.words[place - 1] in ("BY", "GET") and "*" in (word or ""):
            by = f"{command.name} {command.words[place - 1]}"
            message = (
                f"{by} reads keys that it builds from a pattern, and a cluster cannot know them: read them one by one"
            )
            yield arguments[place], body.finding("undeclared-key", arguments[place], message)


def _origins(body: Body, command: Command, place: int) -> list[Origin]:
    """Where the key at that place comes from, as far as it is not from KEYS."""
    argument = command.arguments[place]
    origins = body.flow.origins(argument)
    spread = argument is command.arguments[-1] and body.flow.called(argument) == "unpack"
    if spread and KNOWN[command.name] != "1-" and any(origin.kind in ("key", "unknown") for origin in origins):
        return []  # of what is unpacked only some are keys, and nobody knows which
    return [origin for origin in origins if origin.kind not in ("key", "unknown")]


def _finding(body: Body, command: Command, at: Node, origin: Origin) -> Finding:
    by = command.name if command.node.line == at.line else f"{command.name} on line {command.node.line}"
    return body.finding("undeclared-key", at, f"{by} is called on {_shown(body, origin)}: {MEND}")


def _shown(body: Body, origin: Origin) -> str:
    node = origin.node
    if origin.kind == "argument":
        return f"{node.text if node.kind == 'index' else 'one of ARGV'}, which is no key"
    if node.kind == "string":
        return f"the fixed key {node.word!r}"
    if origin.kind == "item" or body.sent_by(node):
        return "a key that the script has read" if body.sent_by(node) else "a key that the script makes up"
    if (node.kind == "binary" and node.word == "..") or body.flow.called(node).startswith("string."):
        return f"a key that the script builds, {_short(node.text)}"
    return f"{_short(node.text)}, which is no key of KEYS"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:37]}..."
