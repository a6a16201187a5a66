"""``handfast demo``: watch processes coordinate."""

from __future__ import annotations

import click

from handfast.cli.demo.interruption import Interrupted, Interruption

__all__ = ["command"]

FULL_LENGTH = 30.0
"""Seconds that the demo takes at pace 1."""


@click.command("demo")
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
    default=FULL_LENGTH,
    show_default=True,
    help="Approximate duration. The leases that must expire set a lower limit.",
)
@click.pass_context
def command(ctx: click.Context, url: str | None, processes: int, seconds: float) -> None:
    """Watch processes compete for locks, in half a minute.

    Processes lose updates without a lock, wait in a queue, and take over from holders that die or freeze. Exits with 0
    if every promise was kept, 1 if not, and 130 after Ctrl-C. Leaves no process and no key behind.
    """
    with Interruption() as interruption:
        # Imported here, so that a Ctrl-C during the imports is noted too.
        from redis import RedisError

        from handfast.cli.demo.play import play
        from handfast.cli.demo.records import DemoSettings
        from handfast.errors import HandfastError

        try:
            ctx.exit(play(DemoSettings(processes, seconds / FULL_LENGTH), url, interruption))
        except Interrupted as interrupted:
            click.echo(f"\n  {interrupted}")
            ctx.exit(128 + interrupted.number)
        except (HandfastError, RedisError) as error:
            raise click.ClickException(str(error)) from error
