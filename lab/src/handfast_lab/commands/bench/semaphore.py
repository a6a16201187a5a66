"""``handfast bench semaphore``: processes that contend for the permits of one semaphore."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.contenders import HANDFAST, LENIENT, SEMAPHORES, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import FLOOR, ONE, summarize, without_row
from handfast_lab.bench.machine import describe
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.table import semaphore_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

LONGEST_HOLD_MS = 1000.0


@click.command("semaphore")
@common.url_option
@common.clients_option
@click.option("--limit", default=3, type=click.IntRange(1), show_default=True, help="Permits of the semaphore.")
@common.rounds_option()
@common.seconds_option()
@click.option(
    "--hold", default=0.0, type=click.FloatRange(0, LONGEST_HOLD_MS), help="Milliseconds for which a permit is held."
)
@common.only_option(SEMAPHORES)
@common.json_option
def command(
    *,
    url: str | None,
    clients: tuple[int, ...],
    limit: int,
    rounds: int,
    seconds: float,
    hold: float,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Processes contend for the permits of a semaphore.

    The classic listings, py-redis-semaphore, Handfast and "floor" (the scripts of Handfast over a bare socket), one
    permit each time. They take turns on one server, in several rounds; figures are medians. "x floor" and "x Lua"
    are ratios to the floor and to the classic Lua listing. A rival that fails is reported; the first forms of the
    listings are known to exceed the limit, which is reported too.

    Fails if Handfast or the floor does, or if another contender exceeded the limit.
    """
    names = common.chosen(installed(SEMAPHORES), only)
    with common.server(url) as address:
        machine = describe(address)
        plan = BenchPlan(address, {ONE: Contention(names, hold / 1000, limit)}, clients, rounds, seconds)
        measurements = common.tracked(run(plan), len(plan))
    rows = summarize(measurements)
    settings = {"clients": clients, "limit": limit, "rounds": rounds, "seconds": seconds, "hold_ms": hold}
    kept = {"rows": common.plain(rows), "measurements": common.plain(measurements)}
    common.save(file, "semaphore", machine, settings, **kept)
    heading = f"{common.title(machine)}; {limit} permits, {rounds} rounds of {seconds:g} s"
    common.show(semaphore_table(rows, without_row(measurements), heading))
    violation = f"more than {limit} permits were held at once"
    common.complain(measurements, blame=(HANDFAST, FLOOR), lenient=LENIENT, violation=violation)
