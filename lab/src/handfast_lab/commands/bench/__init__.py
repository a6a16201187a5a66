"""``handfast bench``: measure on this machine. `handfast_lab.bench` says how, and with which doubt.

Each command is a module of its own; `common` has what they share: options, servers, and how results are shown and saved.
"""

from __future__ import annotations

import click

from handfast_lab.commands.bench import classic, crowd, lock, lock_all, names, rwlock, scores, semaphore, tasks

__all__ = ["command"]


@click.group()
def command() -> None:
    """Measure locks, scripts and their rivals against each other on this machine."""


for module in (lock, tasks, crowd, semaphore, rwlock, lock_all, classic, names, scores):
    command.add_command(module.command)
