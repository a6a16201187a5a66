"""``handfast bench once``: one caller makes a result, the others wait for it."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.stampedes import Plan, measure, summarize
from handfast_lab.bench.table import stampedes_table
from handfast_lab.commands.bench import common
from handfast_lab.rivals.once import RUNNERS, installed

__all__ = ["command"]


@click.command("once")
@common.url_option
@click.option("--callers", default=1000, type=click.IntRange(1), show_default=True, help="Callers that ask at once.")
@click.option("--processes", default=10, type=click.IntRange(1), show_default=True, help="Processes that they are in.")
@click.option("--work", default=0.5, type=click.FloatRange(0), show_default=True, help="Seconds that the run takes.")
@common.rounds_option()
@common.seconds_option(1.0)
@common.only_option(list(RUNNERS))
@common.json_option
def command(
    *,
    url: str | None,
    callers: int,
    processes: int,
    work: float,
    rounds: int,
    seconds: float,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Compare how one caller makes a result while the others wait for it.

    Callers ask for one key at the same moment, in several processes. Contenders take turns, and figures are medians.
    Fails if Handfast runs it more than once, or leaves a caller without an answer.
    """
    callers -= callers % processes
    if not callers:
        raise click.UsageError("there must be as many callers as processes at least")
    plan = Plan(callers, processes, work, seconds)
    names = common.chosen(installed(), only)
    with common.server(url) as address:
        machine = describe(address)
        measured = common.tracked(measure(address, names, plan, rounds), rounds * len(names))
    rows = summarize(measured)
    rows.sort(key=lambda row: names.index(row.contender))
    settings = {"callers": callers, "processes": processes, "work": work, "rounds": rounds, "seconds": seconds}
    common.save(file, "once", machine, settings, rows=common.plain(rows), measurements=common.plain(measured))
    common.show(
        stampedes_table(
            rows, f"{common.title(machine)}; {callers} callers in {processes} processes, a run of {work:g} s"
        )
    )
    common.fail(
        [
            f"FAILED: {one.contender}, round {one.round + 1}: {one.runs} runs, {one.callers - one.answered} without an answer"
            for one in measured
            if RUNNERS[one.contender].is_ours and (one.runs != 1 or one.answered < one.callers)
        ]
    )
