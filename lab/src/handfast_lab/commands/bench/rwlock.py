"""``handfast bench rwlock``: readers and writers, with a read-write lock and with a plain lock."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.rwlock import SharingPlan, run, summarize
from handfast_lab.bench.table import rwlock_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

MOST_PROCESSES, LONGEST_WORK_MS = 100, 1000.0


@click.command("rwlock")
@common.url_option
@click.option("--readers", default=8, type=click.IntRange(1, MOST_PROCESSES), show_default=True, help="How many read.")
@click.option("--writers", default=2, type=click.IntRange(1, MOST_PROCESSES), show_default=True, help="How many write.")
@click.option(
    "--work",
    default=1.0,
    type=click.FloatRange(0, LONGEST_WORK_MS),
    show_default=True,
    help="Milliseconds that each sleeps while it is in.",
)
@common.rounds_option()
@common.seconds_option(10.0)
@common.json_option
def command(
    *, url: str | None, readers: int, writers: int, work: float, rounds: int, seconds: float, file: IO[str] | None
) -> None:
    """Processes read and write, with a read-write lock and with a plain lock.

    Each acquires again and again, and sleeps while it holds. The two contenders take turns on one server, in several
    rounds; figures are medians. Waits, from the call of acquire to its return, are the median, the 99th percentile and
    the longest of all rounds. "x lock" is the ratio of reads and writes together to those with a plain lock in the same
    round. Fails if a process hangs, or if a writer was not alone.
    """
    with common.server(url) as address:
        machine = describe(address)
        plan = SharingPlan(address, readers, writers, work / 1000, rounds, seconds)
        found = common.tracked(run(plan), len(plan))
    rows = summarize(found)
    settings = {"readers": readers, "writers": writers, "work_ms": work, "rounds": rounds, "seconds": seconds}
    common.save(file, "rwlock", machine, settings, rows=common.plain(rows), measurements=common.plain(found))
    heading = f"{common.title(machine)}; {readers} readers, {writers} writers, {rounds} rounds of {seconds:g} s"
    common.show(rwlock_table(rows, heading))
    complaints = []
    for one in found:
        where = f"{one.contender}, round {one.round + 1}"
        complaints += [f"FAILED: {where}: {trouble}" for trouble in one.trouble]
        if one.overlaps:
            complaints.append(f"VIOLATION: {where}: {one.overlaps} times a writer was not alone")
    common.fail(complaints)
