"""``handfast bench classic``: the published tables of the listings, measured again on this machine."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.classic.tables import TABLES
from handfast_lab.bench.classic.text import classic_table
from handfast_lab.bench.figures import summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("classic")
@common.url_option
@click.option(
    "--table",
    "wanted",
    multiple=True,
    type=click.Choice(list(TABLES)),
    help="Table to measure. Repeatable. Default: all.",
)
@common.clients_option
@common.rounds_option(1)
@common.seconds_option(10.0)
@common.json_option
def command(
    *,
    url: str | None,
    wanted: tuple[str, ...],
    clients: tuple[int, ...],
    rounds: int,
    seconds: float,
    file: IO[str] | None,
) -> None:
    """Repeat the published tables of the classic listings.

    Locks and autocomplete: the first form of the listings, their Lua form, and Handfast. Contenders take turns on one
    server; the published figures are shown next to the measured ones. Retries are WatchErrors; "x first" is the ratio
    to the first form in the same round. Fails if a client hangs, or if two clients held a lock at once.
    """
    tables = [table for name, table in TABLES.items() if not wanted or name in wanted]
    with common.server(url) as address:
        machine = describe(address)
        plan = BenchPlan(address, {table.name: table.workload for table in tables}, clients, rounds, seconds)
        click.echo(f"{len(plan)} measurements, about {_minutes(plan.duration)}", err=True)
        measurements = common.tracked(run(plan), len(plan))
    rows = summarize(measurements)
    settings = {"tables": list(plan.workloads), "clients": clients, "rounds": rounds, "seconds": seconds}
    common.save(file, "classic", machine, settings, rows=common.plain(rows), measurements=common.plain(measurements))
    of_rounds = "1 round" if rounds == 1 else f"medians of {rounds} rounds"
    failed: list[str] = []
    for table in tables:
        if any(row.setting == table.name for row in rows):
            heading = f"{table.title}: totals of {seconds:g} s, {of_rounds}; {common.title(machine)}"
            common.show(classic_table(table, rows, heading))
        mine = [one for one in measurements if one.setting == table.name]
        failed += common.failures(mine, None, lenient=(), violation="two clients held it at once")[0]
    common.fail(failed)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"
