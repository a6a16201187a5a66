"""``handfast bench lock``: processes that contend for one lock."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.contenders import LOCKS, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import ONE, summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.table import lock_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

LONGEST_HOLD_MS = 1000.0


@click.command("lock")
@common.url_option
@common.clients_option
@common.rounds_option()
@common.seconds_option()
@click.option(
    "--hold", default=0.0, type=click.FloatRange(0, LONGEST_HOLD_MS), help="Milliseconds for which the lock is held."
)
@common.only_option(LOCKS)
@common.json_option
def command(
    *,
    url: str | None,
    clients: tuple[int, ...],
    rounds: int,
    seconds: float,
    hold: float,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Processes contend for one lock, Handfast and rivals.

    Contenders: the classic listings, redis-py, python-redis-lock, Handfast, and "floor", the scripts of Handfast over a
    bare socket. They take turns on one server, in several rounds; figures are medians. "x floor" and "x Lua" are ratios
    to the floor and to the classic Lua listing. Fails if a client hangs or two clients held the lock at once.
    """
    names = common.chosen(installed(LOCKS), only)
    with common.server(url) as address:
        machine = describe(address)
        plan = BenchPlan(address, {ONE: Contention(names, hold / 1000)}, clients, rounds, seconds)
        measurements = common.tracked(run(plan), len(plan))
    rows = summarize(measurements)
    settings = {"clients": clients, "rounds": rounds, "seconds": seconds, "hold_ms": hold}
    common.save(file, "lock", machine, settings, rows=common.plain(rows), measurements=common.plain(measurements))
    common.show(lock_table(rows, f"{common.title(machine)}; {rounds} rounds of {seconds:g} s"))
    common.complain(measurements)
