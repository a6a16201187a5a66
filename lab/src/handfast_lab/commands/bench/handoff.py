"""``handfast bench handoff``: what a contended handoff costs, in counts."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.contenders import LOCKS, installed
from handfast_lab.bench.handoffs import run, summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import handoff_table
from handfast_lab.commands.bench.common import (
    chosen,
    json_option,
    only_option,
    plain,
    rounds_option,
    save,
    seconds_option,
    server,
    show,
    title,
    tracked,
    url_option,
)

__all__ = ["command"]


@click.command("handoff")
@url_option
@click.option("--clients", default=10, type=click.IntRange(2), show_default=True, help="Processes that contend.")
@rounds_option()
@seconds_option(1.0)
@only_option(LOCKS)
@json_option
def command(
    *, url: str | None, clients: int, rounds: int, seconds: float, only: tuple[str, ...], file: IO[str] | None
) -> None:
    """Count what an acquire of a contended lock and its release cost.

    Commands are those that the server executes, within scripts too. Received and sent are how often it read from a
    connection and wrote to one, and the bytes. Wake-ups are how often a client, and the server, had slept and was woken;
    they depend on the load of the machine, the other counts do not. Contenders are those of "bench lock"; they take turns,
    and figures are medians. The server must have this command's machine for itself.
    """
    names = chosen(installed(LOCKS), only)
    with server(url) as address:
        machine = describe(address)
        found = tracked(run(address, names, clients, rounds, seconds), rounds * len(names))
    rows = sorted(summarize(found), key=lambda row: names.index(row.contender))
    settings = {"clients": clients, "rounds": rounds, "seconds": seconds}
    save(file, "handoff", machine, settings, rows=plain(rows), measurements=plain(found))
    show(handoff_table(rows, f"{title(machine)}; {clients} clients, {rounds} rounds of {seconds:g} s"))
