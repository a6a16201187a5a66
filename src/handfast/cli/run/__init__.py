"""``handfast run``: run a command while holding a lock, as ``flock(1)`` does within one machine.

This module declares the options. `options` parses and checks them, `main` is the flow of a run, `acquire` makes and
acquires the primitive, `notice` says for whom it waits, and `messages` words what it says.
"""

from __future__ import annotations

import logging
from typing import Any

import click

from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import parse_duration, parse_duration_or_zero
from handfast.cli.holding import label_option, loss_options, ttl_option
from handfast.cli.program import BUSY, ProgramCommand
from handfast.cli.run import options
from handfast.cli.run.main import run
from handfast.cli.supervision.signals import Interrupted, Signals

__all__ = ["command"]

EPILOG = """
\b
Exit codes: that of COMMAND, or 128+n if signal n ended it; otherwise
   64  wrong usage, or NAME is held by a run that this one is inside
   69  the server cannot be reached, or it refused the request
   74  the lease was lost while COMMAND ran (not with --on-lost ignore)
   75  NAME is taken (see -E and --skip-ok)
  126  COMMAND cannot be executed
  127  COMMAND was not found

TIME is in seconds, or has a unit: 500ms, 30s, 5m, 1h, 1d.

\b
Environment of COMMAND:
  HANDFAST_NAME   NAME as given
  HANDFAST_FENCE  fencing token: a number that grows with every grant of NAME
  HANDFAST_TOKEN  the right to renew and release this lease; keep it secret
  HANDFAST_HELD   fences of this run and of those around it

If `handfast run` is killed with SIGKILL, or is suspended for longer than the TTL, the lease expires and another run can
start while COMMAND is still running. To make that harmless, let the resource that COMMAND writes to remember the largest
HANDFAST_FENCE it has seen and refuse smaller ones. This works with plain runs and with -x, which run one at a time; with
--slots and -s several holders are valid at once, and their fences say nothing about each other.

Signals are forwarded to COMMAND only, not to processes that it starts. End a shell script with `exec` if its last
program must receive them. All that can be caught are, but for those that stop and continue a job (TSTP, TTIN, TTOU, CONT) and
those of a fault (SEGV, BUS, FPE, ILL, TRAP, SYS).
"""


@click.command(cls=ProgramCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=parse_name)
@click.option(
    "--slots",
    type=int,
    metavar="N",
    callback=options.parse_slots,
    help="Semaphore: let up to N runs hold NAME at a time. If N differs, each run waits until fewer than its own N hold it.",
)
@click.option("-s", "--shared", is_flag=True, help="Read-write lock: hold NAME together with other -s runs.")
@click.option(
    "-x",
    "--exclusive",
    is_flag=True,
    help="Read-write lock: hold NAME alone, without any -s or other -x run.",
)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait if NAME is taken.")
@click.option(
    "-w",
    "--wait",
    callback=parse_duration_or_zero,
    metavar="TIME",
    help="Wait at most this long; 0 does not wait.  [default: no limit]",
)
@click.option(
    "-E",
    "--conflict-exit-code",
    type=click.IntRange(0, 255),
    metavar="N",
    default=BUSY,
    show_default=True,
    help="Exit code if NAME is taken.",
)
@click.option(
    "--skip-ok", is_flag=True, help="If NAME is taken, exit 0 without a message. Does not wait unless -w is given."
)
@ttl_option
@click.option(
    "--at-least",
    callback=parse_duration,
    metavar="TIME",
    help="Keep NAME taken for at least this long, even if COMMAND ends earlier: for jobs that several machines start.",
)
@loss_options
@server_options
@namespace_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="After a second of waiting, say on standard error who holds NAME and how many wait before. On a terminal it does so "
    "in any case.",
)
@label_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND while holding NAME.

    Waits in the queue of NAME, first come, first served, and renews the lease while COMMAND runs. COMMAND inherits
    standard input, output and error; its exit code is returned, and signals are forwarded to it.

    Without --slots, -s or -x, runs of the same NAME go one at a time. Plain runs, runs with --slots and runs with -s or
    -x are three separate locks: use only one kind for each NAME.
    """
    chosen = options.Options(**given)
    if chosen.nonblock and chosen.wait:
        raise click.UsageError("Use either --nonblock or --wait.", ctx)
    if (chosen.slots is not None) + chosen.shared + chosen.exclusive > 1:
        raise click.UsageError("Use only one of --slots, --shared and --exclusive.", ctx)
    if chosen.at_least and (chosen.slots is not None or chosen.shared or chosen.exclusive):
        raise click.UsageError("Use --at-least without --slots, --shared and --exclusive.", ctx)
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        with Signals() as signals:
            code = run(chosen, signals)
    except Interrupted as interruption:
        code = 128 + interruption.number
    ctx.exit(code)
