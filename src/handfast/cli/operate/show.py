"""``handfast show``: who holds a name, who waits for it, and what an operator did last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.operate.looking import KINDS, NOTHING, connected, json_option, known

if TYPE_CHECKING:
    from handfast import Handfast, OnceStatus

__all__ = ["command"]

EPILOG = """
\b
Exit codes:
   0  NAME is shown
   1  the server does not know NAME: it was not used in the last hour
  64  wrong usage
  69  the server cannot be reached, or it refused the request
"""


@click.command("show", epilog=EPILOG)
@click.argument("name", callback=parse_name)
@click.option("--kind", type=KINDS, help="Show NAME of this kind only.")
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

    A lock, a semaphore, a read-write lock and a once of one name have nothing to do with each other. Each that the
    server knows is shown. A reentrant lock is a lock. A key of once is 'NAME|KEY', in quotes; of once it also shows whether
    it was done, or began and did not end, and when.
    """
    from handfast.cli.operate import objects, table, words

    with connected(url, namespace=namespace) as client:
        found = known(client, name, kind)
        record = _record(client, name) if kind in (None, "once") else None
    number = 0
    for number, one in enumerate(found, 1):
        recorded = record if one.kind == "once" else None
        if as_json:
            click.echo(objects.dumped(objects.description(namespace, one) | objects.record(recorded)))
            continue
        if number > 1:
            click.echo()
        for line in words.described(one, table.width(), whole_queue=whole_queue, record=recorded):
            click.echo(line)
    if record is not None and not any(one.kind == "once" for one in found):
        number += 1
        if as_json:
            identity = {"namespace": namespace, "kind": "once", "name": name}
            click.echo(objects.dumped(identity | objects.record(record)))
        else:
            click.echo(f"once {table.printable(name)}\n  {words.recorded(record)}")
    if not number:
        click.echo(f"handfast: the server does not know {name!r}: it was not used in the last hour", err=True)
    ctx.exit(0 if number else NOTHING)


def _record(client: Handfast, name: str) -> OnceStatus | None:
    """Return how far a key of `once` has come; None if nothing is recorded of it."""
    from handfast import ServerRefused

    first, *parts = name.split("|")
    if not first or not all(parts):
        return None
    once = client.once(first)
    try:
        status = (once.keyed(*parts) if parts else once).status()
    except ServerRefused:  # who may look for names may not read results
        return None
    return None if status.age is None else status
