"""``handfast bench ls``: finding all names that are held, among the keys of strangers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import IO

import click

from handfast.embedded import PrivateServer
from handfast_lab.bench.looking import WAYS, fill, measure, options, summarize
from handfast_lab.bench.machine import describe
from handfast_lab.bench.table import looks_table
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("ls")
@click.option("--names", default=10_000, type=click.IntRange(1), show_default=True, help="How many names are held.")
@click.option(
    "--strangers", default=1_000_000, type=click.IntRange(1), show_default=True, help="How many other keys there are."
)
@common.rounds_option(5)
@common.json_option
def command(*, names: int, strangers: int, rounds: int, file: IO[str] | None) -> None:
    """Find 10,000 held names among a million other keys.

    Two private servers hold the names; one has the other keys besides. Measures the time, and the CPU time of the server.
    Fails if a name is not found.
    """
    with ExitStack() as stack:
        urls = {count: stack.enter_context(PrivateServer(*options())).url for count in (0, strangers)}
        for count, url in urls.items():
            fill(url, names, count)
        machine = describe(urls[0])
        looks = common.tracked(measure(urls, rounds), rounds * len(urls) * len(WAYS))
    common.save(
        file, "ls", machine, {"names": names, "strangers": strangers, "rounds": rounds}, looks=common.plain(looks)
    )
    common.show(looks_table(summarize(looks), f"{common.title(machine)}; {names:,} names"))
    common.fail([f"WRONG: {one.way}: {one.found:,} names" for one in looks if one.found != names])
