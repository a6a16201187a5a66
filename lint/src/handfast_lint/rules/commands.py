"""Commands that do not belong in a script: they iterate over all keys, block, are refused, or do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handfast_lint.commands import ALL_KEYS, BLOCKING, KNOWN, NOT_IN_SCRIPTS
from handfast_lint.findings import Finding
from handfast_lint.script import CheckedScript, Command

__all__ = ["RULES", "check"]

RULES = {
    "all-keys": "No command iterates over all keys of the server.",
    "blocking": "No command blocks.",
    "not-in-scripts": "Servers accept every command within a script.",
    "unknown-command": "Redis or Valkey has every command.",
}


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check each command by itself."""
    for command in script.commands:
        yield from _of(script, command)


def _of(script: CheckedScript, command: Command) -> Iterator[Finding]:
    name, node = command.name, command.node
    if name in ALL_KEYS:
        yield script.finding("all-keys", node, f"{name} {ALL_KEYS[name]}")
    elif name in BLOCKING or (name in ("XREAD", "XREADGROUP") and "BLOCK" in command.words):
        instead = BLOCKING.get(name, f"{name} without BLOCK")
        hint = f"use {instead} and let the caller wait" if instead else "let the caller send it"
        yield script.finding(
            "blocking", node, f"a script cannot block, so servers refuse {name} or reply at once: {hint}"
        )
    elif name in NOT_IN_SCRIPTS:
        yield script.finding("not-in-scripts", node, f"servers refuse {name} within a script: let the caller send it")
    elif name not in KNOWN and "." not in name:  # a name with a dot belongs to a module
        close = sorted(
            get_close_matches(name, KNOWN), key=lambda one: sorted(one) != sorted(name)
        )  # same letters first
        hint = f"did you mean {close[0]}?" if close else "check its spelling"
        yield script.finding(
            "unknown-command", node, f"neither Redis nor Valkey has a command {name}: {hint}", "warning"
        )
