"""``holdfast run``: a command that runs only while a lock is held, as ``flock(1)`` does for one machine.

The order of things keeps its promises. Signals are taken first, so that one ends even the slowest wait cleanly; the lock
comes next; the command starts after the grant and has ended before the release. Whoever needs more than that, a
resource that refuses the writes of a holder who lost the lock and does not know it yet, compares ``HOLDFAST_FENCE``.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from holdfast.cli.connect import server_url
from holdfast.cli.supervision.child import Child, LossPlan
from holdfast.cli.supervision.signals import Interrupted, Signals
from holdfast.words.durations import milliseconds
from holdfast.words.names import encode_name

if TYPE_CHECKING:
    from holdfast import Holdfast, Lease, Lock

__all__ = ["command"]

# As in sysexits.h, and as sh has it for commands that cannot be run.
USAGE, UNAVAILABLE, LOST, BUSY = 64, 69, 74, 75
NOT_EXECUTABLE, NOT_FOUND = 126, 127

EPILOG = """
\b
Exit codes: that of COMMAND, 128+n if it died of signal n, or
   64  wrong usage
   69  the server cannot be reached, or refused
   74  the lease was lost while COMMAND ran (not with --on-lost ignore)
   75  the lock is held by others (see -E and --skip-ok)
  126  COMMAND cannot be executed
  127  COMMAND was not found

\b
COMMAND finds in its environment:
  HOLDFAST_NAME   the name of the lock
  HOLDFAST_FENCE  a number that grows with every grant of that name
  HOLDFAST_TOKEN  the right to renew and release this lease: a secret

If `holdfast run` itself is killed with SIGKILL, or stopped for longer than the TTL, nobody renews the lock: it comes
free after the TTL while COMMAND, an orphan now, may still be running. Let what COMMAND writes to remember the largest
HOLDFAST_FENCE it has seen and refuse smaller ones: then an orphan does no harm.

Signals are passed on to COMMAND alone, not to programs that it starts: end a shell script with `exec` where that
matters.
"""


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line. Durations in seconds."""

    name: str
    command: tuple[str, ...]
    nonblock: bool
    wait: float | None
    conflict_exit_code: int
    skip_ok: bool
    ttl: float
    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float
    url: str | None
    namespace: str
    label: str | None

    @property
    def patience(self) -> float | None:
        """How long to wait for the lock: 0 not at all, None without limit."""
        return self.wait if self.wait is not None or not (self.nonblock or self.skip_ok) else 0.0

    @property
    def busy_code(self) -> int:
        """The exit code when others hold the lock."""
        return 0 if self.skip_ok else self.conflict_exit_code


class Usage(click.UsageError):
    """A usage error that exits as sysexits.h has it."""

    exit_code = USAGE


