"""``handfast acquire``: take a name in one step of a script or pipeline, and give it back in another."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any

import click

from handfast.cli.connect import unreachable
from handfast.cli.durations import parse_duration
from handfast.cli.exits import BUSY, DONE, IO_ERROR, SIGNALED, UNAVAILABLE, exit_codes
from handfast.cli.operate.objects import dumped
from handfast.cli.program import say
from handfast.cli.supervision.signals import Interrupted, Signals
from handfast.cli.taking.acquire import Primitive, acquire, connect, release
from handfast.cli.taking.notice import Notice
from handfast.cli.taking.options import Options, taking_options

__all__ = ["command"]

EPILOG = (
    exit_codes(
        {
            DONE: "NAME is held, and its token was written",
            IO_ERROR: "the token could not be written; NAME was released",
            BUSY: "NAME is taken (see -E)",
        }
    )
    + """
Signal n that ends the wait makes it 128+n. Any code but 0 means that NAME is not held. TIME is in seconds, or has units: 500ms, 30s, 1m30s, 1h, 1d.

\b
Example:
  token=$(handfast acquire deploy --ttl 10m) || exit
  ...
  handfast extend deploy --token "$token" --ttl 10m || exit
  ...
  handfast release deploy --token "$token"
"""
)


def _own_options(command: Any) -> Any:
    """Add the options for the length of the lease and the form of the token."""
    ttl = click.option(
        "--ttl",
        callback=parse_duration,
        required=True,
        metavar="TIME",
        help="How long NAME is held, unless `handfast release` ends it before or `handfast extend` lets it last longer.",
    )
    as_env = click.option(
        "--env", "as_env", is_flag=True, help="Write HANDFAST_TOKEN=... and HANDFAST_FENCE=..., one a line."
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
    return ttl(as_env(as_json(command)))


@click.command("acquire", epilog=EPILOG)
@taking_options(_own_options)
@click.pass_context
def command(ctx: click.Context, /, *, as_env: bool, as_json: bool, **given: Any) -> None:
    """Take NAME and write a token, with which a later step extends or releases it.

    Waits in the queue of NAME, first come, first served, as `handfast run` does. Nothing renews the lease: it ends
    after the TTL, whatever happens to the steps that follow. Prefer `handfast run` where one command is all that needs
    NAME.

    The token is the right to extend and to release: keep it out of logs.
    """
    if as_env and as_json:
        raise click.UsageError("Use either --env or --json.", ctx)
    options = Options.of(ctx, given)
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        with Signals():
            _acquire(ctx, options, "env" if as_env else "json" if as_json else "")
    except Interrupted as interruption:
        ctx.exit(SIGNALED + interruption.number)


def _acquire(ctx: click.Context, options: Options, form: str) -> None:
    """Take the name and write the token. If anything prevents this, the name is given back."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    if sys.stdout is None:
        say("standard output is closed, so the token can't be written")
        ctx.exit(IO_ERROR)
    client, primitive = connect(options)
    with client, Notice(options, primitive) as notice:
        lease = token = None
        try:
            lease = acquire(options, primitive)
            notice.end()
            token = lease.detach()  # which lets it last the whole TTL from now
            _write(form, {"name": options.name, "token": token, "fence": lease.fence, "ttl": options.ttl})
            lease = token = None
        except (HandfastError, RedisError) as error:
            say(unreachable(error))
            ctx.exit(UNAVAILABLE)
        except OSError as error:
            say(f"the token could not be written, so {options.name!r} is released: {error.strerror}")
            with contextlib.suppress(OSError):  # Python writes what is left at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(IO_ERROR)
        finally:
            if token is not None:
                _give_back(options.name, primitive, token)
            elif lease is not None:
                release(lease)


def _write(form: str, taken: dict[str, Any]) -> None:
    """Write the fields for a later step, and see that they have left this process."""
    match form:
        case "env":
            click.echo(f"HANDFAST_TOKEN={taken['token']}\nHANDFAST_FENCE={taken['fence']}")
        case "json":
            click.echo(dumped(taken))
        case _:
            click.echo(taken["token"])


def _give_back(name: str, primitive: Primitive, token: str) -> None:
    """Release a detached lease."""
    from redis.exceptions import RedisError

    from handfast import HandfastError, LeaseLost

    try:
        primitive.adopt(token).release()
    except LeaseLost:
        pass
    except (HandfastError, RedisError, OSError) as error:
        say(f"could not release the lease of {name!r}, which ends after its TTL: {unreachable(error)}")
