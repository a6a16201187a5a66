"""``handfast script``: check Lua scripts before a server does, try one on a server, and have a server know some."""

from __future__ import annotations

import click

from handfast.cli.script.check import check
from handfast.cli.script.load import load
from handfast.cli.script.run import run

__all__ = ["command"]


@click.group()
def command() -> None:
    """Check Lua scripts, try them on a server, and load them."""


command.add_command(check)
command.add_command(load)
command.add_command(run)
