"""``handfast bench``: measurements on this machine. `handfast_lab.bench` describes the method and its doubts.

Each command is a module of its own; `common` has the options, the server and the output that they share.
"""

from __future__ import annotations

import click

from handfast_lab.commands.bench import classic, crowd, lock, lock_all, names, rwlock, scores, semaphore, tasks

__all__ = ["command"]


@click.group()
def command() -> None:
    """Compare Handfast with other libraries, on one server and in one run."""


for module in (lock, tasks, crowd, semaphore, rwlock, lock_all, classic, names, scores):
    command.add_command(module.command)
