"""``handfast once``: run a command unless it was done already.

The server remembers for a time that it was done, so machines whose clocks differ do not run it twice, however short it
is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from handfast._engine.keys import read_shown
from handfast.cli.connect import namespace_option, parse_name, server_options, server_url
from handfast.cli.durations import TIMES, head_start_option, limit, parse_duration, parse_duration_or_zero, span
from handfast.cli.exits import BUSY, IO_ERROR, NOT_REPEATED, SIGNALED, UNAVAILABLE, USAGE, exit_codes
from handfast.cli.holding import (
    Ended,
    fences_around,
    label_option,
    loss_options,
    max_hold_option,
    run_holding,
    ttl_option,
)
from handfast.cli.program import ProgramCommand, say
from handfast.cli.supervision.child import LossPlan
from handfast.cli.supervision.signals import Interrupted, Signals

if TYPE_CHECKING:
    from handfast import AlreadyRunning, Handfast, Once, Run

__all__ = ["command"]

EPILOG = (
    exit_codes(
        {
            USAGE: "wrong usage, or NAME is held by a run that this one is inside",
            NOT_REPEATED: "with --no-rerun: an earlier run began and was not done",
            IO_ERROR: "the lease was lost while COMMAND ran; it was not recorded as done",
            BUSY: "another run goes on (-n, -w), or too many are waiting",
        },
        program="that of COMMAND, 128+n if signal n ended it, 0 if done already; or",
    )
    + TIMES
    + """
COMMAND gets HANDFAST_NAME, HANDFAST_FENCE, HANDFAST_TOKEN and HANDFAST_HELD, and signals, as with `handfast run`. The fence
grows with every run of NAME and key.

If the machine dies while COMMAND runs, the next one runs it again, at most the TTL later: at least once. With --no-rerun it
is not run again until --keep is over, which then counts from its start: at most once. What was done is remembered as long as the server keeps its data.
"""
)


class Options(NamedTuple):
    """The command line, parsed. Durations are in seconds."""

    name: str
    command: tuple[str, ...]
    keep: float
    keys: tuple[str, ...]
    nonblock: bool
    wait: float | None
    head_start: float
    done_exit_code: int
    rerun: bool
    any_exit: bool
    ttl: float
    max_hold: float | None
    verbose: bool
    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float
    url: str
    namespace: str
    label: str | None

    @property
    def waits(self) -> bool:
        return not self.nonblock and self.wait != 0

    def counts_as_done(self, ended: Ended) -> bool:
        return ended.exited if self.any_exit else ended.ran and ended.code == 0


class Undone(Exception):
    """The command ended without being done."""


@click.command(cls=ProgramCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=parse_name)
@click.option(
    "--keep",
    callback=parse_duration,
    metavar="TIME",
    required=True,
    help="How long it counts as done, from the end of COMMAND.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="TEXT",
    help="Do it once for this key, such as a date or an order; repeatable.",
)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait if another one runs it.")
@click.option(
    "-w",
    "--wait",
    callback=parse_duration_or_zero,
    metavar="TIME",
    help="Wait at most this long for another one that runs it; 0 does not wait.  [default: no limit]",
)
@head_start_option
@click.option(
    "-E",
    "--done-exit-code",
    type=click.IntRange(0, 255),
    metavar="N",
    default=0,
    show_default=True,
    help="Exit code if it was done already.",
)
@click.option(
    "--no-rerun",
    "rerun",
    flag_value=False,
    default=True,
    help="Do not run it again after a run that began and was not done.",
)
@click.option("--any-exit", is_flag=True, help="Count it as done whatever its exit code, unless a signal ended it.")
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error if it was done already, and when.")
@ttl_option
@max_hold_option
@loss_options
@server_options
@namespace_option
@label_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND unless it was done already.

    Done is exit code 0, and counts for --keep. If it was done, exits with 0 and without a message. If another one runs
    it, waits for its end: then it is done, or the first that waits runs it in turn. COMMAND inherits standard input,
    output and error, and signals are forwarded to it.
    """
    options = Options(**given)
    if options.nonblock and options.wait:
        raise click.UsageError("Use either --nonblock or --wait.", ctx)
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        with Signals() as signals, _connected(ctx, options) as client:
            code = _once(_primitive(client, options), options, signals)
    except Interrupted as interruption:
        code = SIGNALED + interruption.number
    ctx.exit(code)


