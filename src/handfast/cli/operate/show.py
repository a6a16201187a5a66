"""``handfast show``: who holds a name, who waits for it, and the last act of an operator."""

from __future__ import annotations

import time
from glob import escape
from typing import TYPE_CHECKING, get_args

import click

from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import KINDS, LISTED, connected, json_option
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast, NameStatus
    from handfast._watch.rows import Row

__all__ = ["command"]

EPILOG = exit_codes({DONE: "NAME is shown", NOTHING: "the server does not know NAME: it was not used in the last hour"})


@click.command("show", epilog=EPILOG)
@click.argument("name", callback=parse_name)
@click.option("--kind", type=KINDS, metavar="KIND", help=f"Show NAME of this kind only: {', '.join(KINDS.choices)}.")
@click.option("--all", "whole_queue", is_flag=True, help="Show up to 100 waiters; ten by default.")
@json_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    name: str,
    kind: Kind | None,
    whole_queue: bool,
    as_json: bool,
    url: str,
    namespace: str,
) -> None:
    """Show who holds NAME, who waits, and what an operator did last.

    A lock, a semaphore, a limiter and so on of one name have nothing to do with each other. Each that the server knows is
    shown. A reentrant lock is a lock. A key is 'NAME|KEY', in quotes; of once it also shows whether it was done, or began
    and did not end, and when.

    Looks through all keys of the server for the periods of a limiter and for the items of a partition, unless --kind says
    that NAME is something else.
    """
    from handfast.cli.operate import objects, table, words

    with connected(url, namespace=namespace) as client:
        found = _rows(client, name, kind)
    most, is_first = table.width(), True
    for one in found:
        if as_json:
            click.echo(objects.dumped(objects.description(namespace, one)))
            continue
        if not is_first:
            click.echo()
        is_first = False
        for line in words.described(one, most, whole_queue=whole_queue):
            click.echo(line)
    if not found:
        say(f"the server does not know {name!r}: it was not used in the last hour")
    ctx.exit(0 if found else NOTHING)


def _rows(client: Handfast, name: str, kind: Kind | None) -> list[Row]:
    """Return a name in each kind, or in a single kind; with the items that belong to it."""
    from handfast._watch.rows import gathered, rows_of

    rows = [*rows_of(_known(client, name, kind), time.monotonic())]
    for row in [row for row in rows if row.face.has_items and not row.named.parts]:
        items = client.names(f"{escape(name)}|*", kinds=(row.kind,), listed=LISTED)
        rows += rows_of(items, time.monotonic())
    return gathered(rows)


def _known(client: Handfast, name: str, kind: Kind | None) -> list[NameStatus]:
    """Return the status of a name in each kind, or in a single kind."""
    from handfast import ServerRefused, UnknownLayout

    kinds = (kind,) if kind else get_args(Kind)
    try:
        return list(client.names(escape(name), kinds=kinds, listed=LISTED, recorded=True))
    except UnknownLayout:
        raise
    except ServerRefused:  # the user may look for names, and may not read records of once
        return list(client.names(escape(name), kinds=kinds, listed=LISTED))
