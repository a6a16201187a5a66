"""``handfast extend``: let a lease last longer, with the token."""

from __future__ import annotations

import click

from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import parse_duration
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import HELD_KINDS, connected
from handfast.cli.operate.tokens import held_by, token_option
from handfast.cli.program import say

__all__ = ["command"]

EPILOG = exit_codes({DONE: "the lease lasts that long", NOTHING: "the lease has ended"})


@click.command("extend", epilog=EPILOG)
@click.argument("name", callback=parse_name)
@token_option(envvar="HANDFAST_TOKEN", show_envvar=True, required=True)
@click.option(
    "--ttl", callback=parse_duration, required=True, metavar="TIME", help="How long the lease lasts from now, at least."
)
@click.option(
    "--kind", type=HELD_KINDS, help="What NAME is the name of, for a token of `handfast run`.  [default: lock]"
)
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context, /, *, name: str, token: str, ttl: float, kind: Kind | None, url: str, namespace: str
) -> None:
    """Let a lease last longer, by its token.

    The token is one of `lease.detach()`, or the HANDFAST_TOKEN of `handfast run`. TIME is in seconds, or has units:
    500ms, 30s, 1m30s, 1h, 1d. A lease that lasts longer already stays as it is.
    """
    with connected(url, namespace=namespace) as client:
        if held_by(client, name, token, kind, ttl) is None:
            say(f"the lease of {name!r} has ended")
            ctx.exit(NOTHING)