class RunCommand(click.Command):
    """Our own options end at ``--`` and what comes later is COMMAND's: no option is ever taken for the other's."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """How the command line looks."""
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line, ours by click, and COMMAND's not at all."""
        end = args.index("--") if "--" in args else len(args)
        try:
            super().parse_args(ctx, args[:end])
            if (ctx.args or not args[end + 1 :]) and not ctx.resilient_parsing:
                ctx.fail("Name one lock and one command, with -- between them.")
        except click.UsageError as error:
            hint = "" if "--" in args else " The command comes after --."
            raise Usage(error.format_message() + hint, ctx) from None
        ctx.params["command"] = tuple(args[end + 1 :])
        ctx.args = []
        return []


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """A duration as the library takes it."""
    try:
        milliseconds(0.001 if value is None else value, "it")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _seconds_or_zero(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """The same, or zero, which means: not at all."""
    return value if value == 0 else _seconds(ctx, param, value)


def _name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """A name as the library takes it, known before any server is reached or started."""
    try:
        encode_name(value, "it")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


@click.command(cls=RunCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=_name)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait for the lock.")
@click.option(
    "-w",
    "--wait",
    type=float,
    metavar="SECS",
    callback=_seconds_or_zero,
    help="Wait so long for the lock.  [default: without limit]",
)
@click.option(
    "-E",
    "--conflict-exit-code",
    type=click.IntRange(0, 255),
    metavar="N",
    default=BUSY,
    show_default=True,
    help="Exit code when others hold the lock.",
)
@click.option(
    "--skip-ok", is_flag=True, help="Exit 0, quietly, when others hold the lock. Does not wait, unless told to with -w."
)
@click.option(
    "--ttl",
    type=float,
    metavar="SECS",
    callback=_seconds,
    default=30.0,
    show_default=True,
    help="How long the lock outlives us if we die; it is renewed while we live.",
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
    callback=_seconds_or_zero,
    default=10.0,
    show_default=True,
    help="With --on-lost term: how long COMMAND has before SIGKILL.",
)
@click.option("--url", help="The server.  [default: $HOLDFAST_URL, $REDIS_URL, or one that all your processes share]")
@click.option(
    "--namespace", default="hf", show_default=True, callback=_name, help="What keys on the server begin with."
)
@click.option("--label", help="Who we are in a status.  [default: host:pid]")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND while holding the lock NAME.

    Waits for its turn, first come first served, and renews the lock for as long as COMMAND runs. Standard streams and
    the exit code pass through, signals are passed on.
    """
    order = Order(**given)
    if order.nonblock and order.wait:
        raise Usage("Either --nonblock or --wait.", ctx)
    logging.basicConfig(format="holdfast: %(message)s")  # what the library warns of, in our voice
    try:
        with Signals() as signals:
            code = _run(order, signals)
    except Interrupted as interruption:
        code = 128 + interruption.number
    ctx.exit(code)


def _run(order: Order, signals: Signals) -> int:
    client, lock = _lock(order)
    with client:
        lease = None
        try:
            lease = _acquire(order, lock)
            signals.collect()
            try:
                child = Child(order.command, _environment(lease), _say)
            except OSError as error:
                return _cannot_run(order, error)
            lease.add_lost_callback(signals.ring)
            code = child.supervise(signals, LossPlan(order.on_lost, order.kill_after))
        finally:
            # CPython looks for signals at calls and loops, never between a return and its assignment: a grant that the
            # wait did not undo is in `lease`, and whatever is raised from then on passes here.
            if lease is not None:
                _give_up(lease)
        if not lease.lost:
            return code
        if not child.knew_of_loss:
            _say(f"the lease of {order.name!r} was lost before {order.command[0]!r} ended")
        return code if order.on_lost == "ignore" else LOST


def _lock(order: Order) -> tuple[Holdfast, Lock]:
    """The client and the lock, untouched."""
    from holdfast import Holdfast, HoldfastError

    try:
        client = Holdfast(server_url(order.url), namespace=order.namespace, label=order.label)
        return client, client.lock(order.name, ttl=order.ttl)
    except ValueError as error:
        raise Usage(str(error), click.get_current_context()) from None
    except (HoldfastError, OSError) as error:
        _say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _acquire(order: Order, lock: Lock) -> Lease:
    """The lease, or the end with the exit code that says why there is none."""
    from redis.exceptions import RedisError

    from holdfast import AcquireTimeout, HoldfastError, QueueFull

    try:
        if order.patience != 0:
            return lock.acquire(timeout=order.patience)
        lease = lock.try_acquire()
        if lease is not None:
            return lease
        message = _who_has(lock)
    except AcquireTimeout as error:
        message = f"{_who_has(lock)}; gave up after {error.timeout:g} s"
    except QueueFull as error:
        message = str(error)
    except (HoldfastError, RedisError, OSError) as error:
        _say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    if not order.skip_ok:
        _say(message)
    raise click.exceptions.Exit(order.busy_code)


def _who_has(lock: Lock) -> str:
    """Why the lock was not to be had, as far as it can still be seen."""
    from redis.exceptions import RedisError

    from holdfast import HoldfastError

    with contextlib.suppress(HoldfastError, RedisError, OSError):
        status = lock.status()
        if status.holders:
            holder = status.holders[0]
            label = holder.label if holder.label.isprintable() else repr(holder.label)
            return f"{lock.name!r} has been held by {label} for {holder.held_for:.0f} s"
    return f"{lock.name!r} was held by others"


def _environment(lease: Lease) -> dict[str, str]:
    return os.environ | {
        "HOLDFAST_NAME": lease.name,
        "HOLDFAST_FENCE": str(lease.fence),
        "HOLDFAST_TOKEN": lease.token,
    }


def _cannot_run(order: Order, error: OSError) -> int:
    _say(f"cannot run {order.command[0]!r}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE


def _give_up(lease: Lease) -> None:
    """Release the lease, unless it is lost: there is nothing left then, and a server that is gone need not be asked."""
    from redis.exceptions import RedisError

    from holdfast import HoldfastError

    if lease.lost:
        return
    try:
        lease.release()
    except (HoldfastError, RedisError, OSError) as error:
        _say(f"could not release {lease.name!r}, it comes free by itself after its ttl: {error}")


def _say(message: str) -> None:
    """Tell a human. One who does not listen any more is no reason to fail."""
    with contextlib.suppress(OSError):
        click.echo(f"holdfast: {message}", err=True)
