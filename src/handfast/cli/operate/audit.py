"""``handfast audit``: the acts of operators."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from handfast._drivers.failures import OWN_ERRORS
from handfast.cli.colors import wrapped
from handfast.cli.connect import namespace_option, server_options
from handfast.cli.durations import TIMES, parse_duration, span
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import connected, json_option
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import AuditEntry, Handfast

__all__ = ["command"]

MOST = 10_000
"""How many entries the server keeps, about."""

STAMP = "2026-11-28 03:00:00  "
"""The length of a time, under which the rest of an entry is wrapped."""

EVERY_S = 1.0
"""How often --follow looks, in seconds."""

EPILOG = exit_codes({DONE: "entries are printed, or --follow was ended by SIGINT", NOTHING: "there are none"}) + TIMES


@click.command("audit", epilog=EPILOG)
@click.option("--since", callback=parse_duration, metavar="TIME", help="How far to look back.  [default: no limit]")
@click.option("--name", "pattern", default="*", metavar="PATTERN", help="Names to print, such as 'order:*'.")
@click.option("--follow", is_flag=True, help="Go on, and print what operators do from now on.")
@json_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    since: float | None,
    pattern: str,
    follow: bool,
    as_json: bool,
    url: str,
    namespace: str,
) -> None:
    """Print what operators did, in the order of time.

    Who took a lease away, put a name on hold, changed a limiter or had something done again, and why.

    The server keeps the last 10,000 entries, for 90 days after the last one. What programs do by the library is not among
    them, unless they write it.
    """
    from handfast.cli.operate import objects, table

    shown = 0
    with connected(url, namespace=namespace) as client, contextlib.suppress(KeyboardInterrupt):
        for entry in _entries(client, since, follow=follow):
            if not fnmatchcase(entry.name, pattern):
                continue
            shown += 1
            if as_json:
                fields = asdict(entry) | {"at": entry.at.isoformat()}
                click.echo(objects.dumped({"namespace": namespace, **fields}))
            else:
                for line in wrapped(table.printable(_line(entry)), table.width(), indent=len(STAMP)):
                    click.echo(line)
    if follow:
        ctx.exit(0)
    if not shown:
        say("no operator has done anything" + (" since then" if since else ""))
    ctx.exit(0 if shown else NOTHING)


def _entries(client: Handfast, since: float | None, *, follow: bool) -> Iterator[AuditEntry]:
    """Yield entries; with ``follow`` until the command is interrupted, also while the server is away."""
    last, is_away = "0-0", False
    entries: Iterable[AuditEntry] = client.audit(since=since, limit=MOST)
    while True:
        for entry in entries:
            last = entry.id
            yield entry
        if not follow:
            return
        time.sleep(EVERY_S)
        try:
            entries = client.audit(after=last, limit=MOST)
            is_away = False
        except OWN_ERRORS as error:
            if not is_away:
                say(f"cannot look, and tries again: {error}")
            entries, is_away = (), True


def _line(entry: AuditEntry) -> str:
    leases = "" if entry.count is None else f" ({entry.count:,} lease{'s' * (entry.count != 1)})"
    leases = f" (the lease with fence {entry.fence})" if entry.single else leases
    rates = "" if entry.rates is None else f" to {entry.rates or 'what each client brings'}"
    permits = "" if entry.permits is None else f" to {entry.permits:,} permit{'s' * (entry.permits != 1)}"
    time = "" if entry.duration is None else f" for {span(entry.duration)}"
    values = f"{leases}{rates}{permits}{time}{', now' * entry.now}"
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.what:<8}{entry.kind} {entry.name!r}{values} by {entry.by}: {entry.why}"
    )
