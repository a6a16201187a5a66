"""``handfast ls``: the names that are held and waited for, limiters in use, and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from handfast.arguments import Kind
from handfast.cli.connect import UNAVAILABLE, namespace_option, server_options
from handfast.cli.operate.looking import KINDS, NOTHING, connected, json_option

if TYPE_CHECKING:
    from handfast import NameStatus

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
    help="Also list idle names that were used in the last hour, and when; and what once has recorded.",
)
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
    when the first one ends. Limiters in use, debounced names and latches have tables of their own below.

    Looks through all keys of the server in small steps, without a registry of names.
    """
    from handfast import UnknownLayout
    from handfast._watch.held import held_names
    from handfast.cli.operate import objects, table, unheld, words

    known: list[NameStatus] = []
    refused = None
    with connected(url, namespace=namespace) as client:
        try:
            known.extend(client.names(pattern, kinds=kinds or get_args(Kind), recorded=idle))
        except UnknownLayout as error:  # it comes after all others
            refused = error
    shown = sorted((one for one in known if _is_wanted(one, waiting=waiting, on_hold=on_hold, idle=idle)), key=_rank)[
        :limit
    ]
    if as_json:
        for one in shown:
            click.echo(objects.dumped(objects.summary(namespace, one)))
    elif shown:
        most = table.width()
        held = held_names(shown)
        others = [*unheld.summary(shown, most)]
        for line in (*words.summary(held, most, last_used=idle), *([""] * bool(held and others)), *others):
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


def _is_wanted(one: NameStatus, *, waiting: bool, on_hold: bool, idle: bool) -> bool:
    from handfast.records import LimiterStatus, LockStatus

    status = one.status
    if on_hold:
        stops = status.hold if isinstance(status, LockStatus) else getattr(status, "paused_for", 0)
        return bool(stops)
    if waiting:
        return status.waiting > 0
    if idle or status.waiting:
        return True
    if isinstance(status, LockStatus):
        return bool(status.holding or status.hold)
    return not isinstance(status, LimiterStatus) or bool(status.paused_for or any(rate.used for rate in status.rates))


def _rank(one: NameStatus) -> tuple[int, float, str]:
    """Return what sorts names: the longest queue first, then the longest hold or the fullest limiter."""
    from handfast.cli.operate.unheld import fullness
    from handfast.records import LimiterStatus, LockStatus

    most = 0.0
    if isinstance(one.status, LockStatus):
        most = max((held.held_for for held in one.status.holders), default=0.0)
    elif isinstance(one.status, LimiterStatus):
        most = fullness(one.status)
    return -one.status.waiting, -most, one.name
