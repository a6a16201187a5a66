"""``handfast bench cluster``: locks on the primaries of a cluster, and on one server."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.cluster import LOADS, PLACES, SERVER, count_frames, places, run, summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import frames_table, spread_table
from handfast_lab.commands.bench import common

__all__ = ["command"]

MOST_CLIENTS, MOST_NAMES = 100, 10_000


@click.command("cluster")
@click.option(
    "--clients", default=2, type=click.IntRange(1, MOST_CLIENTS), show_default=True, help="Processes that work."
)
@click.option(
    "--names", default=300, type=click.IntRange(1, MOST_NAMES), show_default=True, help="Locks that each of them uses."
)
@click.option(
    "--load", "wanted", multiple=True, type=click.Choice(LOADS), help="What each does. Repeatable. Default: all."
)
@common.rounds_option(5)
@common.seconds_option()
@common.json_option
def command(
    *, clients: int, names: int, wanted: tuple[str, ...], rounds: int, seconds: float, file: IO[str] | None
) -> None:
    """Locks on the primaries of a cluster, compared with one server.

    Processes acquire and release many locks: one thread of the sync API that goes through its own locks, asyncio with a
    task for each of its own locks, and asyncio with two tasks for each lock and all processes at the same locks, so
    that every release hands a lock over. One server, a cluster of one primary and a cluster of three take turns;
    figures are medians. "x server" is the ratio to one server in the same round. "client", "servers" and "busiest" are
    the CPU time of one acquire and its release in microseconds: in the clients, on all servers together, and on the
    busiest one. "conns" is how many connections a client has to each server. The second table counts Python frames of a
    call, on a plain session and through the router.

    All servers are private ones of this machine: three primaries share its cores with the clients, so read the CPU
    times before the rates.
    """
    loads = [load for load in LOADS if not wanted or load in wanted]
    with places() as where:
        machine = describe(where[SERVER].url)
        frames = count_frames(where)
        measurements = run(where, loads, clients=clients, names=names, rounds=rounds, seconds=seconds)
        found = common.tracked(measurements, rounds * len(loads) * len(PLACES))
    rows = summarize(found)
    settings = {"clients": clients, "names": names, "loads": loads, "rounds": rounds, "seconds": seconds}
    common.save(
        file,
        "cluster",
        machine,
        settings,
        rows=common.plain(rows),
        frames=common.plain(frames),
        measurements=common.plain(found),
    )
    heading = f"{common.title(machine)}; {clients} x {names} names, {rounds} rounds of {seconds:g} s; CPU in µs"
    common.show(spread_table(rows, heading))
    common.show(frames_table(frames, "Python frames of a call"))
