"""``handfast bench``: measurements on this machine. `handfast_lab.bench` describes the method and its doubts.

Each command has its own module; `common` has the shared options, server and output.
"""

from __future__ import annotations

import click

from handfast_lab.commands.bench import (
    classic,
    cluster,
    crowd,
    handoff,
    limiter,
    lock,
    once,
    semaphore,
    tasks,
)

__all__ = ["command"]


@click.group()
def command() -> None:
    """Compare Handfast with other libraries, on one server and in one run."""


for module in (
    lock,
    handoff,
    tasks,
    crowd,
    semaphore,
    limiter,
    once,
    classic,
    cluster,
):
    command.add_command(module.command)
