"""The command ``holdfast``.

Each subcommand is a module of its own and imported only when it is asked for, so that ``holdfast run`` starts fast.
"""

from __future__ import annotations

import importlib
import sys

try:
    import click
except ImportError:
    click = None  # type: ignore[assignment]  # told below, in words

__all__ = ["main"]

COMMANDS = {
    "run": ("holdfast.cli.run", "Run a command while holding a lock, a slot or a share."),
    "demo": ("holdfast.cli.demo", "Watch processes coordinate, in half a minute."),
    "script": ("holdfast.cli.script", "Check Lua scripts, try them on a server, and load them."),
    "acl": ("holdfast.cli.acl", "Print the least rights that a user of the server needs."),
    "torture": ("holdfast.cli.torture", "Put locks through faults, and write down what came of it."),
    "bench": ("holdfast.cli.bench", "Measure locks against each other on this machine."),
}


def main() -> None:
    """The entry point."""
    if click is None:
        sys.exit("holdfast: the command needs click and rich; install them with: pip install 'holdfast[cli]'")
    _group()()


def _group() -> click.Group:
    class Lazy(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
            if cmd_name not in COMMANDS:
                return None
            module, _ = COMMANDS[cmd_name]
            command: click.Command = importlib.import_module(module).command
            return command

    return Lazy("holdfast", help="Coordinate processes through Redis or Valkey.")
