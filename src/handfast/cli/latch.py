"""``handfast done`` and ``handfast wait``: jobs note their parts as done, and other jobs wait for all parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.keys import read_shown
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import TIMES, parse_duration, parse_duration_or_zero
from handfast.cli.exits import BUSY, DONE, SIGNALED, exit_codes
from handfast.cli.operate.looking import connected
from handfast.cli.program import say
from handfast.cli.supervision.signals import Interrupted, Signals

if TYPE_CHECKING:
    from handfast import Handfast, Latch

__all__ = ["done", "wait"]

NOTED = exit_codes({DONE: "the parts are noted"}) + TIMES

WAIT = (
    exit_codes(
        {DONE: "all parts are done", BUSY: "not all were done in the time allowed", SIGNALED: "signal n ended the wait"}
    )
    + TIMES
)

of_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--of", "count", type=click.IntRange(1, 100_000), required=True, metavar="N", help="How many parts there are."
)


@click.command("done", epilog=NOTED)
@click.argument("name", callback=parse_name)
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@of_option
@click.option(
    "--ttl",
    callback=parse_duration,
    default="1d",
    metavar="TIME",
    show_default=True,
    help="How long the server keeps the parts.",
)
@server_options
@namespace_option
def done(*, name: str, parts: tuple[str, ...], count: int, ttl: float, url: str, namespace: str) -> None:
    """Note parts of NAME as done, and print the number of parts left.

    Once N different parts are done, `handfast wait NAME` returns. A repeated part counts once.
    """
    with connected(url, namespace=namespace) as client:
        left = _latch(client, name, count, ttl=ttl).done(*parts)
    click.echo(f"{left:,} to be done" if left else "all are done")


@click.command("wait", epilog=WAIT)
@click.argument("name", callback=parse_name)
@of_option
@click.option(
    "-w",
    "--wait",
    "seconds",
    callback=parse_duration_or_zero,
    metavar="TIME",
    help="Wait at most this long; 0 does not wait.  [default: no limit]",
)
@server_options
@namespace_option
@click.pass_context
def wait(ctx: click.Context, /, *, name: str, count: int, seconds: float | None, url: str, namespace: str) -> None:
    """Wait until all parts of NAME are done.

    Returns once `handfast done NAME` was called for N different parts. Give the same N wherever NAME is used.
    """
    from handfast import WaitTimeout

    try:
        with Signals(), connected(url, namespace=namespace) as client:
            try:
                _latch(client, name, count).wait(timeout=seconds)
            except WaitTimeout as error:
                say(str(error))
                ctx.exit(BUSY)
    except Interrupted as interruption:
        ctx.exit(SIGNALED + interruption.number)


def _latch(client: Handfast, shown: str, count: int, **options: Any) -> Latch:
    """Return the latch with this name, spelled as `handfast ls` shows it."""
    name, parts = read_shown("latch", shown)
    latch = client.latch(name, count, **options)
    return latch.keyed(*parts) if parts else latch