def _once(once: Once, options: Options, signals: Signals) -> int:
    """Run the command, or find that it was done. Return the exit code."""
    if options.waits and _would_wait_for_itself(once):
        say(
            f"{once.name!r} is held by a `handfast once` around this one, which ends only after it; use another NAME, or -n"
        )
        return USAGE
    with contextlib.suppress(Undone), once as run:
        if run.done:
            if options.verbose:
                say(
                    f"{once.name!r} was done {span(run.age)} ago, which counts for {limit(options.keep)}: it is not run again"
                )
            return options.done_exit_code
        plan = LossPlan(options.on_lost, options.kill_after)
        ended = run_holding(run, options.command, signals, plan)
        if not (ended.ran or options.rerun or run.lost):
            once.forget()  # it has not begun, and no other run can begin before the release
            run.release()
        if not options.counts_as_done(ended):
            raise Undone
        _record(run, ended, options)
    return ended.exit_code(run, options.command[0], plan)


def _record(run: Run, ended: Ended, options: Options) -> None:
    """Record that the command was done. The result is the exit code. Raises Undone if the lease was lost before."""
    from redis.exceptions import RedisError

    from handfast import HandfastError, LeaseLost

    try:
        run.finish(ended.code)
    except LeaseLost:
        raise Undone from None
    except (HandfastError, RedisError, OSError) as error:
        say(f"{options.command[0]!r} has ended, but could not be recorded as done and may run again: {error}")
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _primitive(client: Handfast, options: Options) -> Once:
    name, parts = read_shown("once", options.name)
    parts += options.keys
    once: Once = client.once(
        name,
        keep=options.keep,
        ttl=options.ttl,
        max_hold=options.max_hold,
        head_start=options.head_start,
        rerun=options.rerun,
        on_running="wait" if options.waits else "raise",
        timeout=options.wait or None,
        dumps=lambda code: b"%d" % code,  # a number in JSON, for programs that ask for the result
        loads=bytes,  # that it was done is enough, whatever recorded it
    )
    return once.keyed(*parts) if parts else once


def _would_wait_for_itself(once: Once) -> bool:
    """Return whether this run would wait for one that it is inside: the server has a run with the fence of that one."""
    around = fences_around()
    holder = once.status().held_by if around else None
    return holder is not None and holder.fence in around


@contextlib.contextmanager
def _connected(ctx: click.Context, options: Options) -> Iterator[Handfast]:
    """Lend a client. The client's errors end the command with a matching exit code."""
    from redis.exceptions import RedisError

    from handfast import AcquireTimeout, AlreadyRunning, Handfast, HandfastError, NotCompleted, QueueFull

    try:
        with Handfast(server_url(options.url), namespace=options.namespace, label=options.label) as client:
            yield client
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    except AlreadyRunning as error:
        say(_running(error))
        raise click.exceptions.Exit(BUSY) from None
    except AcquireTimeout as error:
        say(f"{error.name!r} still runs elsewhere; gave up after {error.timeout:g} s")
        raise click.exceptions.Exit(BUSY) from None
    except QueueFull as error:
        say(f"the queue of {error.name!r} is full: {error.waiting} are waiting")
        raise click.exceptions.Exit(BUSY) from None
    except NotCompleted as error:
        say(
            f"{error.name!r} began earlier and was not done; see what it did, then let it run again with forget(), or wait for --keep"
        )
        raise click.exceptions.Exit(NOT_REPEATED) from None
    except HandfastError as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    except (RedisError, OSError) as error:
        say(f"{options.name!r} was not run: {error}")
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _running(error: AlreadyRunning) -> str:
    holder = error.holder
    by = f" by {holder.label} for {span(holder.held_for)}" if holder else " elsewhere"
    return f"{error.name!r} is run{by}"
