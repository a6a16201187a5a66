"""``handfast bench names``: autocomplete among very many names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import click

from handfast_lab.bench.machine import describe
from handfast_lab.bench.names import MODES, Keeping, make_names, measure
from handfast_lab.bench.table import keeping_table, times_table
from handfast_lab.commands.bench.common import fail, json_option, plain, save, server, show, title, tracked, url_option

__all__ = ["command"]


@click.command("names")
@url_option
@click.option("--names", "count", default=1_000_000, type=click.IntRange(1), show_default=True, help="How many names.")
@click.option(
    "--calls", default=6000, type=click.IntRange(1), show_default=True, help="How many prefixes are completed."
)
@json_option
def command(*, url: str | None, count: int, calls: int, file: IO[str] | None) -> None:
    """Autocomplete among a million names: time, and memory of the server.

    Unranked and ranked, with one client, each on a private server unless --url names one. Prefixes have one to six
    letters and are taken from the names; each answer has at most ten names. Some answers are checked; fails if one of
    them is wrong.
    """
    names = make_names(count)
    with server(url) as address:
        machine = describe(address)

    def keep() -> Iterator[Keeping]:
        for mode in MODES:
            with server(url) as address:
                yield measure(address, mode, names, calls)

    found = tracked(keep(), len(MODES))
    save(file, "names", machine, {"names": count, "calls": calls}, found=plain(found))
    show(keeping_table(found, f"{title(machine)}; {count:,} names"))
    show(times_table(found, "Time of complete(prefix), µs"))
    fail([f"WRONG: {one.mode}: {trouble}" for one in found for trouble in one.trouble])
