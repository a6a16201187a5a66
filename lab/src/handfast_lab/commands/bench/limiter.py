"""``handfast bench limiter``: rate limiters."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.limiting import ask, line_up, remember, summarize_asking, summarize_lines
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import asking_table, lines_table, memory_table
from handfast_lab.commands.bench import common
from handfast_lab.rivals.limiters import LIMITERS, installed

__all__ = ["command"]

SYNC = [name for name in LIMITERS if "asyncio" not in name]
"""Processes and threads ask, so that all contenders are measured with their sync API."""


@click.command("limiter")
@common.url_option
@click.option(
    "--clients", default="1,10", callback=common.counts, show_default=True, help="Numbers of processes that ask."
)
@click.option("--waiters", default=60, type=click.IntRange(2), show_default=True, help="Threads that wait at 10/s.")
@click.option(
    "--admissions",
    default="100,10000",
    callback=common.counts,
    show_default=True,
    help="Admissions whose memory is measured.",
)
@common.rounds_option()
@common.seconds_option(1.0)
@common.only_option(SYNC)
@common.json_option
def command(
    *,
    url: str | None,
    clients: tuple[int, ...],
    waiters: int,
    admissions: tuple[int, ...],
    rounds: int,
    seconds: float,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Compare rate limiters: calls, waiters and memory.

    Processes ask without waiting, under a limit that admits them and under one that refuses them. Threads wait for a
    rate of 10/s. Contenders take turns, and figures are medians. Fails if a waiter of Handfast is not admitted.
    """
    names = common.chosen(installed(SYNC), only)
    waiting = [name for name in names if LIMITERS[name].waits]
    with common.server(url) as address:
        machine = describe(address)
        asked = common.tracked(ask(address, names, clients, rounds, seconds), rounds * 2 * len(clients) * len(names))
        lines = common.tracked(line_up(address, waiting, waiters, rounds), rounds * len(waiting))
        memory = common.tracked(remember(address, names, admissions), len(names) * len(admissions))
    asking, waited = summarize_asking(asked), summarize_lines(lines)
    asking.sort(key=lambda row: (row.setting, row.clients, names.index(row.contender)))
    waited.sort(key=lambda row: names.index(row.contender))
    settings = {"clients": clients, "waiters": waiters, "rounds": rounds, "seconds": seconds}
    common.save(
        file,
        "limiter",
        machine,
        settings,
        asking=common.plain(asking),
        waiting=common.plain(waited),
        memory=common.plain(memory),
        measurements=common.plain(asked),
        lines=common.plain(lines),
    )
    common.show(asking_table(asking, f"{common.title(machine)}; {rounds} rounds of {seconds:g} s"))
    common.show(lines_table(waited, f"{waiters} waiters at 10/s"))
    common.show(memory_table(memory, "Memory of a limiter on the server"))
    common.fail(
        [
            f"FAILED: {one.contender}, round {one.round + 1}: {one.waiters - one.admitted} waiters were not admitted"
            for one in lines
            if LIMITERS[one.contender].is_ours and one.admitted < one.waiters
        ]
    )
