"""``handfast bench scores``: raise the scores of very many members."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.scores import BATCH, CONTENDERS, PASSES, make_data, run, summarize
from handfast_lab.bench.table import scores_table
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("scores")
@common.url_option
@click.option("--members", default=1_000_000, type=click.IntRange(1), show_default=True, help="How many members move.")
@common.rounds_option()
@common.json_option
def command(*, url: str | None, members: int, rounds: int, file: IO[str] | None) -> None:
    """Raise a million scores: members per second, compared with plain ZADD GT.

    In batches of 10,000, once while all members are new and once while each of them moves. "zadd-each" is a pipeline of
    single ZADDs, "zadd-batch" one ZADD for the whole batch, both by redis-py; "x zadd-each" is the ratio to the former
    in the same round. Fails if the number of members, the largest score or a count that Handfast returned is wrong.
    """
    data = make_data(members)
    with common.server(url) as address:
        machine = describe(address)
        found = common.tracked(run(address, data, rounds), rounds * len(CONTENDERS) * len(PASSES))
    rows = summarize(found)
    settings = {"members": members, "batch": BATCH, "rounds": rounds}
    common.save(file, "scores", machine, settings, rows=common.plain(rows), passes=common.plain(found))
    common.show(scores_table(rows, f"{common.title(machine)}; {rounds} rounds of {members:,} members"))
    common.fail([f"FAILED: {one.contender}, {one.name}: {trouble}" for one in found for trouble in one.trouble])
