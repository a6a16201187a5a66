"""``handfast bench crowd``: ten thousand tasks at one lock."""

from __future__ import annotations

import os
from typing import IO

import click

from handfast_lab.bench.crowd import inversions, load_scripts, logging_all, run, script_times
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import crowd_table, script_table
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("crowd")
@common.url_option
@click.option(
    "--waiters",
    default=10_000,
    type=click.IntRange(1, common.MOST_WAITERS),
    show_default=True,
    help="How many tasks come.",
)
@common.json_option
def command(*, url: str | None, waiters: int, file: IO[str] | None) -> None:
    """Very many tasks wait for one lock, and acquire it one after the other.

    All are tasks of one client. The times of the scripts come from the slow log of a private server, which logs every
    command. With --url the server's settings are left unchanged, and these times are left out. Fails if a task does not
    acquire the lock, or if the tasks do not acquire it in the order of their requests.
    """
    with common.server(url, *logging_all(waiters)) as address:
        machine = describe(address)
        if not url:
            load_scripts(address)
        seen, trouble = run(address, f"bench-crowd-{os.getpid()}", waiters)
        scripts = [] if url else script_times(address)
    result = {} if seen is None else seen._asdict() | {"inversions": inversions(seen.order)}
    common.save(
        file, "crowd", machine, {"waiters": waiters}, crowd=result, scripts=common.plain(scripts), trouble=trouble
    )
    if seen is not None:
        common.show(crowd_table(seen, waiters, f"{common.title(machine)}; a crowd at one lock"))
        if scripts:
            common.show(script_table(scripts))
        if len(seen.order) != waiters or result["inversions"]:
            trouble.append("not all tasks acquired the lock in the order of their requests")
    common.fail([f"FAILED: {text}" for text in trouble])
