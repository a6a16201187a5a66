"""``handfast forget``: delete a record of `once`, or the parts of a latch."""

from __future__ import annotations

import sys
from typing import Any

import click

from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.exits import DONE, NOTHING, USAGE, exit_codes
from handfast.cli.operate.looking import connected, label_option, named, operator, reason_option, tell_unaudited
from handfast.cli.program import say

__all__ = ["command"]

EPILOG = exit_codes(
    {
        DONE: "it is forgotten",
        NOTHING: "nothing was recorded, it is another record by now, or the answer was no",
        USAGE: "wrong usage, such as no --yes without a terminal",
    }
)


@click.command("forget", epilog=EPILOG)
@click.argument("name", callback=parse_name)
@click.option(
    "--key", "keys", multiple=True, metavar="TEXT", help="The key, if NAME has keys; repeatable, in their order."
)
@click.option(
    "--kind",
    type=click.Choice(["once", "latch"]),
    default="once",
    show_default=True,
    help="What NAME is the name of.",
)
@reason_option(required=True, help="Why: for `handfast audit`.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@label_option
@server_options
@namespace_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Forget that NAME was done, so that the next one does it again.

    Of once: the result, or that a run began and did not end; a run that goes on records its result all the same. Of a
    latch: which parts are done. Shows what is recorded, and asks first; with --yes it only shows it. What is recorded after that
    is not forgotten. NAME is as `handfast ls` shows it.
    """
    from handfast.cli.operate import table

    with connected(given["url"], namespace=given["namespace"], label=given["label"] or operator()) as client:
        found = named(given["kind"], given)
        name = found.shown
        version = found.version(client)  # before what is shown: what is recorded in between is not forgotten
        if not version:
            say(f"of {given['kind']} {name!r} nothing is recorded")
            ctx.exit(NOTHING)
        click.echo(table.printable(f"{given['kind']} {name!r}: {found.state(client)}"), err=True)
        if not given["yes"]:
            _confirm(ctx)
        try:
            done = found.forget(client, reason=given["reason"], version=version)
        except ValueError as error:
            say(table.printable(str(error)))
            ctx.exit(NOTHING)
    tell_unaudited(done.unaudited)
    click.echo(f"{given['kind']} {name!r} is forgotten: the next one does it again")


def _confirm(ctx: click.Context) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Standard input is no terminal: confirm with --yes.", ctx)
    if not click.confirm("\nForget it?", err=True):
        ctx.exit(NOTHING)
