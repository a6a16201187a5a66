"""``handfast script``: check Lua scripts without a server, run one on a server, and load scripts into a server."""

from __future__ import annotations

import click

from handfast_lint.command.check import check
from handfast_lint.command.load import load
from handfast_lint.command.run import run

__all__ = ["command"]


@click.group()
def command() -> None:
    """Check Lua scripts, run them on a server, or load them."""


command.add_command(check)
command.add_command(load)
command.add_command(run)
