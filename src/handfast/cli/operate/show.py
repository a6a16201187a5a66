"""``handfast show``: who holds a name, who waits for it, and what an operator did last."""

from __future__ import annotations

import click

from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.operate.looking import KINDS, NOTHING, connected, json_option, known

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
    server knows is shown. A reentrant lock is a lock. A key of once is 'NAME|KEY', in quotes.
    """
    from handfast.cli.operate import objects, table, words

    with connected(url, namespace=namespace) as client:
        found = known(client, name, kind)
    for number, one in enumerate(found):
        if as_json:
            click.echo(objects.dumped(objects.description(namespace, one)))
            continue
        if number:
            click.echo()
        for line in words.described(one, table.width(), whole_queue=whole_queue):
            click.echo(line)
    if not found:
        click.echo(f"handfast: the server does not know {name!r}: it was not used in the last hour", err=True)
    ctx.exit(0 if found else NOTHING)
