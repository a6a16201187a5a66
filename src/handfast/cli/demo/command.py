"""``handfast demo``: watch processes coordinate."""

from __future__ import annotations

import click

from handfast.cli.connect import UNAVAILABLE, unreachable
from handfast.cli.demo.interruption import Interrupted, Interruption

__all__ = ["command"]


EPILOG = """
\b
Exit codes:
   0  every promise was kept
   1  one was not
  64  wrong usage
  69  the server cannot be reached, or none can be started
 130  it was ended by Ctrl-C
"""


@click.command("demo", epilog=EPILOG)
@click.option("--url", metavar="URL", help="Use this server, in a namespace of its own, instead of a private one.")
@click.option(
    "--processes",
    type=click.IntRange(2, 16),
    default=4,
    show_default=True,
    help="How many processes increment the counter in the first act.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 600),
    default=30,
    show_default=True,
    help="Approximate duration. The leases that must expire set a lower limit.",
)
@click.pass_context
def command(ctx: click.Context, url: str | None, processes: int, seconds: float) -> None:
    """Watch processes share locks, a rate and a result, in half a minute.

    Processes lose updates without a lock, wait in a queue, take over from holders that die or freeze, share a rate and make a
    result once. Leaves no process and no key behind.
    """
    with Interruption() as interruption:
        # Imported here, so that a Ctrl-C during the imports is noted too.
        from redis import RedisError

        from handfast.cli.demo.play import play
        from handfast.cli.demo.records import FULL_LENGTH, DemoSettings
        from handfast.errors import HandfastError

        try:
            ctx.exit(play(DemoSettings(processes, seconds / FULL_LENGTH), url, interruption))
        except Interrupted as interrupted:
            click.echo(f"\n  {interrupted}")
            ctx.exit(128 + interrupted.number)
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from None
        except (HandfastError, RedisError) as error:
            click.echo(f"handfast: {unreachable(error, url)}", err=True)
            ctx.exit(UNAVAILABLE)
