"""``handfast demo``: watch processes coordinate."""

from __future__ import annotations

import click

from handfast.cli.demo.interruption import Interrupted, Interruption

__all__ = ["command"]

FULL_LENGTH = 30.0
"""Seconds that the demo is written for."""


@click.command("demo")
@click.option("--url", metavar="URL", help="Play on this server, in a namespace of its own, not on a private one.")
@click.option(
    "--processes",
    type=click.IntRange(2, 16),
    default=4,
    show_default=True,
    help="How many processes count together in the first act.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 600),
    default=FULL_LENGTH,
    show_default=True,
    help="About how long all of it takes; the leases that must run out set a limit.",
)
@click.pass_context
def command(ctx: click.Context, url: str | None, processes: int, seconds: float) -> None:
    """Watch processes coordinate, in half a minute.

    Real processes compete for locks: they lose updates without one, queue in order, and survive holders that die or
    freeze. Exits with 0 if everything went as promised, 1 if not, and 130 after Ctrl-C. Leaves nothing behind.
    """
    with Interruption() as interruption:
        # Only now, so that a Ctrl-C while this is loaded is noted too.
        from redis import RedisError

        from handfast.cli.demo.play import play
        from handfast.cli.demo.records import Plan
        from handfast.errors import HandfastError

        try:
            ctx.exit(play(Plan(processes, seconds / FULL_LENGTH), url, interruption))
        except Interrupted as interrupted:
            click.echo(f"\n  {interrupted}")
            ctx.exit(128 + interrupted.number)
        except (HandfastError, RedisError) as error:
            raise click.ClickException(str(error)) from error
