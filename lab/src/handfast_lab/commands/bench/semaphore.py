"""``handfast bench semaphore``: processes that contend for the permits of one semaphore, and a test that kills them."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import IO

import click

from handfast_lab.bench import conservation, kill_loop
from handfast_lab.bench.contenders import HANDFAST, LENIENT, SEMAPHORES, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import FLOOR, ONE, summarize, without_row
from handfast_lab.bench.machine import describe
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.table import conservation_table, semaphore_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

LONGEST_HOLD_MS, SHORTEST_TTL, LONGEST_TTL = 1000.0, 0.05, 10.0

PROCESSES, PERMITS = 6, 10
"""Number of processes that are killed, and permits of their semaphore."""


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
@click.option(
    "--operations",
    default=100_000,
    type=click.IntRange(0),
    show_default=True,
    help="Acquires and releases while processes are killed; 0 skips that.",
)
@click.option(
    "--ttl",
    default=0.2,
    type=click.FloatRange(SHORTEST_TTL, LONGEST_TTL),
    show_default=True,
    help="Lease of a process that may be killed, in seconds.",
)
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
    operations: int,
    ttl: float,
    file: IO[str] | None,
) -> None:
    """Processes contend for the permits of a semaphore; then some are killed.

    First the classic listings, py-redis-semaphore, Handfast and "floor" (the scripts of Handfast over a bare socket),
    one permit each time. They take turns on one server, in several rounds; figures are medians. "x floor" and "x Lua"
    are ratios to the floor and to the classic Lua listing. A rival that fails is reported; the first forms of the
    listings are known to exceed the limit, which is reported too.

    Then six processes acquire and release random numbers of ten permits of Handfast, until --operations are done. About
    three times a second one is killed and replaced; many times a second the held permits are counted on the server.

    Fails if Handfast or the floor does, if another contender exceeded the limit, or if permits were lost or doubled.
    """
    names = common.chosen(installed(SEMAPHORES), only)
    found = None
    with common.server(url) as address:
        machine = describe(address)
        plan = BenchPlan(address, {ONE: Contention(names, hold / 1000, limit)}, clients, rounds, seconds)
        measurements = common.tracked(run(plan), len(plan))
        if operations:
            name = f"bench-conservation-{os.getpid()}"
            killing = kill_loop.KillLoopSettings(address, name, PROCESSES, PERMITS, ttl, operations)
            with common.counted("killing", operations) as tell:
                found = conservation.run(killing, tell)
    rows = summarize(measurements)
    settings = {"clients": clients, "limit": limit, "rounds": rounds, "seconds": seconds, "hold_ms": hold}
    settings["conservation"] = {"processes": PROCESSES, "limit": PERMITS, "ttl": ttl, "operations": operations}
    kept = None if found is None else asdict(found)
    common.save(
        file,
        "semaphore",
        machine,
        settings,
        rows=common.plain(rows),
        measurements=common.plain(measurements),
        conservation=kept,
    )
    where = common.title(machine)
    heading = f"{where}; {limit} permits, {rounds} rounds of {seconds:g} s"
    common.show(semaphore_table(rows, without_row(measurements), heading))
    told = []
    if found is not None:
        heading = f"{PROCESSES} processes that are killed, {PERMITS} permits, leases of {ttl:g} s"
        common.show(conservation_table(found, heading))
        told = [f"FAILED: conservation: {trouble}" for trouble in found.trouble]
        if found.violations:
            told.append(f"VIOLATION: conservation: permits were lost or doubled {found.violations} times")
    violation = f"more than {limit} permits were held at once"
    common.complain(measurements, blame=(HANDFAST, FLOOR), lenient=LENIENT, violation=violation, also=told)
