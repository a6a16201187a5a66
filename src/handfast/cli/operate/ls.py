"""``handfast ls``: the names that are held and waited for, limiters in use, and the like."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

import click

from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, server_options
from handfast.cli.durations import TIMES, parse_duration
from handfast.cli.exits import DONE, NOTHING, UNAVAILABLE, exit_codes
from handfast.cli.operate.looking import KINDS, connected, json_option, uncollected
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast, UnknownLayout
    from handfast._watch.rows import Row

__all__ = ["command"]

EPILOG = exit_codes({DONE: "names are listed", NOTHING: "there are none"}) + TIMES


@click.command("ls", epilog=EPILOG)
@click.argument("pattern", default="*")
@click.option(
    "--kind",
    "kinds",
    type=KINDS,
    metavar="KIND",
    multiple=True,
    help=f"List names of this kind only: {', '.join(KINDS.choices)}; repeatable.",
)
@click.option("--waiting", is_flag=True, help="List only names that are waited for.")
@click.option(
    "--on-hold", is_flag=True, help="List only names that are on hold or paused; see `handfast hold` and `pause`."
)
@click.option(
    "--all",
    "idle",
    is_flag=True,
    help="Also list idle names that were used in the last hour, and when; and the records of once.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="List the first N names.")
@click.option("--watch", callback=parse_duration, metavar="TIME", help="List them again and again, at that distance.")
@json_option
@server_options
@namespace_option
@click.pass_context
def command(ctx: click.Context, /, *, watch: float | None, url: str, namespace: str, **wanted: Any) -> None:
    """List the names that are held and waited for.

    PATTERN is a shell pattern, such as 'order:*' in quotes. Names with the longest queue come first, then those held
    for longest. Of a name with several leases, the table shows the one held for longest, how many others there are, and
    when the first one ends. Limiters in use, debounced names and latches have tables of their own below.

    Looks through all keys of the server in small steps, without a registry of names.
    """
    with connected(url, namespace=namespace) as client:
        if watch is not None:
            _watch(client, namespace, watch, wanted)
            return
        with uncollected():
            lines, refused = _listed(client, namespace, **wanted)
    if lines:
        click.echo("\n".join(lines))
    if refused is not None:
        say(str(refused))
        ctx.exit(UNAVAILABLE)
    if not lines:
        on_hold, waiting, idle = (wanted[name] for name in ("on_hold", "waiting", "idle"))
        words = "on hold" if on_hold else "waited for" if waiting else "known" if idle else "held or waited for"
        say(f"no name is {words}")
    ctx.exit(0 if lines else NOTHING)


def _watch(client: Handfast, namespace: str, seconds: float, wanted: dict[str, Any]) -> None:
    """List names again and again, until Ctrl-C. A look that fails is a line, and others follow."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    is_screen = sys.stdout.isatty() and not wanted["as_json"]
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while True:
            try:
                lines, refused = _listed(client, namespace, **wanted)
                problem = refused and str(refused)
            except (HandfastError, RedisError, OSError) as error:
                lines, problem = [], str(error)
            if is_screen:
                click.clear()
                lines = lines[: shutil.get_terminal_size().lines - 2]
            for line in lines:
                click.echo(line)
            if problem is not None:
                say(str(problem))
            if not (is_screen or wanted["as_json"]):
                click.echo()
            sys.stdout.flush()
            time.sleep(seconds)


def _listed(
    client: Handfast,
    namespace: str,
    *,
    pattern: str,
    kinds: tuple[Kind, ...],
    limit: int | None,
    as_json: bool,
    **which: bool,
) -> tuple[list[str], UnknownLayout | None]:
    """Return the lines to print, and the error for a name in another layout."""
    from handfast._engine.names import NamePattern
    from handfast._protocol.names import Search
    from handfast._watch.rows import gathered
    from handfast._watch.survey import LISTED, rows_found
    from handfast.cli.operate import objects, table, words

    sought = NamePattern(namespace, pattern, kinds or get_args(Kind), recorded=which["idle"])
    search = Search(sought, LISTED, keeps=False)
    entries, objects_of = list[words.Entry](), list[tuple[tuple[object, ...], str]]()
    with_items: list[Row] = []
    known = queued = 0
    for row in rows_found(client, search, pattern, warns=True):
        known, queued = known + 1, queued + row.facts.waiting
        if not _is_wanted(row, **which):
            continue
        if as_json:
            objects_of.append(((*row.facts.rank, row.name), objects.dumped(objects.summary(namespace, row))))
        elif row.face.has_items:
            with_items.append(row)
        else:
            entries.append(words.entry(row))  # the row is not kept: there may be a hundred thousand
    if as_json:
        return [text for _, text in sorted(objects_of, key=lambda one: one[0])[:limit]], search.refused
    entries += map(words.entry, gathered(with_items))
    entries.sort(key=lambda one: one.rank)
    most = table.width()
    lines = [*words.summary(entries[:limit], most, last_used=which["idle"])]
    if most is not None and lines:
        lines += ["", f"{len(entries[:limit]):,} of {known:,} names known, {queued:,} waiting"]
    return lines, search.refused


def _is_wanted(row: Row, *, waiting: bool, on_hold: bool, idle: bool) -> bool:
    facts = row.facts
    if on_hold:
        return facts.stop is not None
    return facts.waiting > 0 if waiting else idle or not facts.is_idle
