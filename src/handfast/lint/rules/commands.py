"""Commands that have no place in a script: they walk the whole server, wait, are refused there, or do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handfast.lint.commands import ALL_KEYS, BLOCKING, KNOWN, NOT_IN_SCRIPTS
from handfast.lint.findings import Finding
from handfast.lint.script import Body, Command

__all__ = ["RULES", "check"]

RULES = {
    "all-keys": "No command is about every key of the server.",
    "blocking": "No command waits.",
    "not-in-scripts": "No command is one that a server refuses within a script.",
    "unknown-command": "Every command is one that Redis or Valkey has.",
}


def check(body: Body) -> Iterator[Finding]:
    """Each command by itself."""
    for command in body.commands:
        yield from _of(body, command)


def _of(body: Body, command: Command) -> Iterator[Finding]:
    name, node = command.name, command.node
    if name in ALL_KEYS:
        yield body.finding("all-keys", node, f"{name} {ALL_KEYS[name]}")
    elif name in BLOCKING or (name in ("XREAD", "XREADGROUP") and "BLOCK" in command.words):
        instead = BLOCKING.get(name, f"{name} without BLOCK")
        hint = f"use {instead} and let the caller wait" if instead else "let the caller send it"
        yield body.finding(
            "blocking", node, f"a script cannot wait, so servers refuse {name} or answer at once: {hint}"
        )
    elif name in NOT_IN_SCRIPTS:
        yield body.finding("not-in-scripts", node, f"servers refuse {name} within a script: let the caller send it")
    elif name not in KNOWN and "." not in name:  # with a dot, it is a module's
        close = sorted(
            get_close_matches(name, KNOWN), key=lambda one: sorted(one) != sorted(name)
        )  # same letters first
        hint = f"did you mean {close[0]}?" if close else "look at its spelling"
        yield body.finding("unknown-command", node, f"neither Redis nor Valkey has a command {name}: {hint}", "warning")
