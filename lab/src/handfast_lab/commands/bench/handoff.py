"""``handfast bench handoff``: what a contended handoff costs, in counts."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.contenders import LOCKS, installed
from handfast_lab.bench.handoffs import run, summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import handoff_table
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("handoff")
@common.url_option
@click.option("--clients", default=10, type=click.IntRange(2), show_default=True, help="Processes that contend.")
@common.rounds_option()
@common.seconds_option(1.0)
@common.only_option(LOCKS)
@common.json_option
def command(
    *, url: str | None, clients: int, rounds: int, seconds: float, only: tuple[str, ...], file: IO[str] | None
) -> None:
    """Count what an acquire of a contended lock and its release cost.

    Commands are those that the server executes, within scripts too. Received and sent are how often it read from a
    connection and wrote to one, and the bytes. Wake-ups are how often a client, and the server, had slept and was
    woken; they depend on the load of the machine, the other counts do not. Contenders are those of "bench lock"; they
    take turns, and figures are medians. The server must have this command's machine for itself.
    """
    names = common.chosen(installed(LOCKS), only)
    with common.server(url) as address:
        machine = describe(address)
        found = common.tracked(run(address, names, clients, rounds, seconds), rounds * len(names))
    rows = sorted(summarize(found), key=lambda row: names.index(row.contender))
    settings = {"clients": clients, "rounds": rounds, "seconds": seconds}
    common.save(file, "handoff", machine, settings, rows=common.plain(rows), measurements=common.plain(found))
    common.show(handoff_table(rows, f"{common.title(machine)}; {clients} clients, {rounds} rounds of {seconds:g} s"))
