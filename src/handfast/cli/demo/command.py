"""``handfast demo``: watch processes coordinate."""

from __future__ import annotations

import signal
import sys

import click

from handfast.cli.connect import unreachable
from handfast.cli.exits import DONE, NOTHING, SIGNALED, UNAVAILABLE, exit_codes
from handfast.cli.program import say

__all__ = ["command"]

EPILOG = exit_codes(
    {
        DONE: "every promise was kept",
        NOTHING: "a promise was broken",
        UNAVAILABLE: "the server cannot be reached, or none can be started",
        SIGNALED + signal.SIGINT: "it was ended by Ctrl-C",
    }
)


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
@click.option("--page", is_flag=True, help="Also show it in a browser: see `handfast page`. Then Enter ends the demo.")
@click.pass_context
def command(ctx: click.Context, url: str | None, processes: int, seconds: float, *, page: bool) -> None:
    """Watch processes share locks, a rate, a result and items, in half a minute.

    Processes lose updates without a lock, wait in a queue, take over from holders that die or freeze, share a rate, make
    a result once, and spread items. Leaves no process and no key behind.
    """

    def end(number: int, _frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # the impatient press twice
        click.echo(f"\n  ended by {signal.Signals(number).name}")
        sys.exit(128 + number)

    all_signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    signals = [number for number in all_signals if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores one
    for number in signals:
        signal.signal(number, end)

    from redis import RedisError

    from handfast.cli.demo.play import play
    from handfast.errors import HandfastError

    try:
        ctx.exit(play(url, processes, seconds / 40, has_page=page))
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    except ImportError as error:  # the page's
        say(str(error))
        ctx.exit(UNAVAILABLE)
    except (HandfastError, RedisError) as error:
        say(unreachable(error, url))
        ctx.exit(UNAVAILABLE)
