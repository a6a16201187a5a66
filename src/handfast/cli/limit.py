"""``handfast limit``: wait for the turn at a rate limiter, then become a command.

An admission is nothing to be held or released, so no process stays between the caller and the command.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.keys import read_shown
from handfast.cli.connect import namespace_option, parse_name, server_options, server_url
from handfast.cli.durations import TIMES, head_start_option, parse_duration_or_zero, span
from handfast.cli.exits import BUSY, SIGNALED, UNAVAILABLE, exit_codes
from handfast.cli.program import ProgramCommand, refuse_to_run, say
from handfast.cli.supervision.child import for_shell
from handfast.cli.supervision.signals import ENDING, Interrupted, Signals

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast._engine.rates import Rates

__all__ = ["command"]

EPILOG = (
    exit_codes(
        {BUSY: "not admitted in the time allowed, or too many are waiting", SIGNALED: "signal n ended the wait"},
        program="that of COMMAND, or 0 without one; otherwise",
    )
    + """
RATE is a number and a period: 10/s, 500/min, 1000/h, 20000/d, 1/100ms. Separated by semicolons, several hold together, as in
'10/s; 500/min'. Several metrics have names before them: 'requests: 500/min; tokens: 200000/min'; then a call counts 1 for
requests, and for the others what --cost says. Give the same RATE wherever NAME is used: each request counts by its own.
"""
    + TIMES
)


def parse_rate(_ctx: click.Context, _param: click.Parameter, value: str) -> Rates | dict[str, Rates]:
    """Check the rates as the library does."""
    from handfast._engine.rates import read_metrics, read_rates, read_text

    try:
        rates = read_text(value)
        read_metrics(rates) if isinstance(rates, dict) else read_rates(rates)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return rates


def parse_cost(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Read the costs of a call, by metric; the empty text stands for a limiter without."""
    found = dict[str, int]()
    for value in values:
        metric, _, number = value.rpartition("=")
        if not (number.isascii() and number.isdecimal()):
            raise click.BadParameter(f"{value!r} is neither a number nor METRIC=N")
        found[metric] = int(number)
    if "" in found and len(found) > 1:
        raise click.BadParameter("give a number alone, or METRIC=N for each metric")
    return found


class LimitCommand(ProgramCommand):
    is_optional = True


@click.command(cls=LimitCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=parse_name)
@click.argument("rate", callback=parse_rate)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="TEXT",
    help="Count by itself what has this key, such as a user; repeatable.",
)
@click.option(
    "--cost",
    "costs",
    multiple=True,
    callback=parse_cost,
    metavar="[METRIC=]N",
    help="Count this one as N; where RATE has metrics, repeatable.  [default: 1]",
)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait if RATE is used up.")
@click.option(
    "-w",
    "--wait",
    callback=parse_duration_or_zero,
    metavar="TIME",
    help="Wait at most this long; 0 does not wait. Gives up at once when it is certain to take longer.  [default: no limit]",
)
@head_start_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    name: str,
    rate: Rates | dict[str, Rates],
    keys: tuple[str, ...],
    costs: dict[str, int],
    nonblock: bool,
    wait: float | None,
    head_start: float,
    url: str,
    namespace: str,
    command: tuple[str, ...],
) -> None:
    """Wait for the turn of NAME under RATE, then become COMMAND.

    All that use NAME on the server are admitted first come, first served, and at most as many within any period as RATE
    says. Without COMMAND it exits with 0 when it is admitted.
    """
    if nonblock and wait:
        raise click.UsageError("Use either --nonblock or --wait.", ctx)
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        with Signals():
            with _connected(ctx, url, namespace) as client:
                first, parts = read_shown("limiter", name)
                limiter: Any = client.limiter(first, rate)
                limiter = limiter.keyed(*parts, *keys) if parts or keys else limiter
                has_metrics = isinstance(rate, dict)
                if has_metrics == ("" in costs) and costs:
                    raise ValueError(f"--cost must be {'METRIC=N, as RATE has metrics' if has_metrics else 'a number'}")
                cost = costs if has_metrics else costs.get("", 1)
                limiter.acquire(cost=cost, timeout=0.0 if nonblock else wait, head_start=head_start)
            # From here on a signal is kept back until its default action is restored, which ends this process.
            former = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    except Interrupted as interruption:
        ctx.exit(SIGNALED + interruption.number)
    signal.pthread_sigmask(signal.SIG_SETMASK, former)
    ctx.exit(_become(command) if command else 0)


@contextlib.contextmanager
def _connected(ctx: click.Context, url: str, namespace: str) -> Iterator[Handfast]:
    """Lend a client. The client's errors end the command with a matching exit code."""
    from redis.exceptions import RedisError

    from handfast import Handfast, HandfastError, LimitExceeded, QueueFull, RateLimited

    try:
        with Handfast(server_url(url), namespace=namespace) as client:
            yield client
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    except RateLimited as error:
        within = f"within {error.timeout:g} s" if error.timeout else "now"
        more = f"no more {error.metric}" if error.metric else "no more"
        say(f"{error.name!r} admits {more} {within}; try again in {span(ceil(10 * error.retry_after) / 10)}")
        raise click.exceptions.Exit(BUSY) from None
    except QueueFull as error:
        say(f"the queue of {error.name!r} is full: {error.waiting} are waiting")
        raise click.exceptions.Exit(BUSY) from None
    except HandfastError as error:
        if isinstance(error, LimitExceeded) and not error.is_set:
            raise click.UsageError(str(error), ctx) from None
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    except (RedisError, OSError) as error:
        say(f"not admitted: {error}")
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _become(program: tuple[str, ...]) -> int:
    """Run the program in place of this process. Return only if it cannot be run: the exit code that says why."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execvp(program[0], program)  # noqa: S606 -- becoming a command is what this is for
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            shell = for_shell(program)
            os.execv(shell[0], shell)  # noqa: S606
    except OSError as error:
        return refuse_to_run(program[0], error)
