"""``handfast bench lock-all``: processes that need two of several locks at a time."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.pairs import PairsPlan, run, summarize
from handfast_lab.bench.table import pairs_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

MOST_PROCESSES, LONGEST_HOLD_MS = 100, 1000.0


@click.command("lock-all")
@common.url_option
@click.option(
    "--clients", default=4, type=click.IntRange(1, MOST_PROCESSES), show_default=True, help="How many processes."
)
@click.option("--pairs", default=10_000, type=click.IntRange(1), show_default=True, help="How many pairs each takes.")
@click.option("--names", default=10, type=click.IntRange(2), show_default=True, help="How many locks there are.")
@click.option(
    "--hold",
    default=0.1,
    type=click.FloatRange(0, LONGEST_HOLD_MS),
    show_default=True,
    help="Milliseconds to hold each pair.",
)
@common.rounds_option()
@common.json_option
def command(
    *, url: str | None, clients: int, pairs: int, names: int, hold: float, rounds: int, file: IO[str] | None
) -> None:
    """Processes acquire random pairs of locks, with hf.lock_all and with nested locks.

    Nested locks are acquired in the order of their names. The pairs are random, but the same for both contenders, which
    take turns on one server, in several rounds; the seconds and the rate are medians. Waits, from the call of acquire
    to its return, are the median, the 99th percentile and the longest of all rounds. A wait of ten seconds counts as a
    deadlock. "x nested" is the ratio to nested locks in the same round. Fails if there was a deadlock, if two processes
    held a lock at once, or if not all pairs were held in time.
    """
    with common.server(url) as address:
        machine = describe(address)
        plan = PairsPlan(address, clients, pairs, names, hold / 1000, rounds)
        found = common.tracked(run(plan), len(plan))
    rows = summarize(found)
    settings = {"clients": clients, "pairs": pairs, "names": names, "hold_ms": hold, "rounds": rounds}
    common.save(file, "lock-all", machine, settings, rows=common.plain(rows), passes=common.plain(found))
    common.show(
        pairs_table(rows, f"{common.title(machine)}; {clients} processes, {rounds} rounds of {pairs:,} pairs each")
    )
    complaints = []
    for one in found:
        where = f"{one.contender}, round {one.round + 1}"
        complaints += [f"FAILED: {where}: {trouble}" for trouble in one.trouble]
        if one.timeouts:
            complaints.append(f"DEADLOCK: {where}: {one.timeouts} waits timed out")
        if one.overlaps:
            complaints.append(f"VIOLATION: {where}: {one.overlaps} times two clients held a lock at once")
    common.fail(complaints)
