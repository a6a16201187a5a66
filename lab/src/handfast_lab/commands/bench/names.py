"""``handfast bench names``: autocomplete among very many names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.names import MODES, Keeping, make_names, measure
from handfast_lab.bench.table import keeping_table, times_table
from handfast_lab.commands.bench import common

__all__ = ["command"]


@click.command("names")
@common.url_option
@click.option("--names", "count", default=1_000_000, type=click.IntRange(1), show_default=True, help="How many names.")
@click.option(
    "--calls", default=6000, type=click.IntRange(1), show_default=True, help="How many prefixes are completed."
)
@common.json_option
def command(*, url: str | None, count: int, calls: int, file: IO[str] | None) -> None:
    """Autocomplete among a million names: time, and memory of the server.

    Unranked and ranked, with one client, each on a private server unless --url names one. Prefixes have one to six
    letters and are taken from the names; each answer has at most ten names. Some answers are checked; fails if one of
    them is wrong.
    """
    names = make_names(count)
    with common.server(url) as address:
        machine = describe(address)

    def keep() -> Iterator[Keeping]:
        for mode in MODES:
            with common.server(url) as address:
                yield measure(address, mode, names, calls)

    found = common.tracked(keep(), len(MODES))
    common.save(file, "names", machine, {"names": count, "calls": calls}, found=common.plain(found))
    common.show(keeping_table(found, f"{common.title(machine)}; {count:,} names"))
    common.show(times_table(found, "Time of complete(prefix), µs"))
    common.fail([f"WRONG: {one.mode}: {trouble}" for one in found for trouble in one.trouble])
