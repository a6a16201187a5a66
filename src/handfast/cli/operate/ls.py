"""``handfast ls``: the names that are held and waited for."""

from __future__ import annotations

from typing import get_args

import click

from handfast.arguments import Kind
from handfast.cli.connect import UNAVAILABLE, namespace_option, server_options
from handfast.cli.operate.looking import KINDS, NOTHING, connected, json_option

__all__ = ["command"]

EPILOG = """
\b
Exit codes:
   0  names are listed
   1  there are none
  64  wrong usage
  69  the server cannot be reached, or it refused the request
"""


@click.command("ls", epilog=EPILOG)
@click.argument("pattern", default="*")
@click.option("--kind", "kinds", type=KINDS, multiple=True, help="List names of this kind only; repeatable.")
@click.option("--waiting", is_flag=True, help="List only names that are waited for.")
@click.option("--on-hold", is_flag=True, help="List only names that are on hold; see `handfast hold`.")
@click.option("--all", "idle", is_flag=True, help="Also list idle names that were used in the last hour, and when.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="List the first N names.")
@json_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    pattern: str,
    kinds: tuple[Kind, ...],
    waiting: bool,
    on_hold: bool,
    idle: bool,
    limit: int | None,
    as_json: bool,
    url: str,
    namespace: str,
) -> None:
    """List the names that are held and waited for.

    PATTERN is a shell pattern, such as 'order:*' in quotes. Names with the longest queue come first, then those held
    for longest. Of a name with several leases, the table shows the one held for longest, how many others there are, and
    when the first one ends.

    Looks through all keys of the server in small steps, without a registry of names.
    """
    from handfast import NameStatus, UnknownLayout
    from handfast.cli.operate import objects, table, words

    known, refused = list[NameStatus](), None
    with connected(url, namespace=namespace) as client:
        try:
            for one in client.names(pattern, kinds=kinds or get_args(Kind)):
                known.append(one)
        except UnknownLayout as error:  # it comes after all others
            refused = error
    found = [
        one
        for one in known
        if (
            one.status.hold
            if on_hold
            else one.status.waiting or (not waiting and (idle or one.status.holding or one.status.hold))
        )
    ]
    found.sort(
        key=lambda one: (-one.status.waiting, -max((held.held_for for held in one.status.holders), default=0), one.name)
    )
    shown = found[:limit]
    if as_json:
        for one in shown:
            click.echo(objects.dumped(objects.summary(namespace, one)))
    elif shown:
        most = table.width()
        for line in words.summary(shown, most, last_used=idle):
            click.echo(line)
        if most is not None:
            queued = sum(one.status.waiting for one in known)
            click.echo(f"\n{len(shown):,} of {len(known):,} names known, {queued:,} waiting")
    elif refused is None:
        click.echo(
            "handfast: no name is "
            + ("on hold" if on_hold else "waited for" if waiting else "known" if idle else "held or waited for"),
            err=True,
        )
    if refused is not None:
        click.echo(f"handfast: {refused}", err=True)
        ctx.exit(UNAVAILABLE)
    ctx.exit(0 if shown else NOTHING)
