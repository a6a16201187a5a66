"""``holdfast script``: check Lua scripts before a server does, and try one on a server."""

from __future__ import annotations

import click

from holdfast.cli.script.check import check
from holdfast.cli.script.run import run

__all__ = ["command"]


@click.group()
def command() -> None:
    """Check Lua scripts, and try them on a server."""


command.add_command(check)
command.add_command(run)
