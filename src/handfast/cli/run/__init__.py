"""``handfast run``: run a command while holding a lock, as ``flock(1)`` does within one machine.

The options of the lease are declared in `handfast.cli.taking`, which `handfast acquire` uses as well; `main` is the flow of a run.
"""

from __future__ import annotations

import logging
from typing import Any

import click

from handfast.cli.durations import TIMES
from handfast.cli.exits import BUSY, IO_ERROR, SIGNALED, USAGE, exit_codes
from handfast.cli.holding import loss_options, max_hold_option, ttl_option
from handfast.cli.program import ProgramCommand
from handfast.cli.run.main import run
from handfast.cli.supervision.child import LossPlan
from handfast.cli.supervision.signals import Interrupted, Signals
from handfast.cli.taking.options import Options, taking_options

__all__ = ["command"]

EPILOG = (
    exit_codes(
        {
            USAGE: "wrong usage, or NAME is held by a run that this one is inside",
            IO_ERROR: "the lease was lost while COMMAND ran (see --max-hold and --on-lost), or\na later run asked for it (see --preempt)",
            BUSY: "NAME is taken (see -E and --skip-ok), or a later run took the place of\nthis one in the queue (see --preempt and --replace)",
        },
        program="that of COMMAND, or 128+n if signal n ended it; otherwise",
    )
    + TIMES
    + """
\b
Environment of COMMAND:
  HANDFAST_NAME   NAME as given
  HANDFAST_FENCE  fencing token: a number that grows with every grant of NAME
  HANDFAST_TOKEN  the right to renew and release this lease; keep it secret
  HANDFAST_HELD   fences of this run and of those around it
  HANDFAST_SLOT   with --slots (up to 1024): a number that no other run has

If `handfast run` is killed with SIGKILL, or is suspended for longer than the TTL, the lease expires and another run can
start while COMMAND is still running. To make that harmless, let the resource that COMMAND writes to remember the largest
HANDFAST_FENCE it has seen and refuse smaller ones. This works with plain runs and with -x, which run one at a time; with
--slots and -s several holders are valid at once, and their fences say nothing about each other.

Signals are forwarded to COMMAND only, not to processes that it starts. End a shell script with `exec` if its last
program must receive them. All that can be caught are, but for those that stop and continue a job (TSTP, TTIN, TTOU, CONT) and
those of a fault (SEGV, BUS, FPE, ILL, TRAP, SYS).
"""
)


def _own_options(command: Any) -> Any:
    """Add the options for the length of the lease while COMMAND runs, and for the end of both."""
    skip_ok = click.option(
        "--skip-ok",
        is_flag=True,
        help="If NAME is taken, exit 0 without a message. Does not wait unless -w is given.",
    )
    return skip_ok(ttl_option(max_hold_option(loss_options(command))))


@click.command(cls=ProgramCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@taking_options(_own_options)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND while holding NAME.

    Waits in the queue of NAME, first come, first served, and renews the lease while COMMAND runs. COMMAND inherits
    standard input, output and error; its exit code is returned, and signals are forwarded to it.

    Without --slots, -s or -x, runs of the same NAME go one at a time. Plain runs, runs with --slots and runs with -s or
    -x are three separate locks: use only one kind for each NAME.
    """
    options, command, plan = Options.of(ctx, given), given["command"], LossPlan(given["on_lost"], given["kill_after"])
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        with Signals() as signals:
            code = run(options, command, plan, signals)
    except Interrupted as interruption:
        code = SIGNALED + interruption.number
    ctx.exit(code)
