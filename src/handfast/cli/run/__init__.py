"""``handfast run``: a command that runs only while something is held, as ``flock(1)`` does for one machine.

Here is what can be asked for. `order` reads it from the command line, `running` has the order of things, `taking` what
there is to take, and `telling` the words for it.
"""

from __future__ import annotations

import logging
from typing import Any

import click

from handfast.cli.run import options
from handfast.cli.run.main import carry_out
from handfast.cli.supervision.signals import Interrupted, Signals

__all__ = ["command"]

EPILOG = """
\b
Exit codes: that of COMMAND, 128+n if it died of signal n, or
   64  wrong usage
   69  the server cannot be reached, or refused
   74  the lease was lost while COMMAND ran (not with --on-lost ignore)
   75  NAME is taken (see -E and --skip-ok)
  126  COMMAND cannot be executed
  127  COMMAND was not found

\b
COMMAND finds in its environment:
  HANDFAST_NAME   NAME as given
  HANDFAST_FENCE  a number that grows with every grant of NAME
  HANDFAST_TOKEN  the right to renew and release this lease: a secret

If `handfast run` itself is killed with SIGKILL, or stopped for longer than the TTL, nobody renews the lease: it ends
after the TTL, and others get in, while COMMAND, an orphan now, may still be running. Let what COMMAND writes to remember
the largest HANDFAST_FENCE it has seen and refuse smaller ones: then an orphan does no harm. That works where one runs at
a time, plainly or with -x; with --slots and -s a smaller number may be as good as a larger one.

Signals are passed on to COMMAND alone, not to programs that it starts: end a shell script with `exec` where that
matters.
"""


@click.command(cls=options.RunCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=options.name)
@click.option(
    "--slots",
    type=int,
    metavar="N",
    callback=options.slots,
    help="Let N run at a time. Where runs differ in N, each waits until fewer than its own N are in.",
)
@click.option("-s", "--shared", is_flag=True, help="Share NAME with other -s, but never with -x.")
@click.option(
    "-x",
    "--exclusive",
    is_flag=True,
    help="Have NAME alone: no -s, no other -x. Goes with -s; plain runs don't see it.",
)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait.")
@click.option(
    "-w",
    "--wait",
    type=float,
    metavar="SECS",
    callback=options.seconds_or_zero,
    help="Wait no longer than that.  [default: without limit]",
)
@click.option(
    "-E",
    "--conflict-exit-code",
    type=click.IntRange(0, 255),
    metavar="N",
    default=options.BUSY,
    show_default=True,
    help="Exit code when NAME is taken.",
)
@click.option(
    "--skip-ok", is_flag=True, help="Exit 0, quietly, when NAME is taken. Does not wait, unless told to with -w."
)
@click.option(
    "--ttl",
    type=float,
    metavar="SECS",
    callback=options.seconds,
    default=30.0,
    show_default=True,
    help="How long the lease outlives us if we die; it is renewed while we live.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["term", "kill", "ignore"]),
    default="term",
    show_default=True,
    help="If the lease is lost while COMMAND runs: end it with SIGTERM, kill it with SIGKILL, or let it finish.",
)
@click.option(
    "--kill-after",
    type=float,
    metavar="SECS",
    callback=options.seconds_or_zero,
    default=10.0,
    show_default=True,
    help="With --on-lost term: how long COMMAND has before SIGKILL.",
)
@click.option("--url", help="The server.  [default: $HANDFAST_URL, $REDIS_URL, or one that all your processes share]")
@click.option(
    "--namespace", default="hf", show_default=True, callback=options.name, help="What keys on the server begin with."
)
@click.option("--label", help="Who we are in a status.  [default: host:pid]")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND while holding NAME: alone, as one of N, or shared.

    Waits for its turn, first come first served, and renews the lease for as long as COMMAND runs. Standard streams and
    the exit code pass through, signals are passed on.

    Plain runs of a NAME go one at a time. Runs with --slots, runs with -s or -x, and plain runs do not see each other:
    stay with one kind for each NAME.
    """
    asked = options.Order(**given)
    if asked.nonblock and asked.wait:
        raise options.Usage("Either --nonblock or --wait.", ctx)
    if (asked.slots is not None) + asked.shared + asked.exclusive > 1:
        raise options.Usage("Either --slots or --shared or --exclusive.", ctx)
    logging.basicConfig(format="handfast: %(message)s")  # what the library warns of, in our voice
    try:
        with Signals() as signals:
            code = carry_out(asked, signals)
    except Interrupted as interruption:
        code = 128 + interruption.number
    ctx.exit(code)
